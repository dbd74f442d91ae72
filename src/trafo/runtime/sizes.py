"""Sizes and durations as people write them: `80GB`, `512MiB`, `10m`, `1h30m`.

Text or a number comes in, bytes or seconds go out, and back again for printing. As in the SI,
`k`, `M`, `G` and `T` are powers of 1000; `Ki`, `Mi`, `Gi` and `Ti` are powers of 1024.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

from trafo.errors import ConfigError, require

_LARGEST = 1e18  # bytes or seconds: more is a typing mistake, or an attack

_DECIMAL = {"": 0, "k": 1, "m": 2, "g": 3, "t": 4, "p": 5}
_BYTES_PER_UNIT = {letter: 1000**power for letter, power in _DECIMAL.items()} | {
    f"{letter}i": 1024**power for letter, power in _DECIMAL.items() if letter
}
_NUMBER = r"\d+(?:\.\d*)?(?:e[+-]?\d+)?"
_SIZE = re.compile(rf"({_NUMBER})\s*([kmgtp]?i?)b?", re.IGNORECASE)

_SECONDS_PER_UNIT = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1, "m": 60, "h": 3600, "d": 86400}
_DURATION_PART = re.compile(rf"(\d+(?:\.\d*)?)\s*({'|'.join(_SECONDS_PER_UNIT)})\s*")


def parse_size(size: str | int | float) -> int:
    """Read bytes from `80GB`, `512 MiB`, `1e9` or a plain number."""
    match = _SIZE.fullmatch(str(size).strip())
    unit = match[2].lower() if match else None
    if match is None or unit not in _BYTES_PER_UNIT:
        raise ConfigError(f"{size!r} is not a size", hint="write it like 80GB, 512MiB or 1e9")
    # Whole numbers take the exact way: floats lose bytes above 2**53.
    number = int(match[1]) if match[1].isdigit() else float(match[1])
    shown = f"{size!s:.30}..." if len(str(size)) >= 40 else size
    require(number <= _LARGEST, f"the size {shown} is too large")
    return int(number * _BYTES_PER_UNIT[unit])


def format_size(num_bytes: int | float) -> str:
    """Write bytes with three figures: `999 B`, `1.50 kB`, `80.0 GB`."""
    return " ".join(_figures(num_bytes, ("B", "kB", "MB", "GB", "TB", "PB")))


def parse_duration(duration: str | int | float) -> float:
    """Read seconds from `10m`, `1h30m`, `1.5 h`, `250ms` or a plain number of seconds."""
    text = str(duration).strip().lower()
    if re.fullmatch(_NUMBER, text):
        seconds = float(text)
    else:
        is_known = re.fullmatch(rf"(?:{_DURATION_PART.pattern})+", text) is not None
        require(is_known, f"{duration!r} is not a duration", "write it like 90s, 10m or 1h30m")
        parts = _DURATION_PART.findall(text)
        seconds = math.fsum(float(number) * _SECONDS_PER_UNIT[unit] for number, unit in parts)
    require(seconds <= _LARGEST, f"a duration of {seconds:.3g} s is too long")
    return seconds


def format_duration(seconds: float) -> str:
    """Write `31 us`, `4.2 ms`, `350 ms`, `4.2 s`, `3m 05s`, `1h 02m`, `2d 03h`, and 0 as `0 ms`."""
    if seconds < 0.9995:
        in_time = (unit for unit in ("ms", "us") if seconds >= 0.9995 * _SECONDS_PER_UNIT[unit])
        unit = next(in_time, "ns" if seconds > 0 else "ms")
        value = seconds / _SECONDS_PER_UNIT[unit]
        return f"{value:.{int(0 < value < 9.95)}f} {unit}"
    if seconds < 59.95:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes}m {rest:02d}s"
    hours, minutes = divmod(minutes, 60)
    if hours < 24:
        return f"{hours}h {minutes:02d}m"
    days, hours = divmod(hours, 24)
    return f"{days}d {hours:02d}h"


def format_count(number: int | float) -> str:
    """Write a number with three figures: `999`, `1.50k`, `124M`, `1.56B`."""
    return "".join(_figures(number, ("", "k", "M", "B", "T")))


def format_flops(flops: int | float) -> str:
    """Write FLOPs with four figures: `29.78 GFLOP`, `1.386 PFLOP`."""
    return " ".join(_figures(flops, [f"{letter}FLOP" for letter in ("", *"kMGTPEZY")], 4))


def format_rate(per_second: float, unit: str) -> str:
    """Write `1,234 steps/s`, `2.5 steps/s`, and of slow work what one takes: `4.2 s per step`."""
    if per_second >= 9.95:
        return f"{per_second:,.0f} {unit}/s"
    if per_second >= 1:
        return f"{per_second:.1f} {unit}/s"
    if per_second > 0:
        return f"{format_duration(1 / per_second)} per {unit.removesuffix('s')}"
    return f"0 {unit}/s"


def _figures(value: float, units: Sequence[str], figures: int = 3) -> tuple[str, str]:
    """`1.50`, `15.0`, `150` and the unit, each a thousand times the one before it.

    999.5 would be rounded to 1000: it belongs to the next unit.
    """
    power = 0
    while abs(value) >= 1000 - 0.5 * 10 ** (3 - figures) and power < len(units) - 1:
        value, power = value / 1000, power + 1
    before = 1 + sum(abs(value) >= 10**n - 0.5 * 10 ** (n - figures) for n in (1, 2))
    return f"{value:.{figures - before if power else 0}f}", units[power]
