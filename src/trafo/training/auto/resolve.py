"""Settings of the user over automatic ones, so that the two fit together."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from trafo.config import build
from trafo.errors import require
from trafo.models import TransformerLMConfig
from trafo.runtime.console import say
from trafo.training.auto.pairs import choose_for_pairs, describe_for_pairs
from trafo.training.auto.text import choose, describe
from trafo.training.config import MachineConfig, TrainConfig
from trafo.training.distributed import is_first_process

_LARGEST_HEAD = 256
_FACTS = ("text", "pairs", "validation", "budget", "architecture", "data", "machine")
"""the settings that automatic ones depend on: the data, the machine and the time"""
_BRANCHES = {
    "model": "it is for language models; translation models have --encoder-decoder or --recurrent",
    "gpt2": "add --architecture gpt2, or set --model",
    "encoder_decoder": "it is for translation models, which learn from --pairs",
    "recurrent": "add --pairs and --architecture recurrent",
}
"""where the settings of each model are, and what to do if it is another that is trained"""
_CHOSEN = {
    "": "steps batch_size architecture label_smoothing optimizer.name optimizer.lr "
    "optimizer.schedule.name machine.dtype",
    "model.": "vocab_size context_length d_model num_layers num_heads zero_init_outputs",
    "encoder_decoder.": "source_vocab_size target_vocab_size d_model num_encoder_layers "
    "num_decoder_layers num_heads d_ff norm_placement shared_embeddings dropout",
    "recurrent.": "source_vocab_size target_vocab_size d_model d_hidden dropout",
}
AUTOMATIC = frozenset(prefix + name for prefix, names in _CHOSEN.items() for name in names.split())
"""the settings that are chosen, so that their defaults apply only with a config file"""


def resolve_config(overrides: Mapping[str, Any]) -> TrainConfig:
    """Choose settings that suit the data and the machine, and put the user's over them.

    `overrides` is a tree of converted values, see `trafo.config.convert`. Only the result is
    checked: what the user sets may be valid only together with what is chosen, and vice versa.
    """
    facts = {name: value for name, value in overrides.items() if name in _FACTS}
    asked = build(TrainConfig, facts, TrainConfig(machine=MachineConfig(dtype="auto")))
    if asked.pairs:
        chosen = choose_for_pairs(asked)
    else:
        chosen = choose(asked)
        model = fit_heads(chosen.model, overrides.get("model", {}))
        chosen = dataclasses.replace(chosen, model=model)
    config = build(TrainConfig, overrides, chosen)
    for branch, hint in _BRANCHES.items():
        what = f"--{branch.replace('_', '-')} is set, but the model is {config.architecture}"
        require(branch not in overrides or branch == config.branch, what, hint)
    return config


def print_settings(config: TrainConfig) -> None:
    """Print the settings that decide what is learned: those chosen, and those set by the user."""
    if is_first_process():
        words = describe_for_pairs(config) if config.pairs else describe(config)
        say(f"settings {words}; any flag changes them, --show-config prints them all")


def fit_heads(chosen: TransformerLMConfig, overrides: Mapping[str, Any]) -> TransformerLMConfig:
    """`chosen`, for the hidden size of `overrides`, with heads of about the same size."""
    d_model, kv_heads = overrides.get("d_model", 0), overrides.get("num_kv_heads") or 1
    if d_model in (chosen.d_model, 0) or overrides.get("head_size") is not None:
        return chosen
    even = range(2, _LARGEST_HEAD + 1, 2)  # as RoPE needs them
    fitting = [size for size in even if d_model % (size * kv_heads) == 0]
    if not fitting:
        return chosen  # then it is refused, in words
    size = min(fitting, key=lambda size: abs(size - chosen.d_head))
    return dataclasses.replace(chosen, d_model=d_model, num_heads=d_model // size)
