"""Each function against its definition, and against Hugging Face's logits processors."""

import math
from fractions import Fraction

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from trafo.errors import ConfigError, InputError
from trafo.generate import GenerationConfig
from trafo.generate.sampling import (
    draw,
    keep_min_p,
    keep_top_k,
    keep_top_p,
    penalize_repetition,
    reshape_logits,
    sample,
    sample_generator,
)

ROWS = arrays(np.float32, (2, 7), elements=st.floats(-8, 8, width=32)).map(torch.from_numpy)
SHARES = st.floats(0.05, 0.999)


def kept(logits):
    return [{i for i, x in enumerate(row) if x > -math.inf} for row in logits.tolist()]


def probabilities(logits):
    return torch.softmax(logits.double(), -1)


@given(ROWS, st.integers(1, 9))
def test_top_k_keeps_the_k_largest(logits, k):
    for row, left in zip(logits.tolist(), kept(keep_top_k(logits, k)), strict=True):
        least = sorted(row, reverse=True)[min(k, len(row)) - 1]
        assert left == {i for i, x in enumerate(row) if x >= least}


@given(ROWS, SHARES)
def test_top_p_keeps_the_smallest_set(logits, p):
    for row, left in zip(probabilities(logits), kept(keep_top_p(logits, p)), strict=True):
        others = set(range(len(row))) - left
        total = sum(row[i].item() for i in left)
        least = min(row[i].item() for i in left)
        assert total >= p - 1e-5
        assert total - least < p + 1e-5 or len(left) == 1
        assert all(row[i].item() <= least + 1e-6 for i in others)


@given(ROWS, SHARES)
def test_min_p_compares_with_the_likeliest(logits, p):
    for row, left in zip(probabilities(logits), kept(keep_min_p(logits, p)), strict=True):
        ratios = (row / row.max()).tolist()
        assert {i for i, x in enumerate(ratios) if x > p + 1e-5} <= left
        assert left <= {i for i, x in enumerate(ratios) if x > p - 1e-5}


@given(ROWS, SHARES, st.integers(1, 7), SHARES)
@settings(max_examples=50)
def test_cuts_never_take_the_likeliest_nor_change_what_they_leave(logits, p, k, min_p):
    config = GenerationConfig(top_p=p, top_k=k, min_p=min_p)
    shaped = reshape_logits(logits, config)
    for row, cut in zip(logits.tolist(), shaped.tolist(), strict=True):
        assert max(cut) == max(row)
        assert all(after in (before, -math.inf) for before, after in zip(row, cut, strict=True))


def test_the_penalty_lowers_what_was_seen():
    logits = torch.tensor([[2.0, -2.0, 2.0, -2.0]])
    seen = torch.tensor([[True, True, False, False]])
    assert penalize_repetition(logits, seen, 2.0).tolist() == [[1.0, -4.0, 2.0, -2.0]]


def test_the_processors_of_hugging_face_agree():
    processors = pytest.importorskip("transformers.generation.logits_process")
    logits = 3 * torch.randn(4, 50)
    ids = torch.randint(50, (4, 6))
    seen = torch.zeros(4, 50, dtype=torch.bool).scatter_(1, ids, True)
    pairs = [
        (processors.TopKLogitsWarper(5), keep_top_k(logits, 5)),
        (processors.TopPLogitsWarper(0.7), keep_top_p(logits, 0.7)),
        (processors.MinPLogitsWarper(0.1), keep_min_p(logits, 0.1)),
        (
            processors.RepetitionPenaltyLogitsProcessor(1.3),
            penalize_repetition(logits, seen, 1.3),
        ),
        (
            processors.TemperatureLogitsWarper(0.6),
            reshape_logits(logits, GenerationConfig(temperature=0.6)),
        ),
    ]
    for theirs, ours in pairs:
        assert torch.equal(ours, theirs(ids, logits.clone()))


def test_frequencies_are_the_probabilities():
    """Chi-square with 5 degrees of freedom: above 20.5 once in a thousand seeds."""
    wanted = torch.tensor([0.4, 0.25, 0.0, 0.2, 0.1, 0.04, 0.01])
    generator = sample_generator(0, 0)
    number = 20_000
    chosen = draw(wanted.repeat(number, 1), [generator.random() for _ in range(number)])
    counts = torch.bincount(chosen, minlength=7)
    assert counts[2] == 0
    expected = (number * wanted)[wanted > 0]
    chi_square = ((counts[wanted > 0] - expected) ** 2 / expected).sum().item()
    assert chi_square < 20.5


@given(arrays(np.float32, 9, elements=st.floats(0, 1, width=32)), st.floats(0, 1, exclude_max=True))
def test_the_impossible_is_never_drawn(weights, uniform):
    weights[4] = 0.5
    row = torch.from_numpy(weights / weights.sum())
    assert row[draw(row[None], [uniform])[0]] > 0


def test_the_largest_uniform_is_still_inside():
    row = torch.tensor([[0.3, 0.7, 0.0]])
    assert draw(row, [math.nextafter(1.0, 0.0)]).tolist() == [1]
    assert draw(row, [0.0]).tolist() == [0]


def test_a_sum_that_rounds_up_draws_no_id_beyond_the_vocabulary():
    """Above 1, the product of the sum and the largest uniform number may round to the sum."""
    rng = np.random.default_rng(0)
    rows = torch.from_numpy(rng.random((2000, 11)))
    chosen = draw(rows, [math.nextafter(1.0, 0.0)] * len(rows))
    assert chosen.tolist() == [10] * len(rows)
    assert draw(rows, [1.0] * len(rows)).tolist() == [10] * len(rows)


