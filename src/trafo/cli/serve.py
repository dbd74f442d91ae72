"""`trafo serve`: OpenAI's HTTP interface and a page for trained models."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

from trafo.cli.arguments import only
from trafo.config import Argument, Positional
from trafo.errors import InputError, require_at_least
from trafo.serve.config import ServeConfig

RunPaths = Annotated[Positional[tuple[Path, ...]], Argument(metavar="RUN ...")]

KEY_VARIABLE = "TRAFO_API_KEY"


@dataclass(frozen=True, kw_only=True)
class Options(ServeConfig):
    """Serve trained models: an OpenAI-compatible HTTP API, and a page at the same address."""

    runs: RunPaths
    """runs, checkpoints, Hugging Face folders, GGUF or llama2.c files"""
    api_key: str | None = None
    """API key that clients must send; None: the environment variable TRAFO_API_KEY, or no key"""
    allowed_hosts: tuple[str, ...] = ()
    """host names of the service besides localhost, such as example.org behind a reverse proxy;
    none: only localhost if it listens there, else any"""
    cors_origins: tuple[str, ...] = ()
    """CORS: origins of web pages that may call the service, such as https://example.org"""
    max_prompt_tokens: int | None = None
    """maximum tokens of a prompt; None: the model's context length"""
    requests_per_minute: int | None = None
    """rate limit: requests per minute for each key (without keys: each address); None: no limit"""
    threads: int | None = None
    """CPU threads, a short form of --engine.threads"""

    def __post_init__(self) -> None:
        super().__post_init__()
        require_at_least(1, **{"--threads": self.threads})

    def config(self) -> ServeConfig:
        """The settings of the service alone."""
        config = only(ServeConfig, self)
        engine = replace(config.engine, threads=self.threads or config.engine.threads)
        key = config.api_key or os.environ.get(KEY_VARIABLE) or None
        return replace(config, api_key=key, engine=engine)


def run(options: Options) -> None:
    """Load the models, then serve until interrupted."""
    if not options.runs:
        raise InputError(
            "no run is given", hint="`trafo serve runs/latest`; `trafo runs` lists them"
        )
    from trafo.serve.app import App
    from trafo.serve.models import load_models
    from trafo.serve.server import Server, bind_port

    config = options.config()
    sockets = bind_port(config)
    Server(App(load_models(options.runs, config), config)).run(sockets)
