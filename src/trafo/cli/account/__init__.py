"""`trafo account`: what models cost."""

from trafo.cli.account.command import Options, parse, run

__all__ = ["Options", "parse", "run"]
