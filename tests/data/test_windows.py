"""Windows against plain slicing; the sampler's promises."""

from collections import Counter

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from trafo.data.windows import WindowSampler, get_batch, take_windows
from trafo.errors import ConfigError

TOKENS = np.arange(1000, 1400, dtype=np.uint16)


@settings(max_examples=50)
@given(length=st.integers(1, 40), starts=st.lists(st.integers(0, 300), min_size=1, max_size=8))
def test_windows_are_slices_and_their_next_ids(length: int, starts: list[int]) -> None:
    inputs, targets = take_windows(TOKENS, np.array(starts), length)
    assert inputs.dtype == targets.dtype == torch.int64
    assert inputs.tolist() == [TOKENS[s : s + length].tolist() for s in starts]
    assert targets.tolist() == [TOKENS[s + 1 : s + 1 + length].tolist() for s in starts]


def test_every_window_can_come_and_none_is_favoured() -> None:
    tokens = np.arange(11)
    counts: Counter[int] = Counter()
    generator = np.random.default_rng(0)
    for _ in range(100):
        inputs, targets = get_batch(tokens, 50, 4, generator=generator)
        assert torch.equal(inputs + 1, targets)
        counts.update(inputs[:, 0].tolist())
    assert set(counts) == set(range(7))  # 11 ids hold 7 windows of 4 with the id after
    expected, deviation = 5000 / 7, (5000 * 1 / 7 * 6 / 7) ** 0.5
    assert all(abs(count - expected) < 5 * deviation for count in counts.values())


@settings(max_examples=30)
@given(
    parts=st.sampled_from([1, 2, 3, 4, 6, 12]), step=st.integers(0, 10**9), seed=st.integers(0, 99)
)
def test_a_batch_does_not_depend_on_how_it_is_split(parts: int, step: int, seed: int) -> None:
    sampler = WindowSampler(TOKENS, batch_size=12, context_length=7, seed=seed)
    whole_inputs, whole_targets = sampler.batch(step)
    pieces = [sampler.batch(step, part, parts) for part in range(parts)]
    assert torch.equal(torch.cat([inputs for inputs, _ in pieces]), whole_inputs)
    assert torch.equal(torch.cat([targets for _, targets in pieces]), whole_targets)


def test_steps_and_seeds_differ_and_repeat() -> None:
    sampler = WindowSampler(TOKENS, 64, 7, seed=1)
    assert (sampler.starts(3) == WindowSampler(TOKENS, 64, 7, seed=1).starts(3)).all()
    assert (sampler.starts(3) != sampler.starts(4)).any()
    assert (sampler.starts(3) != WindowSampler(TOKENS, 64, 7, seed=2).starts(3)).any()


def test_a_memory_map_is_read_only_where_needed(tmp_path) -> None:
    path = tmp_path / "tokens"
    TOKENS.tofile(path)
    mapped = np.memmap(path, np.uint16, "r")
    inputs, _ = WindowSampler(mapped, 3, 5).batch(0)
    assert inputs.min() >= 1000


@pytest.mark.parametrize(
    ("length", "batch", "message"),
    [(400, 2, "400 tokens are too few"), (0, 2, "context_length"), (5, 0, "batch_size")],
)
def test_what_does_not_fit_is_refused(length: int, batch: int, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        WindowSampler(TOKENS, batch, length)


def test_unequal_parts_are_refused() -> None:
    with pytest.raises(ConfigError, match="equal parts"):
        WindowSampler(TOKENS, 10, 5).batch(0, 0, 3)
