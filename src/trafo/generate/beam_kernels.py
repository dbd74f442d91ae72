"""Attention and the choice of continuations in beam search, compiled by numba for this processor.

The keys of step t lie where step t wrote them, for ever: when hypotheses change places, only the
table of ancestors changes. `ancestors[row, t]` is the row that held the row's hypothesis at step t.
The beams of a sentence read the same keys of its source.
"""

import math

import numpy as np
from numba import prange
from numpy.typing import NDArray

from trafo.runtime.kernels import float_subkernel, kernel, parallel_kernel

Floats = NDArray[np.float32]
Doubles = NDArray[np.float64]
Ints = NDArray[np.int64]


@float_subkernel
def _softmax(scores: Floats) -> None:
    """In place, over one head's keys."""
    highest = scores[0]
    for t in range(1, scores.shape[0]):
        highest = max(highest, scores[t])
    for t in range(scores.shape[0]):
        scores[t] = math.exp(scores[t] - highest)
    total = scores[0]
    for t in range(1, scores.shape[0]):
        total += scores[t]
    for t in range(scores.shape[0]):
        scores[t] /= total


@float_subkernel
def _attend(q: Floats, keys: Floats, values: Floats, rows: Ints, heads: int, out: Floats) -> None:
    """softmax(q k / sqrt(d_head)) v of each head, over keys[t, rows[t]], t = 0, 1, ..."""
    size = q.shape[0] // heads
    scale = 1.0 / math.sqrt(size)
    weights = np.empty((heads, rows.shape[0]), q.dtype)
    out[:] = 0
    for t in range(rows.shape[0]):
        key = keys[t, rows[t]]
        for head in range(heads):
            score = out[0]  # zero, of the same type as all else
            for d in range(head * size, (head + 1) * size):
                score += q[d] * key[d]
            weights[head, t] = score * scale
    for head in range(heads):
        _softmax(weights[head])
    for t in range(rows.shape[0]):
        value = values[t, rows[t]]
        for head in range(heads):
            weight = weights[head, t]
            for d in range(head * size, (head + 1) * size):
                out[d] += weight * value[d]


@parallel_kernel
def attend_to_target(
    q: Floats, keys: Floats, values: Floats, ancestors: Ints, heads: int, out: Floats
) -> None:
    """q, out: (rows, d_model); keys, values: (steps, rows, d_model); ancestors: (rows, steps)."""
    for row in prange(q.shape[0]):
        _attend(q[row], keys, values, ancestors[row], heads, out[row])


@parallel_kernel
def attend_to_source(
    q: Floats,
    keys: Floats,
    values: Floats,
    sentences: Ints,
    lengths: Ints,
    heads: int,
    out: Floats,
) -> None:
    """keys, values: (source, sentences, d_model), of which the first `lengths` are real."""
    for row in prange(q.shape[0]):
        same = np.full(lengths[sentences[row]], sentences[row])
        _attend(q[row], keys, values, same, heads, out[row])


@kernel
def best_continuations(
    added: Floats, totals: Doubles, padding: int, best: Doubles, tokens: Ints, parents: Ints
) -> None:
    """The most probable continuations of each sentence, best first; the earlier one if equal.

    added: (sentences * alive, vocab) log-probabilities of the next token, totals: (sentences,
    alive) those of the hypotheses. A place for which nothing is left keeps a probability of zero.
    """
    alive, number = totals.shape[1], best.shape[1]
    best[:], tokens[:], parents[:] = -np.inf, padding, 0
    for sentence in range(totals.shape[0]):
        found = best[sentence]
        for parent in range(alive):
            total, row = totals[sentence, parent], added[sentence * alive + parent]
            least = found[number - 1] - total  # compared with one number in the long loop
            for token in range(row.shape[0]):
                if row[token] > least and token != padding:
                    place = number - 1
                    value = total + row[token]
                    if not value > found[place]:
                        continue
                    while place > 0 and found[place - 1] < value:
                        found[place] = found[place - 1]
                        tokens[sentence, place] = tokens[sentence, place - 1]
                        parents[sentence, place] = parents[sentence, place - 1]
                        place -= 1
                    found[place] = value
                    tokens[sentence, place], parents[sentence, place] = token, parent
                    least = found[number - 1] - total
