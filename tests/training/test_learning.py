"""It learns: one batch by heart, and from a text what holds for its unseen end."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
from matplotlib.figure import Figure
from tests.training.conftest import MakeConfig

from trafo.checkpoint.store import CheckpointStore
from trafo.cli.main import main
from trafo.cli.train import finish
from trafo.optim.config import ScheduleConfig
from trafo.training import plan, start
from trafo.training.build import build
from trafo.training.config import TrainConfig
from trafo.training.distributed import Ranks
from trafo.training.metrics import Record, read_metrics


def records(config: TrainConfig, kind: str) -> list[Record]:
    assert config.out is not None
    return [r for r in read_metrics(config.out / "metrics.jsonl") if r["kind"] == kind]


@pytest.mark.parametrize("optimizer", ["adamw", "muon"])
def test_one_batch_is_learned_by_heart(make_config: MakeConfig, optimizer: str) -> None:
    config = make_config(
        overfit=True, model__d_model=64, optimizer__name=optimizer, optimizer__lr=1e-2
    )
    training = build(config, Ranks())
    losses = []
    for step in range(300):
        losses.append(training.step(step, seed=0, rate_factor=1.0))
        if losses[-1].loss < 0.05:
            break
    assert losses[0].loss > 4
    assert losses[-1].loss < 0.05
    assert len({result.batch for result in losses}) == 1


def test_the_loss_on_unseen_text_falls(make_config: MakeConfig) -> None:
    """From even odds at the start to well below."""
    config = make_config(
        steps=120,
        batch_size=16,
        model__d_model=32,
        model__head_std=0.0,
        optimizer__name="muon",
        optimizer__schedule=ScheduleConfig(name="linear"),
        watch__evaluate_every=40,
        watch__evaluate_tokens=2000,
        checkpoint__every=60,
    )
    assert start.train(config).stopped_by is None
    measured = [record["loss"] for record in records(config, "validation")]
    assert measured == sorted(measured, reverse=True)
    assert records(config, "train")[0]["loss"] == pytest.approx(math.log(300), abs=1e-4)
    assert measured[-1] < math.log(300) - 1.5


def test_what_was_measured_can_be_measured_again(make_config: MakeConfig) -> None:
    """By evaluation of its own, from the checkpoint: the run reported its model, no other."""
    from trafo.checkpoint.bundle import load_bundle
    from trafo.data.prepare import prepare
    from trafo.evaluate.evaluation import count_token_bytes, evaluate_ids

    config = make_config(watch__evaluate_tokens=500)
    start.train(config)
    bundle = load_bundle(config.out or Path())
    dataset = prepare(config.text, config.data, 300)
    found = evaluate_ids(
        bundle.model,
        dataset.validation,
        context_length=16,
        batch_size=4,
        byte_lengths=count_token_bytes(bundle.tokenizer),
        max_tokens=500,
    )
    last = records(config, "validation")[-1]
    assert found.loss == pytest.approx(last["loss"], abs=1e-6)
    assert found.bits_per_byte == pytest.approx(last["bits_per_byte"], abs=1e-6)


def test_all_validations_are_on_the_same_tokens(
    make_config: MakeConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only the final one is on more, and counts neither for the curve nor for the best."""
    monkeypatch.setattr(plan, "_FINAL_SHARE", 10.0)
    run = start.train(make_config())
    assert run.state is not None
    validations = [record for record in run.metrics if record["kind"] == "validation"]
    assert [record["step"] for record in validations] == [4, 8, 12]
    assert len({record["tokens"] for record in validations}) == 1
    assert run.state.validation_loss == validations[-1]["loss"]
    assert run.state.best_loss == min(r["loss"] for r in validations if r["step"] == 12)
    (final,) = (record for record in run.metrics if record["kind"] == "final")
    assert final["tokens"] == final["held_out_tokens"] > validations[0]["tokens"]
    assert run.measured == final


@pytest.mark.parametrize("share", [10.0, 0.2], ids=["all", "some"])
def test_terminal_plot_and_eval_show_the_same_figure(
    make_config: MakeConfig,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    share: float,
) -> None:
    held_out, titles = tmp_path / "held_out.txt", []
    held_out.write_text("".join(f"for each of {n} in names:\n    print({n})\n" for n in range(150)))
    monkeypatch.setattr(plan, "_FINAL_SHARE", share)
    monkeypatch.setattr(Figure, "suptitle", lambda self, title: titles.append(title))
    run = start.train(make_config(validation=(str(held_out),)))
    assert finish(run) == 0
    run.plot()
    (line,) = (line for line in capsys.readouterr().out.splitlines() if "measured" in line)
    last = run.measured
    assert last is not None
    flags = ["--json", "--end-of-document", "<|endoftext|>"]  # as in training
    flags += [] if share > 1 else ["--max-tokens", str(last["tokens"])]
    assert main(["eval", str(run.path), str(held_out), *flags]) == 0
    found = json.loads(capsys.readouterr().out)
    tokens = f"on all {found['tokens']:,}" if share > 1 else f"on {found['tokens']:,} of "
    error = f"standard error {100 * found['standard_error'] / found['loss']:.2g} %"
    for shown in (line, titles[-1]):
        assert f"loss {found['loss']:.3f}, " in shown
        assert f" {found['bits_per_byte']:.3f} bits per byte, {tokens}" in shown
        assert f" held-out tokens, {error}" in shown


def test_samples_are_written_on_the_way(
    make_config: MakeConfig, capsys: pytest.CaptureFixture[str]
) -> None:
    config = make_config(watch__sample_every=6, watch__prompt="def ", watch__sample_tokens=5)
    start.train(config)
    written = ((config.out or Path()) / "samples.txt").read_text()
    assert written.startswith("--- step 6 ---\ndef ")
    assert "--- step 12 ---\ndef " in written
    assert capsys.readouterr().err.count("sample: def") == 2


def test_norms_are_recorded_when_asked_for(make_config: MakeConfig) -> None:
    config = make_config(watch__norms=True, watch__log_every=4)
    start.train(config)
    found = records(config, "train")
    assert [record["step"] for record in found] == [1, 4, 8, 12]
    for record in found:
        squares = [value**2 for name, value in record.items() if name.startswith("gradient_norm/")]
        assert math.sqrt(sum(squares)) == pytest.approx(record["grad_norm"], rel=1e-4)
        assert record["activation_rms/layers.1"] > 0
        assert record["weight_norm/lm_head.weight"] > 0


def test_the_best_checkpoint_is_the_one_that_was_measured_best(make_config: MakeConfig) -> None:
    """Validated after steps 2, 4, ..., saved after 3, 6, ...: only 6 and 12 were both."""
    config = make_config(watch__evaluate_every=2, checkpoint__every=3, checkpoint__keep=9)
    assert start.train(config).stopped_by is None
    losses = {record["step"]: record["loss"] for record in records(config, "validation")}
    assert config.out is not None
    best = CheckpointStore(config.out / "checkpoints").best_step
    assert best == min((6, 12), key=losses.__getitem__)


def test_the_readable_model_learns_the_same(make_config: MakeConfig) -> None:
    """`machine.fast` changes how numbers are computed: losses differ by rounding, 1e-4 here."""
    losses = []
    for fast in (True, False):
        training = build(make_config(machine__fast=fast, model__num_kv_heads=2), Ranks())
        results = [training.step(step, seed=0, rate_factor=1.0) for step in range(20)]
        losses.append([result.loss for result in results])
    assert losses[0] != losses[1]  # two ways of computing indeed
    assert losses[0] == pytest.approx(losses[1], abs=1e-4)
