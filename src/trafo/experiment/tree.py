"""Settings as a tree of dictionaries: dotted keys unfolded, two trees laid over each other."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

Tree = dict[str, Any]


def nested(settings: Mapping[str, Any]) -> Tree:
    """`{"model.d_ff": 8}` as `{"model": {"d_ff": 8}}`."""
    tree: Tree = {}
    for key, value in settings.items():
        *branches, leaf = str(key).split(".")
        at = tree
        for branch in branches:
            at = at.setdefault(branch, {})
        value = nested(value) if isinstance(value, Mapping) else value
        is_branch = isinstance(value, dict) and isinstance(at.get(leaf), dict)
        at[leaf] = merged(at[leaf], value) if is_branch else value
    return tree


def merged(below: Tree, above: Tree) -> Tree:
    """Both trees; where they meet, `above` wins."""
    result = dict(below)
    for key, value in above.items():
        both = isinstance(value, dict) and isinstance(result.get(key), dict)
        result[key] = merged(result[key], value) if both else value
    return result
