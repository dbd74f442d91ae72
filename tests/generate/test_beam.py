"""Beam search: the fast one finds what the plain one finds, and the plain one is right."""

import copy
import itertools
import math
import os
import subprocess
import sys
import threading
from contextlib import contextmanager

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from trafo.errors import ConfigError, InputError
from trafo.generate.beam import (
    BeamSearch,
    beam_search_all,
    beam_search_prompts,
    beam_search_steps,
    decoders,
)
from trafo.generate.beam_config import BeamConfig
from trafo.generate.beam_decoder import (
    BeamBatch,
    CachedDecoder,
    best_continuations,
    empty_continuations,
    reorder_beams,
)
from trafo.generate.beam_reference import beam_search, beam_search_continuations
from trafo.models import (
    EncoderDecoder,
    EncoderDecoderConfig,
    RecurrentConfig,
    RecurrentEncoderDecoder,
    TransformerLM,
)

VOCAB, END = 14, 13
# In float64, hypotheses do not change places by rounding.
SIZES = {"source_vocab_size": VOCAB, "target_vocab_size": VOCAB, "d_model": 8, "dropout": 0.3}


@contextmanager
def torch_threads(number):
    before = torch.get_num_threads()
    torch.set_num_threads(number)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def make(kind, seed=0, **settings):
    torch.manual_seed(seed)
    if kind == "recurrent":
        config = RecurrentConfig(**SIZES, d_hidden=6)
        return RecurrentEncoderDecoder(config, dtype=torch.float64).eval()
    shape = {"num_encoder_layers": 1, "num_decoder_layers": 2, "num_heads": 2, "d_ff": 12}
    config = EncoderDecoderConfig(**SIZES | shape | settings)
    return EncoderDecoder(config, dtype=torch.float64).eval()


MODELS = {
    (kind, seed): make(kind, seed) for kind in ("recurrent", "transformer") for seed in range(2)
}
SOURCES = st.lists(
    st.lists(st.integers(1, END - 1), min_size=0, max_size=4).map(lambda ids: [*ids, END]),
    min_size=1,
    max_size=4,
)
CONFIGS = st.integers(1, 4).flatmap(
    lambda beam: st.builds(
        BeamConfig,
        beam=st.just(beam),
        n_best=st.integers(1, beam),
        length_penalty=st.sampled_from([0.0, 0.6, 1.0, 2.0]),
        normalization=st.sampled_from(["wu", "average", "none"]),
        max_ratio=st.sampled_from([0.0, 0.5]),
        max_extra=st.integers(1, 4),
    )
)


@given(st.sampled_from(sorted(MODELS)), SOURCES, CONFIGS)
@settings(max_examples=15)
def test_the_recorded_steps_are_those_of_the_plain_search(key, sources, config):
    model, source = MODELS[key], sources[0]
    expected: list = []
    best = beam_search(model, source, END, config, steps=expected)
    found, steps = beam_search_steps(model, source, END, config)
    assert [h.ids for h in found] == [h.ids for h in best]
    assert [[h.ids for h in kept] for kept in steps] == [[h.ids for h in kept] for kept in expected]


@given(st.sampled_from(sorted(MODELS)), SOURCES, CONFIGS, st.integers(1, 20))
@settings(max_examples=25)
def test_the_fast_search_finds_what_the_plain_one_finds(key, sources, config, batch_tokens):
    model = MODELS[key]
    found = beam_search_all(model, sources, END, config, batch_tokens=batch_tokens)
    for source, hypotheses in zip(sources, found, strict=True):
        expected = beam_search(model, source, END, config)
        assert [h.ids for h in hypotheses] == [h.ids for h in expected]
        assert [h.logprob for h in hypotheses] == pytest.approx([h.logprob for h in expected])
        assert [h.score for h in hypotheses] == pytest.approx([h.score for h in expected])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=["compiled", "by the model"])
