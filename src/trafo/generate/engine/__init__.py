"""Continuous batching: many requests at once on one model, in one KV cache.

Split by job: `blocks` (who owns which part of the cache), `cache` (the numbers in it), `sequence`
(one sample of a request), `scheduler` (what is read next), `readable_step` (one step of the model),
`engine` (all of it together).
"""

from trafo.generate.config import EngineConfig
from trafo.generate.engine.build import build_engine
from trafo.generate.engine.engine import Engine

__all__ = ["Engine", "EngineConfig", "build_engine"]
