"""Files of tensors: what is written is read back; the permissions are those of other files."""

import os
import stat

import pytest
import torch

from trafo.checkpoint.snapshot import read_tensors, write_tensors
from trafo.errors import FormatError, StorageError


@pytest.mark.parametrize("umask", [0o022, 0o027, 0o077])
def test_permissions_follow_the_umask(tmp_path, umask):
    before = os.umask(umask)
    try:
        write_tensors(tmp_path / "ours", {"a": torch.arange(3)})
        (tmp_path / "usual").write_text("")
        assert os.umask(umask) == umask
    finally:
        os.umask(before)
    ours, usual = (stat.S_IMODE((tmp_path / name).stat().st_mode) for name in ("ours", "usual"))
    assert ours == usual
    assert read_tensors(tmp_path / "ours")["a"].tolist() == [0, 1, 2]


def test_another_file_is_refused(tmp_path):
    (tmp_path / "a").write_bytes(b"not at all")
    with pytest.raises(FormatError, match="not safetensors"):
        read_tensors(tmp_path / "a")
    with pytest.raises(StorageError, match=r"is a directory while reading; give the name of a f"):
        read_tensors(tmp_path)
