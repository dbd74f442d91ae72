"""What a model costs: parameters, FLOPs, memory, time; predicted, then measured.

account(GPT2_PRESETS["gpt2-xl"], Workload(seq=1024, batch_size=8)).forward_flops
"""

from trafo.account.account import Account, account
from trafo.account.parts import Block, Component, Kept, MatrixProduct, Weight
from trafo.account.workload import Phase, Workload

__all__ = [
    "Account",
    "Block",
    "Component",
    "Kept",
    "MatrixProduct",
    "Phase",
    "Weight",
    "Workload",
    "account",
]
