"""Named tensors <-> a safetensors file: nothing in it can run."""

from __future__ import annotations

import os
import re
from pathlib import Path

from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from trafo.errors import FormatError
from trafo.runtime.atomic import storage_errors

_SYSTEM_ERROR = re.compile(r"os error (\d+)")


def read_tensors(path: Path) -> dict[str, Tensor]:
    """All tensors of a file."""
    try:
        with storage_errors(path, "reading"), path.open("rb"):  # a folder is not a damaged file
            tensors: dict[str, Tensor] = load_file(path)
    except (SafetensorError, KeyError) as error:  # KeyError: a dtype that it does not know
        raise FormatError(f"not safetensors, or damaged: {error}", where=str(path)) from None
    return tensors


def write_tensors(
    path: Path, tensors: dict[str, Tensor], metadata: dict[str, str] | None = None
) -> None:
    """Write a file with the permissions that the umask allows."""
    try:
        save_file(tensors, path, metadata)
    except SafetensorError as error:
        # The system's error, such as a full disk, is only in the text of the message.
        if number := _SYSTEM_ERROR.search(str(error)):
            code = int(number[1])
            raise OSError(code, os.strerror(code)) from error
        raise
    umask = os.umask(0)  # it can only be read by setting it
    os.umask(umask)
    path.chmod(0o666 & ~umask)  # safetensors makes it readable by its owner only