@pytest.mark.parametrize(
    "switches",
    [{}, {"num_kv_heads": 2, "qk_norm": True}, {"window": 3, "tied_head": True}],
    ids=str,
)
def test_a_language_model_continues_prompts_of_any_length(dtype, switches):
    torch.manual_seed(0)
    model = TransformerLM(VOCAB, 16, 16, 2, 4, **switches, dtype=torch.float64).eval()
    with torch.no_grad():
        model.head_weight.mul_(4.0)
    prompts = [[3], [5, 1, 7, 2, 2], [END, 4]]
    config = BeamConfig(beam=3, n_best=2, length_penalty=0.7)
    found = beam_search_prompts(copy.deepcopy(model).to(dtype), prompts, {END}, config, 6)
    for prompt, hypotheses in zip(prompts, found, strict=True):
        expected = beam_search_continuations(model, prompt, END, config, 6)
        assert [h.ids for h in hypotheses] == [h.ids for h in expected]
        scores = [h.score for h in expected]
        assert [h.score for h in hypotheses] == pytest.approx(scores, abs=1e-4)


def test_beams_stay_within_the_context():
    model = TransformerLM(VOCAB, 6, 16, 1, 4).eval()
    ((found,),) = beam_search_prompts(model, [[1, 2, 3]], (), BeamConfig(beam=2), 100)
    assert len(found.ids) == 3
    with pytest.raises(InputError, match="a prompt has 6 tokens, the model reads 6"):
        beam_search_prompts(model, [[1] * 6], (), BeamConfig(beam=2), 1)


@pytest.mark.parametrize("kind", ["recurrent", "transformer"])
@torch.no_grad()
def test_a_hypothesis_has_the_probability_that_the_model_gives_it(kind):
    model, source = make(kind), [3, 5, END]
    config = BeamConfig(beam=4, n_best=4, normalization="wu", length_penalty=0.6)
    for ids, logprob, score in beam_search(model, source, END, config):
        logits = model(torch.tensor([source]), torch.tensor([[END, *ids[:-1]]]))[0]
        each = logits.log_softmax(-1)[torch.arange(len(ids)), list(ids)]
        assert logprob == pytest.approx(float(each.sum()))
        assert score == pytest.approx(logprob / ((5 + len(ids)) / 6) ** 0.6)


@torch.no_grad()
def test_a_beam_as_wide_as_the_tree_finds_the_best_translation():
    """Against every sequence of up to two tokens and the end."""
    torch.manual_seed(1)
    config = EncoderDecoderConfig(
        source_vocab_size=5, target_vocab_size=5, d_model=8, num_encoder_layers=1,
        num_decoder_layers=1, num_heads=2, d_ff=8, context_length=3,
    )  # fmt: skip
    model = EncoderDecoder(config, dtype=torch.float64).eval()
    end = 4
    best = -math.inf
    for length in range(3):
        for words in itertools.product([1, 2, 3], repeat=length):
            ids = torch.tensor([*words, end])
            target = torch.cat([ids[-1:], ids[:-1]])[None]
            logits = model(torch.tensor([[2, end]]), target)[0].log_softmax(-1)
            best = max(best, float(logits[torch.arange(len(ids)), ids].sum()))
    search = BeamConfig(beam=30, normalization="none")
    found = beam_search_all(model, [[2, end]], end, search)[0][0]
    assert found.ids[-1] == end
    assert found.logprob == pytest.approx(best)


def test_greedy_takes_the_most_probable_token():
    model, source = make("transformer"), [4, 4, 9, END]
    found = beam_search_all(model, [source], END, BeamConfig(beam=1))[0][0]
    memory = model.encode(torch.tensor([source]))
    ids = [END]
    while len(ids) <= len(found.ids):
        logits = model.decode(torch.tensor([ids]), memory)[0, -1]
        logits[0] = -math.inf
        ids.append(int(logits.argmax()))
    assert tuple(ids[1:]) == found.ids


