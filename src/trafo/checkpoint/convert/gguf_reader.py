"""A GGUF file: fields by key, tensors by name. No torch.

The `gguf` package parses the file and dequantises what llama.cpp has quantised.
"""

from __future__ import annotations

from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from trafo.errors import FormatError, missing_package

Floats = np.ndarray[Any, np.dtype[np.float32]]


def gguf_package() -> ModuleType:
    """The optional package, or an error that says how to install it."""
    try:
        import gguf
    except ImportError as error:
        raise missing_package(error.name or "gguf", "GGUF files need") from error
    return gguf  # type: ignore[no-any-return]


def _reader(package: ModuleType, path: Path) -> Any:
    """The package's, which goes on after the end of a file that says it has 2^60 strings."""

    class Reader(package.GGUFReader):  # type: ignore[name-defined, misc]
        def _get(self, offset: int, dtype: Any, count: int = 1, **order: Any) -> Any:
            found = super()._get(offset, dtype, count, **order)
            if len(found) < count:
                raise ValueError("it ends too early")
            return found

    return Reader(path)


class GGUF:
    """An open GGUF file."""

    def __init__(self, path: Path, reader: Any) -> None:
        self.path = path
        self._reader = reader
        self._asked: set[str] = set()
        self.architecture = self.text("general.architecture", "")

    @classmethod
    def open(cls, path: str | Path) -> GGUF:
        """Parse the header and the fields."""
        path = Path(path)
        package = gguf_package()
        with path.open("rb"):  # a missing file is not a damaged one
            pass
        try:
            return cls(path, _reader(package, path))
        except Exception as error:  # the package raises many kinds on damaged files
            what = f"not a GGUF file, or damaged: {error}"
            raise FormatError(what, where=str(path)) from error

    def unread(self, prefix: str) -> list[str]:
        """Keys that begin with `prefix`, of the fields that nothing has asked for."""
        return [
            key for key in self._reader.fields if key.startswith(prefix) and key not in self._asked
        ]

    def get(self, key: str) -> Any:
        """A field's value, or None if the file does not have it."""
        self._asked.add(key)
        field = self._reader.get_field(key)
        if field is None:
            return None
        try:
            return field.contents()
        except (ValueError, IndexError, TypeError) as error:
            raise self.refusal(f"the field {key} is damaged: {error}") from error

    def text(self, key: str, default: str) -> str:
        """A field that must be a string."""
        value = self.get(key)
        return default if value is None else str(self._checked(key, value, str))

    def integer(self, key: str, default: int | None = None) -> int:
        """A field that must be a whole number, and must be there without a default."""
        value = self.get(key)
        return int(self._checked(key, default if value is None else value, int))

    def number(self, key: str, default: float) -> float:
        """A field that must be a number, in the decimal form that it had before float32."""
        value = self.get(key)
        if value is None:
            return default
        return float(str(np.float32(self._checked(key, value, (int, float)))))

    def strings(self, key: str) -> list[str]:
        """A field that must be a list of strings, and is absent if empty."""
        value = self._checked(key, self.get(key) or [], list)
        return [self._checked(key, text, str) for text in value]

    def _checked(self, key: str, value: Any, kind: Any) -> Any:
        if value is None:
            raise self.refusal(f"no field {key!r}")
        if not isinstance(value, kind) or isinstance(value, bool):
            raise self.refusal(f"the field {key} is {str(value)[:40]!r}")
        return value

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Of all tensors, by name, the rows first."""
        return {t.name: tuple(map(int, reversed(t.shape))) for t in self._reader.tensors}

    def tensors(self) -> dict[str, Floats]:
        """All tensors in float32, whatever they are stored in."""
        return {tensor.name: self._numbers(tensor) for tensor in self._reader.tensors}

    def _numbers(self, stored: Any) -> Floats:
        quants = gguf_package().quants
        try:
            numbers = quants.dequantize(stored.data, stored.tensor_type)
        except NotImplementedError:
            raise self.refusal(
                f"{stored.name} is stored as {stored.tensor_type.name}, which is not supported",
                "use a file in F32, F16, BF16, Q8_0, Q4_0, Q4_K or Q6_K",
            ) from None
        return np.array(numbers, dtype=np.float32)

    def refusal(self, what: str, hint: str | None = None) -> FormatError:
        """An error that names the file."""
        return FormatError(what, where=str(self.path), hint=hint)
