"""Runs the application until it is told to stop."""

from __future__ import annotations

import uvicorn
from starlette.applications import Starlette


def run_server(app: Starlette, host: str, port: int) -> None:
    """Serve until SIGINT or SIGTERM."""
    config = uvicorn.Config(
        app, host=host, port=port, log_level="warning", access_log=False, lifespan="on"
    )
    uvicorn.Server(config).run()
