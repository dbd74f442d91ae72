"""Switches of a language model that any shape allows; tests add those that depend on theirs."""

from typing import Any

ONE_SWITCH_EACH: list[dict[str, Any]] = [
    {},
    {"norm_placement": "post"},
    {"norm_placement": "none"},
    {"norm": "layernorm"},
    {"positions": "none"},
    {"positions": "sinusoidal"},
    {"positions": "learned"},
    {"feed_forward": "silu"},
    {"feed_forward": "gelu"},
    {"feed_forward": "relu"},
    {"feed_forward": "relu2"},
    {"tied_head": True},
]
