"""`trafo account`: what models cost."""

from trafo.cli.account.command import Questions as Options
from trafo.cli.account.command import parse, run

__all__ = ["Options", "parse", "run"]
