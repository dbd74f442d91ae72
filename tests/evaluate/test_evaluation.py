"""Against the definition: one id at a time, in float64."""

import math
from statistics import stdev

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

from trafo.data.pair_batches import EncodedPairs
from trafo.data.pair_tokenizer import PairTokenizer
from trafo.errors import ConfigError, InputError
from trafo.evaluate.evaluation import (
    Evaluation,
    count_token_bytes,
    evaluate_ids,
    evaluate_pairs,
    split_windows,
    standard_error,
)
from trafo.models import EncoderDecoder, EncoderDecoderConfig, TransformerLM
from trafo.tokenizer import Tokenizer

VOCAB = 30


@pytest.fixture(scope="module")
def model():
    torch.manual_seed(0)
    return TransformerLM(VOCAB, 8, 16, 2, 2, dropout=0.5).eval()


def ids_of(number):
    return np.random.default_rng(1).integers(0, VOCAB, number).astype(np.uint16)


@torch.no_grad()
def slow_nats(model, ids, context, stride):
    """Position by position: the id at t is predicted by the window that counts it."""
    wide = TransformerLM(VOCAB, 8, 16, 2, 2, dtype=torch.float64).eval()
    wide.load_state_dict(model.state_dict())
    nats = []
    for t in range(1, len(ids)):
        k = max(0, math.ceil((t - context) / stride))
        before = torch.tensor([ids[k * stride : t].tolist()])
        logits = wide(before)[0, -1]
        nats.append(-torch.log_softmax(logits, -1)[int(ids[t])].item())
    return nats


@pytest.mark.parametrize("number", [2, 5, 9, 10, 30])
@pytest.mark.parametrize(("context", "stride"), [(8, 8), (8, 3), (8, 1), (5, 4)])
def test_the_sum_is_that_of_the_slow_loop(model, number, context, stride):
    ids = ids_of(number)
    done = evaluate_ids(model, ids, context_length=context, stride=stride, batch_size=2)
    expected = slow_nats(model, ids, context, stride)
    assert done.num_tokens == number - 1
    assert done.total_nats == pytest.approx(sum(expected), rel=1e-5)
    assert done.loss == pytest.approx(np.mean(expected), rel=1e-5)
    assert done.perplexity == pytest.approx(math.exp(np.mean(expected)), rel=1e-4)


def test_a_whole_window_is_torchs_cross_entropy(model):
    ids = torch.from_numpy(ids_of(9).astype(np.int64))
    with torch.no_grad():
        expected = torch.nn.functional.cross_entropy(model(ids[None, :-1])[0], ids[1:])
    assert evaluate_ids(model, ids.numpy()).loss == pytest.approx(expected.item(), rel=1e-5)


@given(st.integers(2, 80), st.integers(1, 12), st.data())
def test_every_id_but_the_first_is_predicted_once(num_ids, context, data):
    stride = data.draw(st.integers(1, context))
    counted = []
    for window in split_windows(num_ids, context, stride):
        assert 1 <= window.length <= context
        targets = range(window.start + 1, window.start + window.length + 1)
        counted += targets[window.skipped :]
        if window.start:
            assert window.skipped == context - stride  # so much each has to go by, at least
    assert counted == list(range(1, num_ids))


def test_bytes_are_those_of_the_predicted_ids(model):
    lengths = np.arange(VOCAB)
    lengths[0] = 0
    ids = ids_of(40)
    done = evaluate_ids(model, ids, byte_lengths=lengths, stride=3)
    assert done.num_bytes == lengths[ids[1:]].sum()
    assert done.bits_per_byte == pytest.approx(done.total_nats / math.log(2) / done.num_bytes)
    assert evaluate_ids(model, ids).bits_per_byte is None
    assert Evaluation(1.0, 1, 0).bits_per_byte is None


def test_special_tokens_have_no_bytes():
    vocab = {i: bytes([i]) for i in range(256)} | {300: b"long token"}
    lengths = count_token_bytes(Tokenizer(vocab, [], ["<|endoftext|>"]))
    assert lengths[:256].tolist() == [1] * 256
    assert (lengths[299], lengths[300], lengths[301], len(lengths)) == (0, 10, 0, 302)


def test_a_part_is_spread_evenly_and_always_the_same(model):
    ids = ids_of(8 * 20 + 1)
    done = [evaluate_ids(model, ids, max_tokens=40, batch_size=size) for size in (1, 3)]
    assert [d.num_tokens for d in done] == [40, 40]
    assert done[0].total_nats == pytest.approx(done[1].total_nats, rel=1e-6)
    parts = [evaluate_ids(model, ids[start : start + 9]) for start in range(0, 160, 32)]
    assert done[0].total_nats == pytest.approx(sum(p.total_nats for p in parts), rel=1e-6)
    assert evaluate_ids(model, ids, max_tokens=1).num_tokens == 8
    assert evaluate_ids(model, ids, max_tokens=10**6).num_tokens == 160


