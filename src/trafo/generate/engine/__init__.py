"""Continuous batching: many requests at once on one model, in one KV cache.

Split by job: `cache` (blocks of keys and values, and who has them), `scheduler` (the sequences, and
what the next step reads), `readable_step` (one step of the model), `engine` (all together), `build`
(the fastest engine for a model).
"""

from trafo.generate.config import EngineConfig
from trafo.generate.engine.build import build_engine
from trafo.generate.engine.engine import Engine

__all__ = ["Engine", "EngineConfig", "build_engine"]
