"""Large numbers as people read them: `4.513 TFLOP`, `22.3 %`."""

from __future__ import annotations

_UNITS = ("", "k", "M", "G", "T", "P", "E", "Z", "Y")


def format_flops(flops: float) -> str:
    """Four figures and a unit: `29.78 GFLOP`, `1.386 PFLOP`."""
    value, power = float(flops), 0
    while abs(value) >= 999.95 and power < len(_UNITS) - 1:
        value, power = value / 1000, power + 1
    if power == 0:
        return f"{value:.0f} FLOP"
    digits = 3 if abs(value) < 9.9995 else 2 if abs(value) < 99.995 else 1
    return f"{value:.{digits}f} {_UNITS[power]}FLOP"


def format_share(part: float, whole: float) -> str:
    """`22.3 %`; empty for zero."""
    return f"{100 * part / whole:.1f} %" if part and whole else ""


def format_days(seconds: float) -> str:
    """`1,204 days`, for long durations."""
    return f"{seconds / 86_400:,.0f} days"
