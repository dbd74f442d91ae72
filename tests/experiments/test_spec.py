"""What an experiment file says, and what is said of one that cannot be."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.experiments.conftest import MakeExperiment

from trafo.config import merge, nest
from trafo.errors import ConfigError
from trafo.experiments.spec import make_experiment, read_experiment


def test_a_file_is_read_over_its_recipe(tmp_path: Path) -> None:
    (tmp_path / "recipe.yaml").write_text("steps: 7\nbatch_size: 3\n")
    file = tmp_path / "question.yaml"
    file.write_text("config: recipe.yaml\nbase: {steps: 9}\nseeds: [4, 2]\n")
    experiment = read_experiment(file, ("a.txt",))
    assert (experiment.name, experiment.seeds) == ("question", (4, 2))
    base = experiment.base
    assert (base.steps, base.batch_size, base.text) == (9, 3, ("a.txt",))
    assert [arm.name for arm in experiment.arms] == ["base"]


@given(
    st.floats(1e-6, 1e3),
    st.floats(1e-6, 1e3),
    st.integers(2, 12),
)
def test_a_range_is_numpys_geometric_one(first: float, last: float, points: int) -> None:
    asked = {"sweep": {"optimizer.lr": {"from": first, "to": last, "points": points}}}
    (arm,) = make_experiment(asked, "sweep").arms
    np.testing.assert_allclose(
        arm.sweep["optimizer.lr"], np.geomspace(first, last, points), rtol=6e-3
    )


def test_whole_ends_make_whole_numbers_and_an_arm_may_have_its_own_sweep(
    make: MakeExperiment,
) -> None:
    experiment = make(
        sweep={"batch_size": {"from": 1, "to": 64, "points": 4}},
        arms={"a": {}, "b": {"sweep": {"batch_size": [2]}}},
    )
    assert [arm.sweep["batch_size"] for arm in experiment.arms] == [(1, 4, 16, 64), (2,)]


keys = st.text("ab", min_size=1, max_size=2)
trees: Any = st.recursive(
    st.integers(), lambda inner: st.dictionaries(keys, inner, min_size=1, max_size=3), max_leaves=6
)


@given(st.dictionaries(keys, trees, max_size=3))
def test_dotted_and_nested_keys_are_the_same(tree: dict[str, Any]) -> None:
    def dotted(tree: dict[str, Any], prefix: str = "") -> dict[str, Any]:
        flat: dict[str, Any] = {}
        for key, value in tree.items():
            inner = isinstance(value, dict)
            flat |= dotted(value, f"{prefix}{key}.") if inner else {prefix + key: value}
        return flat

    assert nest(dotted(tree)) == nest(tree) == tree
    assert merge(tree, {}) == merge({}, tree) == merge(tree, tree) == tree


@pytest.mark.parametrize(
    ("asked", "line"),
    [
        ({"arm": {}}, "unknown key arm; did you mean arms?"),
        ({"base": {"stepz": 3}}, "unknown key stepz; did you mean steps?"),
        ({"base": {"steps": "many"}}, "steps: expected int, got 'many'"),
        ({"base": 3}, "base: expected keys below it, got 3"),
        ({"seeds": 0}, "seeds is 0; give how many, or a list such as [0, 1, 2]"),
        ({"seeds": [1, 1]}, "seeds is [1, 1]; a seed is listed twice"),
        ({"equal": "flop"}, "equal is 'flop'; did you mean flops?"),
        ({"equal": "wall-clock"}, "equal: wall-clock without base.budget"),
        ({"base": {"budget": "9s"}}, "equal: steps, but base.budget is 9s"),
        ({"sweep": {"batch_size": []}}, "sweep.batch_size is an empty list"),
        ({"sweep": {"batch_size": {"from": 1}}}, "sweep.batch_size is {'from': 1}; give a list"),
        ({"arms": {"a b": {}}}, "'a b' cannot be the name of an arm"),
        ({"arms": {"a": {"match": "flops"}}}, "match is 'flops'"),
        ({"halving": {"att": [0.5]}}, "halving: unknown key att; did you mean at?"),
        ({"halving": {"at": [0.5, 0.2]}}, "halving.at is [0.5, 0.2]; it must rise"),
        ({"halving": {"keep": "few"}}, "halving: keep: expected float, got 'few'"),
        ({"halving": 3}, "halving: expected keys below it, got 3"),
        ({"scaling": {"factor": 1}}, "scaling.factor is 1; it must be above 1"),
    ],
)
def test_each_mistake_is_one_line(asked: dict[str, Any], line: str) -> None:
    with pytest.raises(ConfigError) as caught:
        make_experiment(asked, "wrong", where="wrong.yaml")
    (said,) = str(caught.value).splitlines()
    assert line in said
    assert said.startswith("wrong.yaml")


def test_all_mistakes_are_told_at_once() -> None:
    asked = {"seed": 3, "seeds": 0, "equal": "money", "arms": {"?": {}}}
    with pytest.raises(ConfigError) as caught:
        make_experiment(asked, "wrong")
    assert len(str(caught.value).splitlines()) == 4
