"""Continuous batching: many requests at once on one model, in one KV cache.

Split by job: `blocks` (allocation of the cache), `cache` (its keys and values), `sequence` (one
sample of a request), `scheduler` (what the next step reads), `readable_step` (one step of the
model), `engine` (all together), `build` (the fastest engine for a model).
"""

from trafo.generate.config import EngineConfig
from trafo.generate.engine.build import build_engine
from trafo.generate.engine.engine import Engine

__all__ = ["Engine", "EngineConfig", "build_engine"]
