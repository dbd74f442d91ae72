"""What the user asks for, put over the automatic settings so that the two fit together."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

from trafo.errors import require
from trafo.models import TransformerLMConfig
from trafo.training.auto.pairs import choose_for_pairs, print_pair_settings
from trafo.training.auto.text import choose, print_settings
from trafo.training.config import MachineConfig, TrainConfig

C = TypeVar("C", bound=TrainConfig)

_LARGEST_HEAD = 256
_BRANCHES = {
    "model": "it is for language models; translation models have --encoder-decoder or --recurrent",
    "gpt2": "add --architecture gpt2, or set --model",
    "encoder_decoder": "it is for translation models, which learn from --pairs",
    "recurrent": "add --pairs and --architecture recurrent",
}
"""where the settings of each model are, and what to do if it is another that is trained"""


@dataclass(frozen=True, kw_only=True)
class UncheckedModel(TransformerLMConfig):
    """The shape of a TransformerLM and its switches."""

    def __post_init__(self) -> None:
        """No checks: what the user has not set is about to be chosen to fit."""


@dataclass(frozen=True, kw_only=True)
class Asked(TrainConfig):
    """A config of which only some settings were set by the user."""

    model: UncheckedModel = field(default_factory=UncheckedModel)
    machine: MachineConfig = field(default_factory=lambda: MachineConfig(dtype="auto"))

    @classmethod
    def over(cls, config: TrainConfig) -> Asked:
        """The settings of `config`, for the user's to be put over them."""
        return cls(**{**vars(config), "model": UncheckedModel(**vars(config.model))})


Asked.__doc__ = TrainConfig.__doc__  # which `trafo train --help` shows


class Given(Protocol):
    """Puts the settings of the user over those of a config."""

    def __call__(self, base: C, /) -> C:
        """The same class of config with these settings."""


def settle(given: Given) -> TrainConfig:
    """Automatic settings for the files that the user gives, and theirs over them; printed once."""
    asked = given(Asked())
    if asked.pairs:
        config = given(choose_for_pairs(asked))
        _require_used(asked, config)
        print_pair_settings(config)
    else:
        chosen = choose(asked)
        model = with_fitting_heads(chosen.model, given(Asked.over(chosen)).model)
        config = given(dataclasses.replace(chosen, model=model))
        _require_used(asked, config)
        print_settings(config)
    return config


def _require_used(asked: TrainConfig, config: TrainConfig) -> None:
    """Refuse settings of a model that is not trained."""
    for branch, hint in _BRANCHES.items():
        is_set = getattr(asked, branch) != getattr(Asked(), branch)
        what = f"--{branch.replace('_', '-')} is set, but the model is {config.architecture}"
        require(not is_set or branch == config.branch, what, hint)


def with_fitting_heads(
    chosen: TransformerLMConfig, wanted: TransformerLMConfig
) -> TransformerLMConfig:
    """`chosen`, for the hidden size that is wanted, with heads of about the same size."""
    d_model, kv_heads = wanted.d_model, wanted.num_kv_heads or 1
    if d_model in (chosen.d_model, 0) or wanted.head_size is not None:
        return chosen
    even = range(2, _LARGEST_HEAD + 1, 2)  # as RoPE needs them
    fitting = [size for size in even if d_model % (size * kv_heads) == 0]
    if not fitting:
        return chosen  # then it is refused, in words
    size = min(fitting, key=lambda size: abs(size - chosen.d_head))
    return dataclasses.replace(chosen, d_model=d_model, num_heads=d_model // size)
