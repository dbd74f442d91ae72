"""Accounting: parameters, FLOPs, memory and time of a model, predicted and measured.

    result = account(GPT2_PRESETS["gpt2-xl"], Workload(seq=1024, batch_size=8))
    result.parameters, result.forward_flops, memory(result, "adamw").peak

Read in this order: parts (what is counted), workload (what is run), dry_run (how it is counted),
account, optimizer, memory; then measurement, which compares predictions with a real step.
"""

from trafo.account.account import Account, Speed, account, speed
from trafo.account.formula import training_flops
from trafo.account.memory import Memory, largest_batch, memory
from trafo.account.optimizer import Update, update
from trafo.account.workload import Workload

__all__ = [
    "Account",
    "Memory",
    "Speed",
    "Update",
    "Workload",
    "account",
    "largest_batch",
    "memory",
    "speed",
    "training_flops",
    "update",
]
