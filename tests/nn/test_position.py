import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from trafo.errors import ConfigError
from trafo.nn import LearnedPositions, RotaryPositionalEmbedding, SinusoidalPositions


def rotate_by_matrices(x, positions, theta):
    """The definition: one 2x2 rotation for each pair, in float64."""
    d = x.shape[-1]
    out = torch.empty_like(x, dtype=torch.float64)
    for k in range(d // 2):
        angle = positions.double() * theta ** (-2 * k / d)
        a, b = x[..., 2 * k].double(), x[..., 2 * k + 1].double()
        out[..., 2 * k] = a * angle.cos() - b * angle.sin()
        out[..., 2 * k + 1] = a * angle.sin() + b * angle.cos()
    return out


@settings(max_examples=30, deadline=None)
@given(
    st.lists(st.integers(1, 3), max_size=3).map(tuple),
    st.integers(1, 12),
    st.integers(1, 5).map(lambda half: 2 * half),
    st.sampled_from([100.0, 10_000.0, 500_000.0]),
)
def test_rope_equals_rotation_matrices(leading, seq, d_k, theta):
    rope = RotaryPositionalEmbedding(theta, d_k, max_seq_len=4096)
    x = torch.randn(*leading, seq, d_k)
    positions = torch.randint(4096, (*leading, seq))
    torch.testing.assert_close(
        rope(x, positions).double(),
        rotate_by_matrices(x, positions, theta),
        atol=2e-6,
        rtol=1e-5,
    )


def test_rope_defaults_to_positions_from_zero():
    rope = RotaryPositionalEmbedding(10_000.0, 8, 32)
    x = torch.randn(2, 3, 10, 8)
    assert torch.equal(rope(x), rope(x, torch.arange(10)))


def test_rope_scores_depend_on_distance_alone():
    rope = RotaryPositionalEmbedding(10_000.0, 16, 200)
    q, k = torch.randn(2, 1, 16)
    scores = [
        (rope(q, torch.tensor([i + 7])) * rope(k, torch.tensor([i]))).sum() for i in (0, 5, 150)
    ]
    torch.testing.assert_close(scores[0], scores[1], atol=1e-5, rtol=0)
    torch.testing.assert_close(scores[0], scores[2], atol=1e-5, rtol=0)


def test_rope_gradients_turn_back(assert_agree):
    rope = RotaryPositionalEmbedding(100.0, 6, 20)
    positions = torch.arange(5) + 3
    assert_agree(
        lambda x: rope(x, positions),
        lambda x: rotate_by_matrices(x, positions, 100.0),
        [torch.randn(2, 5, 6)],
    )


def test_rope_takes_any_layout():
    rope = RotaryPositionalEmbedding(100.0, 4, 20)
    x = torch.randn(3, 4, 7)
    transposed, shifted = x.transpose(1, 2), torch.randn(3, 7, 5)[..., 1:]
    assert torch.equal(rope(transposed), rope(transposed.contiguous()))
    assert torch.equal(rope(shifted), rope(shifted.contiguous()))


def test_rope_tables_are_no_state_and_stay_float32():
    rope = RotaryPositionalEmbedding(10_000.0, 8, 32)
    exact = rope.cos.clone()
    assert not rope.state_dict()
    rope.to(torch.bfloat16)
    assert torch.equal(rope.cos, exact)
    assert rope(torch.randn(4, 8, dtype=torch.bfloat16)).dtype == torch.bfloat16


def test_rope_refuses_an_odd_size():
    with pytest.raises(ConfigError, match="rotary size d_k is 7; it must be even"):
        RotaryPositionalEmbedding(10_000.0, 7, 32)


def test_sinusoidal_positions_are_the_papers():
    added = SinusoidalPositions(10, 50)(torch.zeros(2, 50, 10))
    for position, k in [(0, 0), (1, 0), (49, 0), (7, 3), (49, 4)]:
        angle = position / 10_000 ** (2 * k / 10)
        assert added[1, position, 2 * k].item() == pytest.approx(math.sin(angle), abs=1e-6)
        assert added[1, position, 2 * k + 1].item() == pytest.approx(math.cos(angle), abs=1e-6)


@pytest.mark.parametrize("kind", [SinusoidalPositions, LearnedPositions])
def test_added_positions_follow_the_given_places(kind):
    layer = kind(6, 20)
    places = torch.tensor([[3, 4, 5], [0, 9, 1]])
    whole = layer(torch.zeros(20, 6))
    assert torch.equal(layer(torch.zeros(2, 3, 6), places), whole[places])
    assert torch.equal(layer(torch.zeros(2, 3, 6)), whole[:3].expand(2, 3, 6))
