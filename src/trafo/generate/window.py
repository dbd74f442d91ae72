"""The sliding window: which ids a model sees when a text is longer than its context.

The text grows until the context of C tokens is full. The next token then starts a new window with
the newest K tokens, itself included, which grows until it is full again, and so on. So a window
begins at a multiple of C + 1 - K, and where it begins depends only on the number of ids: continuing
a text gives the same as not stopping. Sliding by one token each time (K = C) sees the most context,
but every step then costs a full forward pass: positions are counted from the window's start, so no
key in the KV cache would stay valid.
"""

from __future__ import annotations


def window_start(num_ids: int, context_length: int, kept_share: float) -> int:
    """Where the window of a text of `num_ids` ids begins; K is this share of C, at least 1."""
    kept = min(context_length, max(1, int(context_length * kept_share)))
    overhang = max(0, num_ids - context_length)
    step = context_length + 1 - kept
    return -(-overhang // step) * step