@given(st.integers(0, 3), SOURCES, CONFIGS, st.integers(1, 20), st.integers(1, 2))
@settings(max_examples=25)
def test_the_compiled_search_finds_what_the_plain_one_finds(
    seed, sources, config, batch_tokens, threads
):
    """In float32 against float64: to four digits, hypotheses do not change places by rounding."""
    exact = make("transformer", seed)
    with torch_threads(threads):
        model = copy.deepcopy(exact).float()
        found = beam_search_all(model, sources, END, config, batch_tokens=batch_tokens)
    for source, hypotheses in zip(sources, found, strict=True):
        expected = beam_search(exact, source, END, config)
        assert [h.ids for h in hypotheses] == [h.ids for h in expected]
        close = {"abs": 1e-4}
        logprobs, scores = [h.logprob for h in expected], [h.score for h in expected]
        assert [h.logprob for h in hypotheses] == pytest.approx(logprobs, **close)
        assert [h.score for h in hypotheses] == pytest.approx(scores, **close)


@pytest.mark.parametrize("beam", [1, 2, 3])
@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"norm_placement": "pre", "attention_bias": True, "activation": "gelu"},
        {"final_norms": False, "shared_embeddings": "all", "target_vocab_size": 2000,
         "source_vocab_size": 2000},
        {"head_bias": True, "activation": "silu", "target_vocab_size": 33},
        {"num_heads": 1, "d_model": 10, "d_ff": 5},
    ],
    ids=str,
)  # fmt: skip
@torch.inference_mode()
def test_the_compiled_decoder_finds_what_the_model_finds(settings, beam):
    """While hypotheses change places, multiply and leave."""
    model = make("transformer", **settings).float()
    vocab = model.config.target_vocab_size
    for parameter in model.parameters():
        parameter += 0.2 * torch.randn_like(parameter)  # biases that are not zero
    sources = [[3, 5, END], [7, END], [END]]
    batch = BeamBatch([[END]] * 3, sources, beam, 6, np.arange(vocab) == END)
    made = [CachedDecoder(model, batch), decoders(model)(batch)]
    assert not isinstance(made[1], CachedDecoder)
    for never_read in (made[1]._cache.keys, made[1]._cache.values):
        never_read[:] = math.nan
    rng = np.random.default_rng(0)
    sentences, alive = 3, 1
    for leaves in (0, 0, 1, 0, 1):
        last = rng.integers(1, vocab, (sentences, alive))
        totals = -np.sort(rng.exponential(2.0, (sentences, alive)), axis=1)
        expected, found = (each.best(last, totals, 2 * beam) for each in made)
        for i in range(sentences):
            assert kept(found, i, beam) == pytest.approx(kept(expected, i, beam), abs=1e-4)
        # Beam search continues only what was found: what had no place was not computed.
        going_on = [
            [parent for _, token, parent in zip(*row, strict=True) if token != END][:beam]
            for row in zip(*(each.tolist() for each in expected), strict=True)
        ]
        sentences, before, alive = sentences - leaves, alive, beam
        parents = rng.permuted(np.array(going_on[leaves:]), axis=1)
        rows = (np.arange(leaves, sentences + leaves)[:, None] * before + parents).ravel()
        for each in made:
            each.follow(rows)


def kept(found, sentence, beam):
    """What beam search uses of the continuations of a sentence, as numbers."""
    logprobs, tokens, parents = (each[sentence].tolist() for each in found)
    every = list(zip(logprobs, tokens, parents, strict=True))
    going_on = [each for each in every if each[1] != END][:beam]
    ended = [each for each in every[:beam] if each[1] == END]
    return [number for each in going_on + ended for number in each]


@torch.inference_mode()
def test_hypotheses_that_cannot_have_a_place_are_not_computed():
    """Their keys are never written: those of the second are what they were."""
    model = make("transformer").float()
    batch = BeamBatch([[END]], [[3, END]], 2, 4, np.arange(VOCAB) == END)
    decoder = decoders(model)(batch)
    decoder.best(np.array([[END]]), np.zeros((1, 1)), 4)
    decoder.follow(np.zeros(2, np.int64))
    keys = decoder._cache.keys
    keys[:, 2:] = 7  # blocks of a token, two at each step
    found = decoder.best(np.array([[1, 2]]), np.array([[0.0, -100.0]]), 4)
    assert (found.parents[0, :2] == 0).all()
    assert (keys[:, 3] == 7).all()
    decoder.best(np.array([[1, 2]]), np.array([[0.0, -0.001]]), 4)
    assert not (keys[:, 5] == 7).all()


