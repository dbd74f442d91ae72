"""The number of torch's threads: as asked for, or chosen by timing the work."""

from __future__ import annotations

import torch

from trafo.runtime.threads import ThreadChooser


def torch_threads(number: int | None = None) -> ThreadChooser:
    """Use `number` threads from now on, or find the best number by trying if None.

    Results do not depend on it beyond rounding.
    """
    if number is not None:
        torch.set_num_threads(number)
        return ThreadChooser(1, torch.set_num_threads)
    return ThreadChooser(torch.get_num_threads(), torch.set_num_threads)
