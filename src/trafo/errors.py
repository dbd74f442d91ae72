"""The errors that trafo raises on purpose. Imports nothing.

One style for all: what was wrong, where, and what would be right. The command line prints the
message alone and exits with code 2; `--debug` adds the traceback.
"""


class TrafoError(Exception):
    """Something the user can mend."""

    def __init__(self, what: str, *, where: str | None = None, hint: str | None = None) -> None:
        self.what = what
        self.where = where
        self.hint = hint
        text = f"{where}: {what}" if where else what
        super().__init__(f"{text}; {hint}" if hint else text)


class ConfigError(TrafoError, ValueError):
    """A setting is unknown, of the wrong type, or does not fit the others."""


class InputError(TrafoError, ValueError):
    """Text or data given to us cannot be used as it is."""


class FormatError(TrafoError, ValueError):
    """A file is not in the format it should be in, or is damaged."""


class MissingPackageError(TrafoError, ImportError):
    """An optional package is needed for what was asked."""


class StorageError(TrafoError, OSError):
    """The disk or folder refused: full, unwritable, missing."""
