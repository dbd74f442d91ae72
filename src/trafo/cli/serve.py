"""`trafo serve`: OpenAI's HTTP interface and a page for trained models."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from tyro.conf import Positional, arg

from trafo.errors import MissingPackageError

RunPaths = Annotated[
    Positional[tuple[Path, ...]], arg(metavar="RUN ...", help_behavior_hint="(required)")
]


@dataclass(frozen=True, kw_only=True)
class Options:
    """Serve trained models: an OpenAI-compatible HTTP API, and a page at the same address."""

    runs: RunPaths
    """runs, checkpoints, Hugging Face folders, GGUF or llama2.c files"""
    host: str = "127.0.0.1"
    """address to listen on; the default is reached from this machine only"""
    port: int = 8000
    """port to listen on; 0: any free one"""


def run(options: Options) -> None:
    """Load the models, then serve until interrupted."""
    try:
        from trafo.serve.app import create_app
        from trafo.serve.server import run_server
    except ModuleNotFoundError as error:
        what = f"`trafo serve` needs the package {error.name}"
        raise MissingPackageError(what, hint="pip install 'trafo[serve]'") from None
    from trafo.runtime.console import say
    from trafo.serve.models import load_models

    models = load_models(list(options.runs))
    say(
        f"serving {', '.join(each.name for each in models)} at http://{options.host}:{options.port}"
    )
    run_server(create_app(models), options.host, options.port)
