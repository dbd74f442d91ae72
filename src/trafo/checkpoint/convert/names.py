"""Names of tensors: which of ours is which of theirs.

A table holds pairs (ours, theirs); `{i}` in both stands for the number of the layer.
"""

from collections.abc import Mapping

NameTable = tuple[tuple[str, str], ...]


def expand(table: NameTable, num_layers: int) -> dict[str, str]:
    """{ours: theirs} with the layers written out."""
    names = {}
    for ours, theirs in table:
        if "{i}" not in ours:
            names[ours] = theirs
            continue
        for i in range(num_layers):
            names[ours.replace("{i}", str(i))] = theirs.replace("{i}", str(i))
    return names


def with_biases(table: NameTable) -> NameTable:
    """The same table for weights and for biases."""
    return tuple(
        (f"{ours}.{part}", f"{theirs}.{part}")
        for ours, theirs in table
        for part in ("weight", "bias")
    )


def with_weights(table: NameTable) -> NameTable:
    """The same table for weights only."""
    return tuple((f"{ours}.weight", f"{theirs}.weight") for ours, theirs in table)


def first_missing(wanted: Mapping[str, str], present: Mapping[str, object]) -> str | None:
    """The first of their names that a file should hold and does not."""
    return next((theirs for theirs in wanted.values() if theirs not in present), None)
