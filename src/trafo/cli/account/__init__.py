"""`trafo account`: what models cost."""

from trafo.cli.account.command import Options, run

__all__ = ["Options", "run"]
