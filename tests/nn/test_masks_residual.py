import pytest
import torch

from trafo.nn import length_mask, look_ahead_mask, padding_mask, residual, target_mask

IDS = torch.tensor([[5, 3, 0], [7, 0, 0]])


def test_padding_mask_broadcasts_over_heads_and_queries():
    mask = padding_mask(IDS, padding_id=0)
    assert mask.shape == (2, 1, 1, 3)
    assert mask[:, 0, 0].tolist() == [[True, True, False], [True, False, False]]


def test_look_ahead_mask_is_lower_triangular():
    assert look_ahead_mask(3).tolist() == [[1, 0, 0], [1, 1, 0], [1, 1, 1]]


def test_target_mask_is_both():
    expected = padding_mask(IDS, 0) & look_ahead_mask(3)
    assert torch.equal(target_mask(IDS, 0), expected)
    assert target_mask(IDS, 0).shape == (2, 1, 3, 3)


def test_length_mask_marks_the_first():
    assert length_mask(torch.tensor([2, 0]), 3).tolist() == [[1, 1, 0], [0, 0, 0]]


@pytest.mark.parametrize(
    ("placement", "expected"), [("pre", 2 + 3 * 20.0), ("post", 80.0), ("none", 8.0)]
)
def test_residual_wiring(placement, expected):
    x = torch.tensor([2.0])
    result = residual(x, lambda t: 3 * t, lambda t: 10 * t, placement)
    assert result.item() == expected