def test_a_padding_token_that_is_most_probable_is_not_chosen():
    model = make("transformer", head_bias=True).float()
    with torch.no_grad():
        model.lm_head.bias[0] = 500.0
    config = BeamConfig(beam=2, max_extra=3, max_ratio=0.0)
    (found,) = beam_search_all(model, [[3, END]], END, config)
    (expected,) = (beam_search(model.double(), [3, END], END, config),)
    assert [h.ids for h in found] == [h.ids for h in expected]
    assert [h.logprob for h in found] == pytest.approx([h.logprob for h in expected], rel=1e-5)


def test_equal_continuations_keep_their_order_and_padding_is_never_chosen():
    added = np.array([[0.0, -1.0, -2.0, -1.0], [0.0, -1.0, -1.0, -9.0]])
    found = empty_continuations(1, 7)
    best_continuations(added, np.array([[-0.5, -0.5]]), 0, found)
    assert found.logprobs[0].tolist() == [-1.5, -1.5, -1.5, -1.5, -2.5, -9.5, -math.inf]
    assert found.tokens[0, :6].tolist() == [1, 3, 1, 2, 2, 3]
    assert found.parents[0, :6].tolist() == [0, 0, 1, 1, 0, 1]


def test_only_rows_that_change_are_copied():
    model = make("transformer")
    cache = model.make_cache(4, 6)
    memory = model.encode(torch.randint(1, VOCAB, (4, 3)))
    model.decode(torch.randint(1, VOCAB, (4, 2)), memory, cache=cache)
    keys, source = cache.target.keys.clone(), cache.source
    rows = torch.tensor([0, 0, 3, 3])
    reorder_beams(cache, rows)
    assert cache.source is source
    assert cache.target.keys.equal(keys[:, rows])


@pytest.mark.parametrize(
    ("changes", "message"),
    [({"beam": 0}, "beam is 0"), ({"beam": 2, "n_best": 3}, "n_best 3 with a beam of 2")],
)
def test_settings_that_make_no_sense_are_refused(changes, message):
    with pytest.raises(ConfigError, match=message):
        BeamConfig(**changes)


def test_batches_are_searched_side_by_side(monkeypatch):
    """Two searches wait for each other: one after the other, neither would end."""
    model = make("transformer").float()
    both_run = threading.Barrier(2, timeout=30)
    run = BeamSearch.run

    def run_beside_another(search, *arguments):
        both_run.wait()
        assert torch.get_num_threads() == 1
        return run(search, *arguments)

    monkeypatch.setattr(BeamSearch, "run", run_beside_another)
    config, done = BeamConfig(beam=2), []
    with torch_threads(2):
        found = beam_search_all(model, [[3, END], [5, 4, END]], END, config, advance=done.append)
        assert torch.get_num_threads() == 2
    assert done == [1, 1]
    monkeypatch.undo()
    assert found == [beam_search_all(model, [s], END, config)[0] for s in ([3, END], [5, 4, END])]


def test_beam_search_leaves_the_number_of_torch_threads_alone():
    """In a process of its own: loading a kernel with parallel parts starts numba's threads, once.

    A training run that measures BLEU would go on with all cores, whatever --threads says.
    """
    script = """
import torch
from trafo.generate.beam import beam_search_all
from trafo.generate.beam_config import BeamConfig
from trafo.models import EncoderDecoder, EncoderDecoderConfig
torch.set_num_threads(1)
assert torch.get_num_threads() == 1  # from now on torch asks OpenMP
shape = dict(d_model=8, num_encoder_layers=1, num_decoder_layers=1, num_heads=2, d_ff=8)
config = EncoderDecoderConfig(source_vocab_size=9, target_vocab_size=9, **shape)
beam_search_all(EncoderDecoder(config).eval(), [[3, 8]], 8, BeamConfig(beam=2))
assert torch.get_num_threads() == 1, torch.get_num_threads()
"""
    environment = os.environ | {"NUMBA_NUM_THREADS": "2"}
    subprocess.run([sys.executable, "-c", script], check=True, env=environment)
