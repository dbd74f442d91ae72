"""What a model costs: parameters, FLOPs, memory, time; predicted, then measured.

    result = account(GPT2_PRESETS["gpt2-xl"], Workload(seq=1024, batch_size=8))
    result.parameters, result.forward_flops, memory(result, "adamw").peak

Read in this order: parts (what is counted), workload, layers and attention (what each part costs),
causal_lm, encoder_decoder, recurrent (how models are made of them), model, optimizer, tide (the
peak of memory), clock (time); then measurement, which holds predictions to a real step.
"""

from trafo.account.clock import Speed, speed
from trafo.account.measurement import Measurement, Shape, measure
from trafo.account.model import Account, account
from trafo.account.optimizer import OptimizerName, Update, update
from trafo.account.parts import Block, Component, Kept, MatrixProduct, Weight
from trafo.account.tide import Memory, largest_batch, memory
from trafo.account.workload import Phase, Workload

__all__ = [
    "Account",
    "Block",
    "Component",
    "Kept",
    "MatrixProduct",
    "Measurement",
    "Memory",
    "OptimizerName",
    "Phase",
    "Shape",
    "Speed",
    "Update",
    "Weight",
    "Workload",
    "account",
    "largest_batch",
    "measure",
    "memory",
    "speed",
    "update",
]
