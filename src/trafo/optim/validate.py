"""Hyperparameters that make no sense are refused before any step is made."""

from trafo.errors import ConfigError


def require(is_right: bool, name: str, value: object, rule: str) -> None:
    """Raise if a hyperparameter is wrong (ConfigError is a ValueError)."""
    if not is_right:
        raise ConfigError(f"{name} is {value!r}", hint=f"it must be {rule}")
