"""Flags in kebab case, help with every default, one-line errors."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import pytest

from trafo.config import Positional, parse_flags
from trafo.errors import ConfigError, InputError


@dataclass(frozen=True, kw_only=True)
class Model:
    d_model: int = 512
    """width of the stream"""
    tie_weights: bool = True
    """one matrix for both ends"""

    def __post_init__(self):
        if self.d_model < 1:
            raise InputError("d_model is not positive", hint="x " * 60 + "end")


@dataclass(frozen=True, kw_only=True)
class Options:
    """Train something."""

    input: Positional[Path]
    """the text"""
    vocab_size: int = 32_000
    """tokens: a text which its source breaks
    into two lines goes on"""
    pattern: Literal["gpt2", "gpt4"] = "gpt2"
    """how to split"""
    model: Model = field(default_factory=Model)


def refusal(*flags: str) -> str:
    with pytest.raises(ConfigError) as caught:
        parse_flags(Options, flags, prog="trafo train")
    return str(caught.value)


def test_flags_over_defaults():
    options = parse_flags(
        Options, ["a.txt", "--vocab-size", "300", "--model.d-model=8", "--model.no-tie-weights"]
    )
    assert options == Options(
        input=Path("a.txt"), vocab_size=300, model=Model(d_model=8, tie_weights=False)
    )


def test_flags_over_an_instance():
    base = Options(input=Path("a"), vocab_size=7)
    assert parse_flags(Options, ["b", "--pattern", "gpt4"], default=base) == Options(
        input=Path("b"), vocab_size=7, pattern="gpt4"
    )


def test_help_shows_every_flag_default_and_meaning(capsys):
    with pytest.raises(SystemExit) as caught:
        parse_flags(Options, ["--help"], prog="trafo train")
    assert caught.value.code == 0
    shown = capsys.readouterr().out
    for words in ("trafo train", "Train something.", "--vocab-size", "32000", "how to split"):
        assert words in shown
    for words in ("--model.d-model", "512", "width of the stream", "{gpt2,gpt4}"):
        assert words in shown
    assert "which its source breaks into two lines" in " ".join(shown.replace("│", " ").split())
    assert not any(line.strip("│ ").startswith("into two lines") for line in shown.splitlines())


@pytest.mark.parametrize(
    ("flag", "guess"),
    [
        ("--vocab-sise", "--vocab-size"),
        ("--vocab_sise=3", "--vocab-size"),
        ("--model.d-mdel", "--model.d-model"),
        ("--model.no-tie-weight", "--model.no-tie-weights"),
        ("--d-model", "--model.d-model"),
        ("--tie_weights", "--model.tie-weights"),
    ],
)
def test_an_unknown_flag_is_answered_with_the_nearest(flag, guess):
    assert refusal("a", flag) == f"unknown flag {flag.split('=')[0]}; did you mean {guess}?"


def test_other_refusals_are_one_line_too():
    assert refusal("a", "--zzz", "1") == "unknown flag --zzz; see --help for all flags"
    assert refusal("a", "b") == "unexpected argument 'b'; see --help"
    assert refusal("a", "--vocab-size", "x") == "--vocab-size: expected int, got 'x'"
    assert refusal("a", "--vocab_size=x") == "--vocab-size: expected int, got 'x'"
    assert refusal() == "`trafo train` needs PATH; see --help"
    assert refusal("a", "--vocab-size") == "--vocab-size needs a value; see --help"


@pytest.mark.parametrize(
    ("value", "hint"), [("gtp4", "did you mean gpt4?"), ("x" * 300, "choose one of gpt2, gpt4")]
)
def test_a_wrong_choice_is_answered_with_the_right_ones(value, hint):
    assert refusal("a", "--pattern", value) == f"--pattern: {value!r} is not a choice; {hint}"


@pytest.mark.parametrize(
    ("flags", "is_tied"),
    [
        ([], True),
        (["--model.tie-weights"], True),
        (["--model.no-tie-weights"], False),
        (["--model.tie-weights", "true"], True),
        (["--model.tie-weights", "False"], False),
        (["--model.tie-weights=false"], False),
        (["--model.tie_weights=TRUE"], True),
        (["--model.tie-weights", "false", "--model.tie-weights", "true"], True),
    ],
)
def test_a_switch_is_turned_by_its_name_or_by_true_and_false(flags, is_tied):
    assert parse_flags(Options, ["a", *flags]).model.tie_weights is is_tied
    assert parse_flags(Options, [*flags, "a"]).input == Path("a")


def test_a_switch_takes_no_other_value():
    assert refusal("a", "--model.tie-weights=maybe") == (
        "--model.tie-weights: expected true or false, got 'maybe'"
    )


def test_errors_of_the_dataclass_itself_come_through_untouched():
    with pytest.raises(InputError) as caught:
        parse_flags(Options, ["a", "--model.d-model", "0"])
    assert caught.value.hint == "x " * 60 + "end"


@dataclass(frozen=True, kw_only=True)
class WithRequired:
    vocab_size: int
    out: str = "here"


def test_a_misspelt_required_flag_is_named_not_called_missing() -> None:
    with pytest.raises(ConfigError, match=r"unknown flag --vocab-sise; did you mean --vocab-size"):
        parse_flags(WithRequired, ["--vocab-sise", "300"])
    with pytest.raises(ConfigError, match="vocab-size"):
        parse_flags(WithRequired, ["--out", "there"])


@dataclass(frozen=True, kw_only=True)
class Runs:
    folder: Positional[Path] = Path("runs")
    kind: Positional[Literal["long", "short"]] = "long"
    json: bool = False


@dataclass(frozen=True, kw_only=True)
class Pair:
    first: Positional[str]
    second: Positional[str]
    json: bool = False


@pytest.mark.parametrize("flags", [["--jsn"], ["--jsn", "x"], ["--json", "--jsn=x"]])
@pytest.mark.parametrize("cls", [Runs, Pair])
def test_a_misspelt_flag_is_named_though_positional_arguments_are_missing(
    cls: type, flags: list[str]
) -> None:
    with pytest.raises(ConfigError, match=r"^unknown flag --jsn; did you mean --json\?$"):
        parse_flags(cls, flags)


def test_a_single_dash_does_not_look_like_an_empty_path() -> None:
    with pytest.raises(ConfigError, match=r"^unknown flag -x; "):
        parse_flags(Runs, ["-x"])


@dataclass(frozen=True, kw_only=True)
class Copy:
    sources: Positional[tuple[Path, ...]] = ()
    target: Positional[Path]
    bias: tuple[tuple[int, float], ...] = ()
    betas: tuple[float, float] = (0.9, 0.95)
    tags: tuple[str, ...] = ()


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("a", Copy(target=Path("a"))),
        ("a b c", Copy(sources=(Path("a"), Path("b")), target=Path("c"))),
        ("a --betas 0 1e-1 b", Copy(sources=(Path("a"),), target=Path("b"), betas=(0.0, 0.1))),
        ("a --bias 5 -1.5 7 2", Copy(target=Path("a"), bias=((5, -1.5), (7, 2.0)))),
        ("--tags x y --betas 1 2 a", Copy(target=Path("a"), tags=("x", "y"), betas=(1.0, 2.0))),
        ("--tags x -- a", Copy(target=Path("a"), tags=("x",))),
        ("--tags=x a", Copy(target=Path("a"), tags=("x",))),
        ("-- --a", Copy(target=Path("--a"))),
    ],
)
def test_flags_take_the_words_that_belong_to_them(words: str, expected: Copy) -> None:
    assert parse_flags(Copy, words.split()) == expected
