"""Defaults < YAML < flags, strict about names and types, and reproducible."""

import enum
import math
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trafo.config import load, to_yaml
from trafo.errors import ConfigError


class Norm(enum.Enum):
    PRE = "pre"
    POST = "post"


@dataclass(frozen=True, kw_only=True)
class Model:
    d_model: int = 512
    heads: int = 8
    norm: Norm = Norm.PRE
    position: Literal["rope", "none"] = "rope"
    d_ff: int | None = None

    def __post_init__(self):
        if self.d_model % self.heads:
            raise ConfigError(f"{self.heads} heads do not divide d_model {self.d_model}")


@dataclass(frozen=True, kw_only=True)
class Train:
    data: Path
    lr: float = 1e-3
    betas: tuple[float, float] = (0.9, 0.95)
    compile: bool = False
    tags: tuple[str, ...] = ()
    notes: list[str] = field(default_factory=list)
    weights: dict[str, float] = field(default_factory=dict)
    limit: int | str = 10
    model: Model = field(default_factory=Model)


@pytest.fixture
def yaml(tmp_path):
    def write(text: str) -> Path:
        path = tmp_path / "recipe.yaml"
        path.write_text(text)
        return path

    return write


def test_flags_win_over_yaml_and_yaml_over_defaults(yaml):
    path = yaml("data: a.bin\nlr: 1e-2\nmodel: {d_model: 64, heads: 4}\n")
    config = load(Train, path, ["--model.d-model", "128", "--compile"])
    assert config == Train(
        data=Path("a.bin"), lr=0.01, compile=True, model=Model(d_model=128, heads=4)
    )


def test_without_yaml_the_defaults_hold():
    assert load(Train, flags=["--data", "x"]) == Train(data=Path("x"))


def test_what_yaml_lacks_a_flag_may_give(yaml):
    path = yaml("lr: 0.5\n")
    assert load(Train, path, ["--data", "x"]) == Train(data=Path("x"), lr=0.5)
    with pytest.raises(ConfigError, match="--data"):
        load(Train, path)


def test_only_the_resolved_tree_is_checked(yaml):
    path = yaml("data: x\nmodel: {heads: 7}\n")
    assert load(Train, path, ["--model.d-model", "14"]).model.d_model == 14
    with pytest.raises(ConfigError, match=r"^7 heads do not divide d_model 512$"):
        load(Train, path)


@pytest.mark.parametrize("word", ["None", "null", "~"])
def test_none_is_written_as_in_python_or_as_in_yaml(yaml, word):
    path = yaml(f"data: 'None'\nlr: 1e-2\nlimit: 2020-01-01\nmodel: {{d_ff: {word}}}\n")
    config = load(Train, path)
    assert (config.model.d_ff, config.data, config.lr) == (None, Path("None"), 0.01)
    assert config.limit == "2020-01-01"  # not a date
    path = yaml("data: x\nmodel: {d_ff: 8}\n")
    assert load(Train, path, ["--model.d-ff", "None"]).model.d_ff is None


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("lrr: 1", "unknown key lrr; did you mean lr?"),
        ("model: {d-model: 1}", "unknown key model.d-model; did you mean model.d_model?"),
        ("d_ff: 1", "unknown key d_ff; did you mean model.d_ff?"),
        ("model: {zzz: 1}", "unknown key model.zzz; known here: d_model, heads, norm, position"),
        ("3: 1", "unknown key 3; known here: data"),
        ("model: {true: 1}", "unknown key model.True; known here: d_model, heads"),
        ("model: {1.5: 1}", "unknown key model.1.5; known here: d_model, heads"),
        ("model: 3", "model: expected keys below it, got 3; it has d_model, heads"),
        ("model: {d_model: 1.5}", "model.d_model: expected int, got 1.5"),
        ("model: {d_model: null}", "model.d_model: expected int, got None"),
        ("model: {position: alibi}", "model.position: expected 'rope' | 'none', got 'alibi'"),
        ("model: {norm: mid}", "model.norm: expected Norm, got 'mid'"),
        ("betas: [1, 2, 3]", "betas: expected tuple[float, float], got [1, 2, 3]"),
        ("betas: [0.9, {a: 1}]", "betas: expected tuple[float, float], got {'a': 1} in it"),
        ("notes: [a, {b: c}]", "notes: expected list[str], got {'b': 'c'} in it"),
        ("notes: abc", "notes: expected list[str], got 'abc'"),
        ("notes: {a: b}", "notes: expected list[str], got {'a': 'b'}"),
        ("weights: {a: b}", "weights: expected dict[str, float], got {'a': 'b'}"),
        ("lr: fast", "lr: expected float, got 'fast'"),
        ("lr: ${model.d_ff}", "lr: expected float, got '${model.d_ff}'; write the value itself"),
        ("- a", "is a list, expected `key: value` lines"),
        ("a: [", "is not YAML: while parsing"),
        ("lr: 1\nlr: 2", "is not YAML: while constructing"),
    ],
)
def test_a_wrong_file_is_answered_with_where_what_and_what_would_be_right(yaml, text, message):
    path = yaml(text)
    with pytest.raises(ConfigError) as caught:
        load(Train, path, ["--data", "x"])
    assert str(caught.value).startswith(f"{path}: {message}")
    assert "\n" not in str(caught.value)


