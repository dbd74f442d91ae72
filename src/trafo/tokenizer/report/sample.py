"""The beginning of a text."""

from __future__ import annotations

from trafo.tokenizer.reading.records import Errors
from trafo.tokenizer.reading.sources import Paths, open_sources


def first_characters(
    inputs: Paths, number: int, *, field: str = "text", errors: Errors = "strict"
) -> str:
    """At most `number` characters of the first file that is not empty."""
    for source in open_sources(inputs, field, errors):
        for block in source.blocks(block_size=4 * number + 4):  # a character has up to 4 bytes
            return block.data.decode("utf-8", errors="replace")[:number]
    return ""
