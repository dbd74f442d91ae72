"""`trafo train`: text in, a trained model out."""

from __future__ import annotations

from trafo.config import load, parse_flags
from trafo.train.auto import choose
from trafo.train.config import TrainConfig as Options

__all__ = ["Options", "parse", "run"]

_CONFIG = "--config"


def parse(arguments: list[str], prog: str) -> Options:
    """With `--config FILE` the file's settings, else such as suit the text; then the flags."""
    from trafo.cli.config_flag import take_value

    path = take_value(arguments, _CONFIG)
    if path is not None:
        return load(Options, path, arguments, prog=prog)
    asked = parse_flags(Options, arguments, prog=prog)
    return parse_flags(Options, arguments, default=choose(asked), prog=prog)


def run(options: Options) -> int:
    """Train, and say how it went."""
    from trafo.train.start import train

    return train(options)
