"""Settings of the service: where it listens, who may use it, limits."""

from __future__ import annotations

from dataclasses import dataclass, field

from trafo.errors import require, require_at_least
from trafo.generate.config import EngineConfig


@dataclass(frozen=True, kw_only=True)
class ServeConfig:
    """The defaults suit one person on this machine."""

    host: str = "127.0.0.1"
    """address to listen on; the default accepts connections from this machine only"""
    port: int = 8000
    """port to listen on"""
    api_key: str | None = None
    """API key that clients must send; None: the environment variable TRAFO_API_KEY, or no key"""
    allowed_hosts: tuple[str, ...] = ()
    """host names of the service besides localhost, such as example.org behind a reverse proxy;
    none: only localhost if it listens there, else any"""
    cors_origins: tuple[str, ...] = ()
    """CORS: origins of web pages that may call the service, such as https://example.org"""
    max_body_bytes: int = 1_000_000
    """maximum size of a request body, in bytes"""
    max_prompt_tokens: int | None = None
    """maximum tokens of a prompt; None: the model's context length"""
    max_tokens: int = 4096
    """maximum new tokens of a completion"""
    max_choices: int = 64
    """maximum completions of a request: prompts times n"""
    max_logprobs: int = 500_000
    """maximum log-probabilities of an answer: completions times tokens times alternatives"""
    max_queue: int = 256
    """queue length: completions that may wait for a place in the batch"""
    max_seconds: float = 300.0
    """timeout of a request in seconds, including the time in the queue"""
    requests_per_minute: int | None = None
    """rate limit: requests per minute for each key (without keys: each address); None: no limit"""
    shutdown_seconds: float = 10.0
    """seconds that running requests have to finish after SIGTERM or Ctrl-C"""
    follow: bool = False
    """load newer checkpoints of a run as they appear"""
    engine: EngineConfig = field(default_factory=EngineConfig)
    """batching, cache and kernels"""

    def __post_init__(self) -> None:
        counts = ("max_body_bytes", "max_prompt_tokens", "max_tokens", "max_choices", "max_queue")
        for name in (*counts, "max_logprobs", "requests_per_minute"):
            require_at_least(1, **{name: getattr(self, name)})
        require_at_least(0, max_seconds=self.max_seconds, shutdown_seconds=self.shutdown_seconds)
        require(0 <= self.port < 65536, f"port is {self.port}", "it must be from 0 to 65535")
        require(self.api_key != "", "api_key is empty", "give a key, or none at all")
