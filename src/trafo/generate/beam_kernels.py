"""The choice of continuations in beam search, compiled by numba."""

import numpy as np
from numpy.typing import NDArray

from trafo.runtime.kernels import kernel

Floats = NDArray[np.float32]
Doubles = NDArray[np.float64]
Ints = NDArray[np.int64]


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
