"""Hyperparameters that make no sense are refused before any step is made."""

from trafo import errors


def require(is_right: bool, name: str, value: object, rule: str) -> None:
    """Raise if a hyperparameter is wrong (ConfigError is a ValueError)."""
    errors.require(is_right, f"{name} is {value!r}", f"it must be {rule}")
