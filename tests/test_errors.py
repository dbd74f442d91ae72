"""Every error says what, where and what to do, and is also the standard exception of its kind."""

import re
from typing import Literal

import numpy as np
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


def test_require_refuses_what_does_not_fit():
    errors.require(True, "p is 0.5", "it must be below 1")
    with pytest.raises(errors.ConfigError, match=r"^p is 2; it must be below 1$"):
        errors.require(False, "p is 2", "it must be below 1")


def test_require_at_least_names_the_setting_that_is_too_small():
    errors.require_at_least(1, seq=1, batch_size=7, window=None)
    with pytest.raises(errors.ConfigError, match=r"^batch_size is 0; it must be at least 1$"):
        errors.require_at_least(1, seq=1, batch_size=0)


def test_require_choice_lists_the_choices():
    errors.require_choice(("pre", "post"), norm_placement="post")
    with pytest.raises(errors.ConfigError, match=r"^norm is 'mid'; choose one of pre, post$"):
        errors.require_choice(("pre", "post"), norm="mid")


def test_an_unknown_name_is_answered_with_the_nearest_or_with_all():
    assert errors.did_you_mean("gtp2", ["gpt2", "recurrent"]) == "did you mean gpt2?"
    assert errors.did_you_mean("zzz", ["gpt2", "recurrent"]) == "choose one of gpt2, recurrent"
    assert errors.did_you_mean("zzz", ["gpt2"], "see --help") == "see --help"
    layers = ["--model.num-layers", "--gpt2.num-layers"]
    assert errors.did_you_mean("--n-layer", layers) == "did you mean --model.num-layers?"
    assert errors.did_you_mean("--modle.num-layers", layers) == "did you mean --model.num-layers?"
    assert (
        errors.did_you_mean("--lr", ["--out", "--optimizer.lr"]) == "did you mean --optimizer.lr?"
    )


def test_a_hint_names_the_right_flag_though_each_model_has_its_own():
    flags = ["--model.head-std", "--model.num-heads", "--gpt2.num-heads", "--model.d", "--gpt2.d"]
    assert errors.did_you_mean("--heads", flags) == "did you mean --model.num-heads?"
    assert errors.did_you_mean("--d", flags) == "did you mean --model.d, or that of gpt2?"


def test_one_string_where_a_list_belongs_is_refused():
    from trafo.evaluate.scores import score_bleu

    errors.require_lists(stop=["a"], prompts=(), special_tokens=None)
    with pytest.raises(errors.InputError, match=r"^special tokens must be a list; write \['ab'\]$"):
        errors.require_lists(prompts=[], special_tokens="ab")
    for texts in (("ab", [["a", "b"]]), (["a", "b"], ["ab"]), (["a"], "a")):
        with pytest.raises(errors.InputError, match="must be a list"):
            score_bleu(*texts)


@errors.check_types
def scale(kind: Literal["up", "down"] | None, by: float, times: int | None = None, *, x: object):
    """A function whose argument `x` may be anything."""
    return kind, by, times, x


def test_checked_types_are_those_that_python_takes_for_each_other():
    assert scale.__name__ == "scale"
    assert scale("up", 2, x=[]) == ("up", 2, None, [])
    assert scale(None, by=np.float32(0.5), times=np.int64(3), x=None)[2] == 3
    assert scale("down", True, True, x=scale)[1:3] == (True, True)
    for arguments, words in [
        ((2, "up"), "kind is 2; choose one of up, down, None"),
        (("sideways", 1.0), "kind is 'sideways'; choose one of up, down, None"),
        (("up", None), "by is None; it must be a number"),
        (("up", 1, 2.5), "times is 2.5; it must be an integer or None"),
    ]:
        with pytest.raises(errors.ConfigError, match=f"^{re.escape(words)}$"):
            scale(*arguments, x=1)
    with pytest.raises(TypeError, match="missing 1 required"):
        scale("up", 1)