EXTREME = st.sampled_from([5e-324, 1e-300, 1e-38, 1e-5, 0.3, 1.0, 7.0, 1e5, 1e38, 1e300, 1.7e308])
SIGNED = st.sampled_from([0.0, 1e-300, -1e-5, 2.0, -2.0, 1e38, -1e38, 1e300, -1.7e308, 1.7e308])


def exact_distribution(row, config, ids, num_prompt):
    """Penalties, bias and temperature by the formulas, in fractions of whole numbers."""
    shaped = [Fraction(x) for x in row]
    penalty, new = Fraction(config.repetition_penalty), ids[num_prompt:]
    for i in set(ids):
        shaped[i] = shaped[i] / penalty if shaped[i] > 0 else shaped[i] * penalty
    for i in set(new):
        shaped[i] -= new.count(i) * Fraction(config.frequency_penalty)
        shaped[i] -= Fraction(config.presence_penalty)
    for i, bias in config.logit_bias:
        shaped[i] += Fraction(bias)
    largest = max(map(abs, shaped))
    gaps = [(x - max(shaped)) / Fraction(config.temperature or 1) for x in shaped]
    powers = [math.exp(gap) if gap > -1000 else 0.0 for gap in gaps]
    return largest, [power / sum(powers) for power in powers]


@given(
    ROWS,
    st.sampled_from(["temperature", "repetition", "frequency", "presence", "bias"]),
    EXTREME,
    SIGNED,
    EXTREME,
)
@settings(max_examples=100)
def test_extreme_settings_are_exact(logits, which, factor, term, temperature):
    """Each setting at its extremes, with any temperature, against exact fractions."""
    config = {
        "temperature": GenerationConfig(temperature=factor),
        "repetition": GenerationConfig(repetition_penalty=factor, temperature=temperature),
        "frequency": GenerationConfig(frequency_penalty=term, temperature=temperature),
        "presence": GenerationConfig(presence_penalty=term, temperature=temperature),
        "bias": GenerationConfig(logit_bias=((1, term), (3, 1.0)), temperature=temperature),
    }[which]
    texts = [([0, 2, 2, 3], 1), ([5, 6, 0], 3)]
    found = torch.softmax(reshape_logits(logits, config, texts).double(), -1)
    assert found.isfinite().all()
    for row, (ids, num_prompt), ours in zip(logits.tolist(), texts, found.tolist(), strict=True):
        largest, expected = exact_distribution(row, config, ids, num_prompt)
        if largest < 2.0**1020:  # beyond, float64 ends
            assert ours == pytest.approx(expected, abs=2e-5)


@given(ROWS, st.data())
@settings(max_examples=50)
def test_whatever_is_set_an_id_of_the_vocabulary_is_sampled(logits, data):
    config = GenerationConfig(
        temperature=data.draw(st.just(0.0) | EXTREME),
        repetition_penalty=data.draw(EXTREME),
        frequency_penalty=data.draw(SIGNED),
        presence_penalty=data.draw(SIGNED),
        logit_bias=tuple((i, data.draw(SIGNED)) for i in range(4)) * 2,
        top_k=data.draw(st.none() | st.sampled_from([1, 3, 10**30])),
        top_p=data.draw(st.sampled_from([5e-324, 0.5, 1.0])),
        min_p=data.draw(st.sampled_from([0.0, 5e-324, 1.0])),
        logprobs=data.draw(st.sampled_from([None, 0, 3, 10**30])),
    )
    logits[0, :3] = -math.inf
    generators = [sample_generator(2**200, 2**100) for _ in range(2)]
    tokens = sample(logits, config, generators, [([0, 1, 4], 1), (list(range(7)), 0)])
    assert all(0 <= token.id < 7 for token in tokens)
    assert tokens[0].id >= 3, "what the model excludes stays impossible"


def test_a_bias_on_an_id_that_the_model_does_not_have_is_refused():
    config = GenerationConfig(logit_bias=((2**31 - 1, 1.0),))
    with pytest.raises(InputError, match="ids from 0 to 8"):
        sample(torch.zeros(1, 9), config, [sample_generator(0, 0)])


def test_log_probabilities_are_the_models_own():
    logits = torch.randn(2, 9)
    config = GenerationConfig(temperature=0.1, top_k=2, logprobs=3)
    generators = [sample_generator(0, i) for i in range(2)]
    tokens = sample(logits, config, generators)
    for row, token in zip(torch.log_softmax(logits, -1), tokens, strict=True):
        assert token.logprob == pytest.approx(row[token.id].item(), abs=1e-6)
        best = row.sort(descending=True)
        assert [i for i, _ in token.alternatives] == best.indices[:3].tolist()
        assert [p for _, p in token.alternatives] == pytest.approx(best.values[:3].tolist())


def test_greedy_takes_the_likeliest_whatever_the_cuts():
    logits = torch.randn(3, 9)
    config = GenerationConfig(temperature=0.0, top_k=1, top_p=0.1, min_p=0.9)
    assert [token.id for token in sample(logits, config, [])] == logits.argmax(-1).tolist()


@pytest.mark.parametrize(
    "wrong",
    [
        {"max_new_tokens": -1},
        {"temperature": -0.1},
        {"temperature": math.nan},
        {"top_k": 0},
        {"top_p": 0.0},
        {"top_p": 1.1},
        {"min_p": 2.0},
        {"repetition_penalty": 0.0},
        {"seed": -1},
        {"num_samples": 0},
        {"num_samples": 10**9},
        {"stop": ("",)},
        {"logprobs": -1},
        {"kept_share": 0.0},
        {"kernel": "fused"},
    ],
)
def test_what_cannot_be_is_refused_by_name(wrong):
    (name,) = wrong
    with pytest.raises(ConfigError, match=f"{name} is .*; (it must be|choose one of)"):
        GenerationConfig(**wrong)
