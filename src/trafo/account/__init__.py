"""Accounting: parameters, FLOPs, memory and time of a model, predicted and measured.

    result = account(GPT2_PRESETS["gpt2-xl"], Workload(seq=1024, batch_size=8))
    result.parameters, result.forward_flops, predict_memory(result, "adamw").peak

Read in this order: workload (what is run), dry_run (how it is counted), account, memory; then
measurement, which compares predictions with a real step, and complexity.
"""

from trafo.account.account import Account, Speed, account, predict_speed, training_flops
from trafo.account.memory import (
    MemoryUse,
    Update,
    find_largest_batch,
    predict_memory,
    predict_update,
)
from trafo.account.workload import Workload

__all__ = [
    "Account",
    "MemoryUse",
    "Speed",
    "Update",
    "Workload",
    "account",
    "find_largest_batch",
    "predict_memory",
    "predict_speed",
    "predict_update",
    "training_flops",
]
