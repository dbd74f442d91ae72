"""`trafo verify-resume`: exact is called exact, and what differs is named."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.training.conftest import MakeConfig

from trafo.checkpoint.store import Checkpoint
from trafo.cli import verify_resume as command
from trafo.cli.main import main
from trafo.config import to_yaml
from trafo.errors import TrafoError
from trafo.training import start, verify
from trafo.training.verify import Verdict, verify_resume

Harm = Callable[["verify._Subject"], None]


@pytest.mark.slow
def test_a_killed_run_is_found_exact(
    make_config: MakeConfig, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text(to_yaml(make_config(model__dropout=0.1)))
    assert main(["verify-resume", str(recipe), "--steps", "40", "--kills", "1", "--quiet"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[-1] == "result    all equal, bit for bit"
    assert "killed after step" in lines[0]
    assert "too quick" not in lines[0], "it was never killed, so nothing was shown"
    # 40 steps with loss, norm and batch; validations with a loss, every 13 steps and at the end.
    assert f"{40 * 3 + 4} records" in lines[3]


@pytest.fixture
def verdict_after(
    make_config: MakeConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[[Harm], Verdict]:
    """The verdict on two runs, in this process, of which one is tampered with before the end."""

    def finish(self: verify._Subject, *_: object) -> None:
        start.train(self.config)

    def judge(harm: Harm) -> Verdict:
        def finish_harmed(self: verify._Subject, *_: object) -> Iterator[int]:
            start.train(self.config)
            harm(self)
            return iter([2])

        monkeypatch.setattr(verify._Subject, "finish", finish)
        monkeypatch.setattr(verify._Subject, "finish_with_kills", finish_harmed)
        return verify_resume(make_config(), tmp_path, steps=5, kills=1)

    return judge


def change(alter: Callable[[Checkpoint], None]) -> Harm:
    """Save the newest checkpoint again, changed."""
    from trafo.checkpoint.store import CheckpointStore, read_weights

    def harm(broken: verify._Subject) -> None:
        found = broken.newest()
        alter(found)
        store = CheckpointStore(broken.run.checkpoint_folder)
        _, model = read_weights(store.path(found.step))
        store.save(found.step, found.snapshot, found.state, model)

    return harm


def test_equal_runs_are_equal(verdict_after: Callable[[Harm], Verdict]) -> None:
    verdict = verdict_after(lambda _: None)
    assert verdict.is_exact
    assert verdict.killed_at == [2]
    assert verdict.tensors == 3 * 21 + 1  # weights with two moments each, and the generator
    assert verdict.records == 5 * 3 + 5


def test_one_bit_of_one_weight_is_found(verdict_after: Callable[[Harm], Verdict]) -> None:
    def alter(found: Checkpoint) -> None:
        weight = found.snapshot.weights["lm_head.weight"].view(-1)
        weight[7] = weight[7].nextafter(weight[7] + 1)

    verdict = verdict_after(change(alter))
    assert verdict.different == ["tensor lm_head.weight"]


def test_numbers_and_states_are_compared(verdict_after: Callable[[Harm], Verdict]) -> None:
    def alter(found: Checkpoint) -> None:
        found.snapshot.numbers["lm_head.weight/t"] += 1
        found.state["best_loss"] = 0.0
        found.state["seconds"] = 1e9  # the clock may differ
        del found.snapshot.moments["lm_head.weight/m"]

    assert verdict_after(change(alter)).different == [
        "tensor lm_head.weight/m is missing in one run",
        "number lm_head.weight/t",
        "state best_loss",
    ]


def test_losses_and_batches_are_compared(verdict_after: Callable[[Harm], Verdict]) -> None:
    def harm(broken: verify._Subject) -> None:
        lines = broken.run.metrics_file.read_text().splitlines(keepends=True)
        lines[0] = lines[0].replace('"loss": 5', '"loss": 6')
        broken.run.metrics_file.write_text("".join(lines[:-1]))

    assert verdict_after(harm).different == [
        "record train loss of step 1",
        "record validation loss of step 5 is missing in one run",
    ]


def test_differences_are_told_and_give_another_exit_code(
    make_config: MakeConfig,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text(to_yaml(make_config()))
    different = [f"tensor {number}" for number in range(12)]
    found = Verdict(5, [2], tensors=3, numbers=2, records=1, different=different)
    monkeypatch.setattr(verify, "verify_resume", lambda *_, **__: found)
    assert main(["verify-resume", str(recipe)]) == command.DIFFERENT == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[-1] == "result    12 differences"
    assert lines.count("differs   tensor 0") == 1


def test_a_training_that_fails_says_why(make_config: MakeConfig, tmp_path: Path) -> None:
    config = make_config(text=(str(tmp_path / "nowhere.txt"),))
    with pytest.raises(TrafoError, match=r"the training failed.*nowhere\.txt"):
        verify_resume(config, tmp_path, steps=3, kills=1)
