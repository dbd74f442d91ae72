"""`trafo account`: what models cost."""

from trafo.cli.account.command import parse, run

__all__ = ["parse", "run"]
