"""Optimizers against torch's, the formulas, and what the papers promise."""

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from trafo.fast.mixed import mixed_precision
from trafo.optim import SGD, AdamW, Muon, adamw, clip_gradients
from trafo.optim.muon import orthogonalize


def run_steps(
    make: Callable[[list[Tensor]], torch.optim.Optimizer], gradients: list[list[Tensor]]
) -> list[list[Tensor]]:
    """The parameters after each step with the given gradients, from the same start."""
    generator = torch.Generator().manual_seed(0)
    parameters = [
        torch.randn(g.shape, generator=generator, dtype=torch.float64) for g in gradients[0]
    ]
    optimizer = make(parameters)
    trajectory = []
    for step in gradients:
        for parameter, gradient in zip(parameters, step, strict=True):
            parameter.grad = gradient.clone()
        optimizer.step()
        trajectory.append([parameter.clone() for parameter in parameters])
    return trajectory


def random_gradients(seed: int, steps: int = 12) -> list[list[Tensor]]:
    generator = torch.Generator().manual_seed(seed)
    shapes = [(3, 4), (5,), (2, 3, 2)]
    return [
        [torch.randn(shape, generator=generator, dtype=torch.float64) for shape in shapes]
        for _ in range(steps)
    ]


@settings(max_examples=30, deadline=None)
@given(
    lr=st.floats(0, 1),
    betas=st.tuples(st.floats(0, 0.999), st.floats(0, 0.9999)),
    eps=st.floats(1e-12, 1e-2),
    weight_decay=st.floats(0, 0.5),
    seed=st.integers(0, 2**20),
)
def test_adamw_equals_torch_step_for_step(
    lr: float, betas: tuple[float, float], eps: float, weight_decay: float, seed: int
) -> None:
    arguments: dict[str, Any] = {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay}
    gradients = random_gradients(seed)
    ours = run_steps(lambda parameters: AdamW(parameters, **arguments), gradients)
    theirs = run_steps(lambda parameters: torch.optim.AdamW(parameters, **arguments), gradients)
    torch.testing.assert_close(ours, theirs, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("numbers", [1, 5, 12, 1000])
def test_adamw_in_blocks_changes_not_one_bit(monkeypatch: pytest.MonkeyPatch, numbers: int) -> None:
    matrices_first = [*random_gradients(seed=0), *random_gradients(seed=1)]
    gradients = [[g, g.T.contiguous().T, g.new_ones(())] for g, *_ in matrices_first]
    expected = run_steps(AdamW, gradients)
    monkeypatch.setattr(adamw, "BLOCK_NUMBERS", numbers)
    for mine, other in zip(run_steps(AdamW, gradients), expected, strict=True):
        assert all(torch.equal(x, y) for x, y in zip(mine, other, strict=True))


def test_adamw_groups_have_their_own_hyperparameters() -> None:
    def make(kind: Any) -> Callable[[list[Tensor]], torch.optim.Optimizer]:
        return lambda parameters: kind(
            [
                {"params": parameters[:1], "lr": 0.1, "weight_decay": 0.3},
                {"params": parameters[1:], "betas": (0.5, 0.6)},
            ],
            lr=0.01,
        )

    gradients = random_gradients(1)
    torch.testing.assert_close(
        run_steps(make(AdamW), gradients), run_steps(make(torch.optim.AdamW), gradients)
    )


def test_adamw_goes_on_from_its_saved_state() -> None:
    gradients = random_gradients(2, steps=6)
    whole = run_steps(lambda parameters: AdamW(parameters, lr=0.1), gradients)
    parameters = [tensor.clone() for tensor in whole[2]]
    first: list[AdamW] = []

    def remember(given: list[Tensor]) -> AdamW:
        first.append(AdamW(given, lr=0.1))
        return first[0]

    run_steps(remember, gradients[:3])
    second = AdamW(parameters, lr=0.1)
    second.load_state_dict(first[0].state_dict())
    for step in gradients[3:]:
        for parameter, gradient in zip(parameters, step, strict=True):
            parameter.grad = gradient
        second.step()
    torch.testing.assert_close(parameters, whole[-1], rtol=0, atol=0)


def test_sgd_divides_by_the_root_of_time() -> None:
    parameter = torch.tensor([10.0], dtype=torch.float64)
    optimizer = SGD([parameter], lr=2.0)
    expected = 10.0
    for t in range(5):
        parameter.grad = torch.tensor([1.0 + t], dtype=torch.float64)
        optimizer.step()
        expected -= 2.0 / math.sqrt(t + 1) * (1.0 + t)
        assert parameter.item() == pytest.approx(expected, rel=1e-12)


def test_a_closure_is_evaluated_with_gradients_and_its_loss_returned() -> None:
    parameter = torch.tensor([3.0], requires_grad=True)
    optimizer = SGD([parameter], lr=0.1)

    def closure() -> float:
        optimizer.zero_grad()
        loss = (parameter**2).sum()
        loss.backward()
        return loss.item()

    assert optimizer.step(closure) == 9.0
    assert parameter.item() == pytest.approx(3 - 0.1 * 6)


def test_parameters_without_gradient_stay() -> None:
    still = torch.ones(2, 2)
    for optimizer in (SGD([still]), AdamW([still]), Muon([still])):
        optimizer.step()
    assert torch.equal(still, torch.ones(2, 2))


@settings(max_examples=25, deadline=None)
@given(rows=st.integers(1, 40), columns=st.integers(1, 40), seed=st.integers(0, 2**20))
def test_orthogonalize_keeps_singular_vectors_and_evens_the_values(
    rows: int, columns: int, seed: int
) -> None:
    generator = torch.Generator().manual_seed(seed)
    rank = min(rows, columns)
    u, _ = torch.linalg.qr(torch.randn(rows, rank, generator=generator))
    v, _ = torch.linalg.qr(torch.randn(columns, rank, generator=generator))
    values = torch.logspace(0, -1.5, rank)
    result = orthogonalize(u @ torch.diag(values) @ v.T)
    inner = u.T @ result @ v  # diagonal if the singular vectors are the same
    diagonal = inner.diagonal()
    assert (inner - torch.diag(diagonal)).abs().max() < 1e-3
    assert ((diagonal > 0.5) & (diagonal < 1.3)).all()


def test_muon_first_step_is_the_orthogonal_gradient() -> None:
    gradient = torch.tensor([[2.0, 0.0], [0.0, 0.5], [0.0, 0.0]])
    parameter = torch.zeros(3, 2)
    parameter.grad = gradient.clone()
    Muon([parameter], lr=0.1, momentum=0.9).step()
    # Nesterov with an empty buffer: g + 0.9 g, of which only the direction counts.
    expected = -0.1 * math.sqrt(3 / 2) * orthogonalize(1.9 * gradient)
    torch.testing.assert_close(parameter, expected)


def test_muon_moves_each_matrix_as_if_it_were_alone() -> None:
    """Those of one shape go through the iteration together."""
    shapes = [(5, 3), (3, 5), (5, 3), (2, 2), (5, 3)]
    together = [torch.zeros(shape) for shape in shapes]
    for parameter in together:
        parameter.grad = torch.randn(parameter.shape)
    alone = [parameter.clone() for parameter in together]
    for parameter, other in zip(alone, together, strict=True):
        parameter.grad = other.grad
    steps = [Muon(together), *(Muon([parameter]) for parameter in alone)]
    for optimizer in steps * 2:
        optimizer.step()
    for parameter, other in zip(alone, together, strict=True):
        torch.testing.assert_close(parameter, other)


@pytest.mark.parametrize("rows", [64, 200])
def test_muon_in_mixed_precision_gives_nearly_the_same_direction(rows: int) -> None:
    matrix = torch.randn(rows, 96)
    with mixed_precision(torch.device("cpu"), torch.bfloat16):
        mixed = orthogonalize(matrix)
    assert mixed.dtype == torch.float32
    exact = orthogonalize(matrix)
    assert torch.cosine_similarity(mixed.flatten(), exact.flatten(), dim=0) > 0.999
    assert not torch.equal(mixed, exact)


@pytest.mark.parametrize("kind", [SGD, AdamW, Muon])
def test_every_optimizer_finds_the_minimum_of_a_bowl(kind: Any) -> None:
    target = torch.tensor([[1.0, -2.0], [0.5, 3.0]])
    parameter = torch.zeros(2, 2, requires_grad=True)
    optimizer = kind([parameter], lr=0.2)
    for step in range(400):
        optimizer.zero_grad()
        ((parameter - target) ** 2).sum().backward()
        optimizer.param_groups[0]["lr"] = 0.2 * (1 - step / 400)
        optimizer.step()
    assert (parameter - target).abs().max() < 0.05


@pytest.mark.parametrize(
    ("kind", "arguments"),
    [
        (SGD, {"lr": -1.0}),
        (AdamW, {"lr": -1e-9}),
        (AdamW, {"betas": (1.0, 0.9)}),
        (AdamW, {"betas": (0.9, -0.1)}),
        (AdamW, {"eps": -1e-8}),
        (AdamW, {"weight_decay": -0.1}),
        (AdamW, {"lr": float("nan")}),
        (Muon, {"momentum": 1.0}),
        (Muon, {"steps": 0}),
    ],
)
def test_wrong_hyperparameters_are_value_errors(kind: Any, arguments: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(arguments))):
        kind([torch.zeros(2, 2)], **arguments)


def test_muon_refuses_what_is_no_matrix() -> None:
    with pytest.raises(ValueError, match="2-D"):
        Muon([torch.zeros(3)])


@settings(max_examples=50, deadline=None)
@given(seed=st.integers(0, 2**20), most=st.floats(0.01, 10))
def test_clipping_equals_torch(seed: int, most: float) -> None:
    gradients = random_gradients(seed, steps=1)[0]
    ours = [torch.zeros_like(g) for g in gradients]
    theirs = [torch.zeros_like(g) for g in gradients]
    for a, b, gradient in zip(ours, theirs, gradients, strict=True):
        a.grad, b.grad = gradient.clone(), gradient.clone()
    without = torch.zeros(2)  # has no gradient
    norm = clip_gradients([*ours, without], most)
    expected = torch.nn.utils.clip_grad_norm_(theirs, most)
    torch.testing.assert_close(norm, expected)
    for a, b in zip(ours, theirs, strict=True):
        torch.testing.assert_close(a.grad, b.grad)


def test_clipping_nothing_is_zero() -> None:
    assert clip_gradients([torch.zeros(2)], 1.0) == 0
    with pytest.raises(ValueError, match="max_l2_norm"):
        clip_gradients([], 0.0)