def test_files_that_cannot_be_read(tmp_path):
    with pytest.raises(ConfigError, match="cannot be read: no such file"):
        load(Train, tmp_path / "missing.yaml")
    (tmp_path / "binary.yaml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ConfigError, match="is not YAML"):
        load(Train, tmp_path / "binary.yaml")
    os.mkfifo(tmp_path / "pipe.yaml")  # without a writer, reading it would wait forever
    with pytest.raises(ConfigError, match="is a pipe"):
        load(Train, tmp_path / "pipe.yaml")


@pytest.mark.parametrize("word", ["true", "yes", "on", "'True'", "1"])
def test_a_switch_in_a_file_takes_what_yaml_calls_true(yaml, word):
    assert load(Train, yaml(f"data: x\ncompile: {word}\n")).compile is True


def test_an_empty_file_changes_nothing(yaml):
    assert load(Train, yaml(""), ["--data", "x"]) == Train(data=Path("x"))


tricky = st.sampled_from(
    ["${lr}", "None", "null", "1e3", "1:30", "2020-01-01", "yes", "~", " ", "#", "é\n", "5", "0x1f"]
)
strings = st.text(max_size=8) | tricky
paths = (st.text("ab/._$\\{}", min_size=1, max_size=8) | tricky).map(Path)
floats = st.floats(allow_nan=False)
trees = st.builds(
    Train,
    data=paths,
    lr=floats,
    betas=st.tuples(floats, floats),
    compile=st.booleans(),
    tags=st.lists(strings, max_size=3).map(tuple),
    notes=st.lists(strings, max_size=3),
    weights=st.dictionaries(strings, floats, max_size=3),
    limit=st.integers() | strings,
    model=st.builds(
        Model,
        d_model=st.integers(1, 99).map(lambda n: 8 * n),
        norm=st.sampled_from(Norm),
        position=st.sampled_from(["rope", "none"]),
        d_ff=st.none() | st.integers(-(2**70), 2**70),
    ),
)


@given(tree=trees)
def test_a_saved_tree_loads_as_itself(tmp_path_factory, tree):
    path = tmp_path_factory.mktemp("config") / "resolved.yaml"
    path.write_text(to_yaml(tree), encoding="utf-8")
    assert load(Train, path) == tree


def test_infinite_and_undefined_numbers_survive(yaml):
    saved = to_yaml(Train(data=Path("x"), lr=math.nan, betas=(math.inf, -math.inf)))
    loaded = load(Train, yaml(saved))
    assert math.isnan(loaded.lr)
    assert loaded.betas == (math.inf, -math.inf)


def test_yaml_holds_the_defaults_too():
    saved = to_yaml(Train(data=Path("x")))
    assert "lr: 0.001" in saved
    assert "d_model: 512" in saved
