"""Every error says what, where and what to do, and is also the standard exception of its kind."""

import pytest

from trafo import errors

STANDARD_KIND = {
    errors.ConfigError: ValueError,
    errors.InputError: ValueError,
    errors.FormatError: ValueError,
    errors.MissingPackageError: ImportError,
    errors.StorageError: OSError,
}


@pytest.mark.parametrize(("ours", "standard"), STANDARD_KIND.items())
def test_each_error_is_ours_and_the_standard_kind(ours, standard):
    error = ours("what is wrong", where="file.txt", hint="do this")
    assert isinstance(error, errors.TrafoError)
    assert isinstance(error, standard)
    assert str(error) == "file.txt: what is wrong; do this"
    assert (error.what, error.where, error.hint) == ("what is wrong", "file.txt", "do this")


def test_where_and_hint_may_be_left_out():
    assert str(errors.TrafoError("what is wrong")) == "what is wrong"
    assert str(errors.StorageError("is full", hint="free space")) == "is full; free space"
    assert str(errors.InputError("is empty", where="a.txt")) == "a.txt: is empty"
