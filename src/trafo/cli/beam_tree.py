"""The hypotheses of a beam search as a tree in the terminal, with the best one in bold."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from rich.text import Text
from rich.tree import Tree

from trafo.generate.beam_config import Hypothesis


def beam_tree(
    sentence: str,
    steps: Sequence[Sequence[Hypothesis]],
    best: Hypothesis,
    word: Callable[[int], str],
) -> Tree:
    """Every hypothesis that was kept at a step is a node below the one that it extends.

    A node shows its token and the log-probability up to it; the translation is bold.
    """
    root = Tree(Text(sentence))
    nodes: dict[tuple[int, ...], Tree] = {(): root}
    for kept in steps:
        for ids, logprob, _ in kept:
            wins = best.ids[: len(ids)] == ids
            label = Text(f"{word(ids[-1])}  {logprob:.2f}", style="bold" if wins else "dim")
            nodes[ids] = nodes[ids[:-1]].add(label)
    return root
