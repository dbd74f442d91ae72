"""Optimizer and learning rate schedule: the settings, and what is built from them."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal, get_args

from torch.nn import Module, Parameter
from torch.optim import Optimizer

from trafo.config import Argument
from trafo.errors import require
from trafo.optim.adamw import AdamW
from trafo.optim.muon import Muon
from trafo.optim.optimizer import SGD
from trafo.optim.schedule import (
    constant,
    inverse_square_root,
    warmup_cosine,
    warmup_stable_decay,
)

OptimizerName = Literal["adamw", "muon", "sgd"]
ScheduleName = Literal["cosine", "linear", "inverse-square-root", "constant"]


@dataclass(frozen=True, kw_only=True)
class ScheduleConfig:
    """Learning rate schedule: a factor for each step, which multiplies every learning rate."""

    name: ScheduleName = "cosine"
    """cosine decay; linear: warmup-stable-decay (WSD) to zero; inverse-square-root: d_model^-0.5 *
    step^-0.5 as in Vaswani et al. (2017), where learning rates are 1 or less; or constant"""
    warmup: float = 0.02
    """warm-up steps, as a fraction of all steps: linear, from zero to the peak learning rate"""
    floor: float = 0.1
    """where the cosine decay ends, one step after the last, as a fraction of the peak; linear ends
    there at zero"""
    decay: float = 0.5
    """decay steps of linear, as a fraction of all steps"""

    def __post_init__(self) -> None:
        for name in ("warmup", "floor", "decay"):
            value = getattr(self, name)
            require(0 <= value <= 1, f"schedule.{name} is {value!r}", "it must be from 0 to 1")
        require(
            self.name != "linear" or self.warmup + self.decay <= 1,
            f"schedule.warmup + schedule.decay is {self.warmup + self.decay!r}",
            "it must be at most 1",
        )

    def factor(self, step: int, steps: int, d_model: int) -> float:
        """The factor of step 0, 1, ... `steps` - 1, never zero, so that every step learns.

        The warm-up begins one step before the first, and the decay ends one step after the last.
        """
        t, end = step + 1, steps + 1
        warmup = round(self.warmup * steps)
        if self.name == "cosine":
            return warmup_cosine(t, 1.0, self.floor, warmup, end)
        if self.name == "linear":
            decay = min(round(self.decay * steps), steps - warmup)
            return warmup_stable_decay(t, 1.0, warmup, decay + 1, end)
        if self.name == "inverse-square-root":
            return inverse_square_root(t, d_model, max(warmup, 1))
        return constant(t, 1.0)


@dataclass(frozen=True, kw_only=True)
class OptimizerConfig:
    """Optimizer: peak learning rates, weight decay, gradient clipping and the schedule."""

    name: OptimizerName = "adamw"
    """optimizer; muon: Muon for the matrices inside the layers, AdamW for all else"""
    lr: Annotated[float, Argument(aliases=("--lr",))] = 1e-3
    """peak learning rate of AdamW and SGD"""
    embedding_lr: float | None = None
    """peak learning rate of the embeddings; None: lr"""
    head_lr: float | None = None
    """peak learning rate of the output layer (LM head); None: lr"""
    muon_lr: float = 0.02
    """peak learning rate of Muon"""
    muon_momentum: float = 0.95
    """Muon momentum (Nesterov)"""
    betas: tuple[float, float] = (0.9, 0.95)
    """AdamW beta1, beta2: decay rates of the first and second moment of the gradient"""
    eps: float = 1e-8
    """AdamW epsilon, added to the square root of the second moment"""
    weight_decay: float = 0.1
    """decoupled weight decay of AdamW and Muon; not for vectors (norms, biases)"""
    max_grad_norm: float | None = 1.0
    """gradient clipping (global norm): the largest norm of all gradients together; None: off"""
    schedule: ScheduleConfig = field(default_factory=ScheduleConfig)

    def __post_init__(self) -> None:
        require(
            self.name in get_args(OptimizerName),
            f"optimizer.name is {self.name!r}",
            "it must be adamw, muon, sgd",
        )
        for name in ("lr", "embedding_lr", "head_lr", "muon_lr", "eps", "weight_decay"):
            value = getattr(self, name)
            require(
                value is None or 0 <= value < math.inf,
                f"optimizer.{name} is {value!r}",
                "it must be at least 0, and finite",
            )
        for name, shares in (("betas", self.betas), ("muon_momentum", (self.muon_momentum,))):
            is_right = all(0 <= share < 1 for share in shares)
            require(
                is_right,
                f"optimizer.{name} is {getattr(self, name)!r}",
                "it must be at least 0 and below 1",
            )
        norm = self.max_grad_norm
        require(
            norm is None or norm > 0, f"optimizer.max_grad_norm is {norm!r}", "it must be above 0"
        )


def build_optimizers(model: Module, config: OptimizerConfig) -> list[Optimizer]:
    """Build one optimizer, or Muon and AdamW for what Muon does not take, at peak rates."""
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
        group["peak_lr"] = group["lr"]
    return optimizers


def set_rates(optimizers: Iterable[Optimizer], factor: float) -> None:
    """Set every learning rate to `factor` times its peak."""
    for group in _groups(optimizers):
        group["lr"] = factor * group["peak_lr"]


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
