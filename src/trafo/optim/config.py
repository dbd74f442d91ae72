"""Which optimizer with which rates, and how the rates change over a run."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from torch.nn import Module, Parameter
from torch.optim import Optimizer

from trafo.optim.adamw import AdamW
from trafo.optim.muon import Muon
from trafo.optim.schedule import (
    constant,
    inverse_square_root,
    warmup_cosine,
    warmup_stable_decay,
)
from trafo.optim.sgd import SGD
from trafo.optim.validate import require

OptimizerName = Literal["adamw", "muon", "sgd"]
ScheduleName = Literal["cosine", "linear", "inverse-square-root", "constant"]


@dataclass(frozen=True, kw_only=True)
class ScheduleConfig:
    """How learning rates change: each is multiplied by a factor that depends on the step."""

    name: ScheduleName = "cosine"
    """cosine and linear fall to the floor at the end of the run; linear first stays at the top"""
    warmup: float = 0.02
    """share of the steps in which the rate rises from zero to the top"""
    floor: float = 0.1
    """where a cosine ends, as a share of the top; linear ends at zero"""
    decay: float = 0.5
    """share of the steps in which linear falls"""

    def __post_init__(self) -> None:
        for name in ("warmup", "floor", "decay"):
            value = getattr(self, name)
            require(0 <= value <= 1, f"schedule.{name}", value, "from 0 to 1")
        require(
            self.name != "linear" or self.warmup + self.decay <= 1,
            "schedule.warmup + schedule.decay",
            self.warmup + self.decay,
            "at most 1",
        )

    def factor(self, step: int, steps: int, d_model: int) -> float:
        """What the rates of step 0, 1, ... `steps` - 1 are multiplied by. The last is the floor."""
        t = step + 1  # a first step at rate zero would do nothing
        warmup = round(self.warmup * steps)
        if self.name == "cosine":
            return warmup_cosine(t, 1.0, self.floor, warmup, steps)
        if self.name == "linear":
            decay = min(round(self.decay * steps), steps - warmup)
            return warmup_stable_decay(t, 1.0, warmup, decay, steps)
        if self.name == "inverse-square-root":
            return inverse_square_root(t, d_model, max(warmup, 1))
        return constant(t, 1.0)


@dataclass(frozen=True, kw_only=True)
class OptimizerConfig:
    """The optimizer and the top of its learning rates."""

    name: OptimizerName = "adamw"
    """muon takes the matrices inside the layers and leaves the rest to adamw"""
    lr: float = 1e-3
    """learning rate of adamw and sgd"""
    embedding_lr: float | None = None
    """learning rate of the embeddings, if it is another one"""
    head_lr: float | None = None
    """learning rate of the output layer, if it is another one"""
    muon_lr: float = 0.02
    """learning rate of muon"""
    muon_momentum: float = 0.95
    """how much of muon's direction stays from step to step"""
    betas: tuple[float, float] = (0.9, 0.95)
    """how much of adamw's means of the gradient and its square stays from step to step"""
    eps: float = 1e-8
    """added to the root of adamw's second mean"""
    weight_decay: float = 0.1
    """share of the learning rate by which matrices shrink in each step; vectors do not"""
    max_grad_norm: float | None = 1.0
    """gradients longer than this are shortened; None leaves them"""
    schedule: ScheduleConfig = field(default_factory=ScheduleConfig)

    def __post_init__(self) -> None:
        require(
            self.name in get_args(OptimizerName), "optimizer.name", self.name, "adamw, muon, sgd"
        )
        for name in ("lr", "embedding_lr", "head_lr", "muon_lr", "eps", "weight_decay"):
            value = getattr(self, name)
            require(value is None or value >= 0, f"optimizer.{name}", value, "at least 0")
        for name, shares in (("betas", self.betas), ("muon_momentum", (self.muon_momentum,))):
            is_right = all(0 <= share < 1 for share in shares)
            require(is_right, f"optimizer.{name}", getattr(self, name), "at least 0 and below 1")
        norm = self.max_grad_norm
        require(norm is None or norm > 0, "optimizer.max_grad_norm", norm, "above 0")


def build_optimizers(model: Module, config: OptimizerConfig) -> list[Optimizer]:
    """One optimizer, or Muon and the one for what it does not take. Rates are at their top."""
    groups = _sort_parameters(model)
    matrices = groups.pop("matrices")
    optimizers: list[Optimizer] = []
    if config.name == "muon":
        optimizers.append(
            Muon(
                matrices,
                lr=config.muon_lr,
                momentum=config.muon_momentum,
                weight_decay=config.weight_decay,
            )
        )
    else:
        groups["matrices"] = matrices
    rates = {"embeddings": config.embedding_lr, "head": config.head_lr}
    rest = [
        {
            "params": parameters,
            "lr": config.lr if rates.get(name) is None else rates[name],
            "weight_decay": 0.0 if name == "vectors" else config.weight_decay,
        }
        for name, parameters in groups.items()
        if parameters
    ]
    if config.name == "sgd":
        rest = [{"params": group["params"], "lr": group["lr"]} for group in rest]
        optimizers.append(SGD(rest, lr=config.lr))
    else:
        optimizers.append(AdamW(rest, lr=config.lr, betas=config.betas, eps=config.eps))
    for group in _groups(optimizers):
        group["top_lr"] = group["lr"]
    return optimizers


def set_rates(optimizers: Iterable[Optimizer], factor: float) -> None:
    """Every rate becomes `factor` times its top."""
    for group in _groups(optimizers):
        group["lr"] = factor * group["top_lr"]


def _sort_parameters(model: Module) -> dict[str, list[Parameter]]:
    """Embeddings, the head, vectors (norms, biases), and the matrices inside the layers."""
    groups: dict[str, list[Parameter]] = {
        "matrices": [],
        "embeddings": [],
        "head": [],
        "vectors": [],
    }
    for name, parameter in model.named_parameters():
        if parameter.ndim < 2:
            kind = "vectors"
        elif "embeddings" in name:
            kind = "embeddings"
        else:
            kind = "head" if name.startswith("lm_head") else "matrices"
        groups[kind].append(parameter)
    return groups


def _groups(optimizers: Iterable[Optimizer]) -> Iterable[dict[str, Any]]:
    return [group for optimizer in optimizers for group in optimizer.param_groups]