def test_the_standard_error_is_that_of_window_means(model):
    """s / sqrt(n) over windows that are evaluated one by one; of one window there is none."""
    ids = ids_of(8 * 20 + 1)
    means = [evaluate_ids(model, ids[start : start + 9]).loss for start in range(0, 160, 8)]
    expected = stdev(means) / math.sqrt(len(means))
    assert evaluate_ids(model, ids, batch_size=3).standard_error == pytest.approx(
        expected, rel=1e-3
    )
    assert evaluate_ids(model, ids[:9]).standard_error is None


def test_the_standard_error_of_sentences_of_any_length():
    """As far from the truth as means of samples are from each other, on average."""
    chance = np.random.default_rng(0)

    def sample():
        counts = chance.integers(5, 40, size=60)
        # Every sentence has a difficulty of its own: tokens are not independent.
        return counts * (2.0 + 0.5 * chance.normal(size=60)), counts

    samples = [sample() for _ in range(2000)]
    means = [nats.sum() / counts.sum() for nats, counts in samples]
    errors = [standard_error(nats, counts) for nats, counts in samples]
    assert np.mean(errors) == pytest.approx(np.std(means), rel=0.05)


def test_progress_counts_every_prediction(model):
    seen = []
    evaluate_ids(model, ids_of(30), stride=3, batch_size=2, advance=seen.append)
    assert sum(seen) == 29


def test_dropout_rests_and_training_goes_on(model):
    model.train()
    first, second = (evaluate_ids(model, ids_of(30)).total_nats for _ in range(2))
    assert first == second
    assert model.training
    model.eval()


def test_a_larger_context_than_the_models_is_the_models(model):
    ids = ids_of(30)
    assert evaluate_ids(model, ids, context_length=100) == evaluate_ids(model, ids)


def test_what_cannot_be_is_refused(model):
    with pytest.raises(InputError, match="the text has 1 ids"):
        evaluate_ids(model, [3])
    with pytest.raises(ConfigError, match="stride is 9; it must be from 1 to the context, 8"):
        evaluate_ids(model, [3, 4], stride=9)
    with pytest.raises(ConfigError, match="stride is 0"):
        evaluate_ids(model, [3, 4], stride=0)
    with pytest.raises(ConfigError, match="max_tokens is 0"):
        evaluate_ids(model, [3, 4], max_tokens=0)
    with pytest.raises(ConfigError, match="batch_size is 0"):
        evaluate_ids(model, [3, 4], batch_size=0)
    with pytest.raises(InputError, match="the id 30, the model knows ids from 0 to 29"):
        evaluate_ids(model, [3, 30])


def test_perplexity_of_a_fair_choice():
    assert Evaluation(3 * math.log(8), 3, None).perplexity == pytest.approx(8.0)
    assert Evaluation(1e6, 1, None).perplexity == math.inf


def test_bits_per_byte_do_not_depend_on_the_cut_into_tokens():
    """A model that finds all bytes equally likely needs 8 bits, in tokens of one byte or of two."""
    assert Evaluation(100 * math.log(256), 100, 100).bits_per_byte == pytest.approx(8.0)
    assert Evaluation(50 * math.log(65536), 50, 100).bits_per_byte == pytest.approx(8.0)


PAIR_VOCAB = {i: bytes([i]) for i in range(256)} | {256: b" t", 257: b"er"}
PAIR_TOKENIZER = Tokenizer(PAIR_VOCAB, [(b" ", b"t"), (b"e", b"r")], ["<|endoftext|>"])


@given(st.lists(st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=12)))
@example(["größer", "the tester", "<|endoftext|>", "two words"])
@settings(max_examples=20)
@torch.no_grad()
def test_bits_per_byte_of_translations_are_over_the_bytes_of_the_targets(texts):
    """Sentence by sentence: nats / ln 2 / UTF-8 bytes; the end token counts, as 0 bytes."""
    targets = [text.strip() for text in texts if text.strip()] or ["x"]
    tokenizer = PairTokenizer(PAIR_TOKENIZER, PAIR_TOKENIZER)
    torch.manual_seed(0)
    sizes = {"d_model": 16, "num_encoder_layers": 1, "num_decoder_layers": 1, "num_heads": 2}
    config = EncoderDecoderConfig(source_vocab_size=260, target_vocab_size=260, d_ff=16, **sizes)
    model = EncoderDecoder(config).eval()
    sources = tokenizer.encode_source(["eine Quelle"] * len(targets))
    pairs = EncodedPairs(sources, tokenizer.encode_target(targets), 0)
    done = evaluate_pairs(model, pairs, byte_lengths=count_token_bytes(PAIR_TOKENIZER))
    end, nats = tokenizer.end, 0.0
    source = model.encode(torch.tensor([[*PAIR_TOKENIZER.encode(" eine Quelle"), end]]))
    for target in targets:
        ids = PAIR_TOKENIZER.encode(" " + target, special="ignore")
        logits = model.decode(torch.tensor([[end, *ids]]), source)[0].double()
        nats += torch.nn.functional.cross_entropy(
            logits, torch.tensor([*ids, end]), reduction="sum"
        ).item()
    assert done.num_bytes == sum(len(target.encode()) for target in targets)
    assert done.bits_per_byte == pytest.approx(nats / math.log(2) / done.num_bytes, rel=1e-4)
