"""A model with its optimizer in one file: exact, and harmless from strangers."""

import io
import pickle
from pathlib import Path

import pytest
import torch

from trafo.checkpoint.snapshot import load_checkpoint, save_checkpoint
from trafo.errors import FormatError
from trafo.models import TransformerLM
from trafo.optim import SGD, AdamW, Muon, cross_entropy


def small_model(tied: bool = False) -> TransformerLM:
    return TransformerLM(
        vocab_size=19,
        context_length=8,
        d_model=16,
        num_layers=1,
        num_heads=2,
        d_ff=32,
        rope_theta=1e4,
        tied_head=tied,
    )


def train(model: TransformerLM, optimizer: torch.optim.Optimizer, steps: range) -> None:
    for step in steps:
        ids = torch.randint(19, (2, 9), generator=torch.Generator().manual_seed(step))
        optimizer.zero_grad()
        cross_entropy(model(ids[:, :-1]), ids[:, 1:]).backward()
        optimizer.step()


def make_optimizer(kind: str, model: TransformerLM) -> torch.optim.Optimizer:
    if kind == "adamw":
        return AdamW(model.parameters(), lr=0.01, betas=(0.8, 0.9))
    if kind == "sgd":
        return SGD(model.parameters(), lr=0.1)
    if kind == "torch's adamw":
        return torch.optim.AdamW(model.parameters(), lr=0.01, betas=(0.8, 0.9))
    return Muon([p for p in model.parameters() if p.ndim == 2])


@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("kind", ["adamw", "sgd", "muon", "torch's adamw"])
@pytest.mark.parametrize("in_memory", [False, True])
def test_training_goes_on_bit_for_bit(
    kind: str, tied: bool, in_memory: bool, tmp_path: Path
) -> None:
    torch.manual_seed(0)
    model = small_model(tied)
    optimizer = make_optimizer(kind, model)
    train(model, optimizer, range(3))
    file = io.BytesIO()
    save_checkpoint(model, optimizer, 3, file if in_memory else tmp_path / "c")
    train(model, optimizer, range(3, 6))

    other = small_model(tied)
    other_optimizer = make_optimizer(kind, other)
    file.seek(0)
    assert load_checkpoint(file if in_memory else tmp_path / "c", other, other_optimizer) == 3
    train(other, other_optimizer, range(3, 6))
    assert other_optimizer.state_dict()["param_groups"] == optimizer.state_dict()["param_groups"]
    for ours, theirs in zip(model.parameters(), other.parameters(), strict=True):
        assert torch.equal(ours, theirs)


class Malicious:
    def __reduce__(self) -> tuple[object, tuple[str]]:
        return exec, ("raise SystemExit('a stranger ran code')",)


@pytest.mark.parametrize(
    "data",
    [
        pickle.dumps(Malicious()),
        b"",
        b"\x00" * 7,
        b"\xff" * 100,
        (2**40).to_bytes(8, "little") + b"{}",
    ],
)
def test_what_is_no_checkpoint_is_refused_and_runs_nothing(data: bytes) -> None:
    model = small_model()
    before = [parameter.clone() for parameter in model.parameters()]
    with pytest.raises(FormatError, match="not a checkpoint"):
        load_checkpoint(io.BytesIO(data), model, AdamW(model.parameters()))
    assert all(torch.equal(a, b) for a, b in zip(before, model.parameters(), strict=True))


def test_a_truncated_checkpoint_is_refused() -> None:
    model = small_model()
    file = io.BytesIO()
    save_checkpoint(model, AdamW(model.parameters()), 1, file)
    with pytest.raises(FormatError, match="damaged"):
        load_checkpoint(io.BytesIO(file.getvalue()[:-10]), model, AdamW(model.parameters()))


def test_another_model_is_refused(tmp_path: Path) -> None:
    model = small_model()
    save_checkpoint(model, AdamW(model.parameters()), 1, tmp_path / "c")
    other = torch.nn.Linear(2, 2)
    with pytest.raises(FormatError, match="does not fit"):
        load_checkpoint(tmp_path / "c", other, AdamW(other.parameters()))


def test_another_optimizer_is_refused(tmp_path: Path) -> None:
    model = small_model()
    save_checkpoint(model, AdamW(model.parameters()), 1, tmp_path / "c")
    split = [{"params": [parameter]} for parameter in model.parameters()]
    with pytest.raises(FormatError, match=r"does not fit this optimizer: 1 groups, not \d+"):
        load_checkpoint(tmp_path / "c", model, AdamW(split))


def test_parameters_of_another_model_are_not_forgotten_silently(tmp_path: Path) -> None:
    model, other = small_model(), small_model()
    optimizer = AdamW([*model.parameters(), *other.parameters()])
    with pytest.raises(FormatError, match="not the model's"):
        save_checkpoint(model, optimizer, 1, tmp_path / "c")


def test_the_callers_random_numbers_are_left_alone(tmp_path: Path) -> None:
    model = small_model()
    optimizer = AdamW(model.parameters())
    save_checkpoint(model, optimizer, 1, tmp_path / "c")
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    load_checkpoint(tmp_path / "c", model, optimizer)
    assert torch.rand(3).equal(expected)
