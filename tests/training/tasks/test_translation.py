"""Translation models train by the trainer of language models."""

from __future__ import annotations

import dataclasses
import random
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.training.conftest import MakeConfig
from tests.training.test_exact_resume import _train_until, assert_same_run
from tests.training.test_independence import assert_close, on_two
from torch.nn import functional

from trafo.checkpoint.bundle import load_bundle
from trafo.checkpoint.store import CheckpointStore, read_weights
from trafo.cli.main import main
from trafo.config import to_yaml
from trafo.data.pair_tokenizer import PairTokenizer
from trafo.errors import ConfigError
from trafo.optim.config import ScheduleConfig
from trafo.training import start
from trafo.training.build import build
from trafo.training.config import CheckpointConfig, TrainConfig
from trafo.training.distributed import Ranks
from trafo.training.tasks.translation import Translation
from trafo.training.verify import Verdict

DROPOUT = {
    "encoder_decoder__dropout": 0.3,
    "encoder_decoder__attention_dropout": 0.2,
    "recurrent__dropout": 0.3,
}
NO_DROPOUT = dict.fromkeys(DROPOUT, 0.0)
ARCHITECTURES = pytest.mark.parametrize("architecture", ["encoder-decoder", "recurrent"])


@ARCHITECTURES
def test_the_loss_is_the_mean_over_target_tokens(
    make_pairs_config: MakeConfig, architecture: str
) -> None:
    """By torch's own cross-entropy with its own label smoothing, sentence by sentence."""
    training = build(make_pairs_config(architecture=architecture, **NO_DROPOUT), Ranks())
    source, target, expected = training.task.batch(0, 3, 0, 1, training.device).inputs
    total, num_targets = 0.0, 0
    with torch.no_grad():
        for row in range(len(source)):
            real = int((expected[row] != 0).sum())
            read = source[row : row + 1, : int((source[row] != 0).sum())]
            logits = training.model(read, target[row : row + 1, :real])[0]
            total += float(
                functional.cross_entropy(
                    logits, expected[row, :real], label_smoothing=0.1, reduction="sum"
                )
            )
            num_targets += real
    result = training.step(3, seed=0, rate_factor=1.0)
    assert result.num_targets == num_targets
    assert result.loss == pytest.approx(total / num_targets, abs=1e-5)


@ARCHITECTURES
def test_accumulation_changes_neither_loss_nor_gradient(
    make_pairs_config: MakeConfig, architecture: str
) -> None:
    settings = {"architecture": architecture, "optimizer__name": "sgd", **DROPOUT}
    found = []
    for accumulate in (1, 3, 40):  # 40 parts are more than there are pairs in a batch
        training = build(make_pairs_config(accumulate=accumulate, **settings), Ranks())
        result = training.step(2, seed=0, rate_factor=1.0)
        found.append((result.loss, result.grad_norm))
    assert found[1] == pytest.approx(found[0], abs=1e-5)
    assert found[2] == pytest.approx(found[0], abs=1e-5)


@pytest.mark.parametrize("parallel", ["ddp", "fsdp"])
def test_two_processes_learn_what_one_learns(
    make_pairs_config: MakeConfig, tmp_path: Path, parallel: str
) -> None:
    same: dict[str, Any] = {"steps": 4, "machine__parallel": parallel, **DROPOUT}
    one, two = make_pairs_config("one", **same), make_pairs_config("two", **same)
    start.train(one)
    on_two(two, tmp_path)
    assert_close(one, two)


@pytest.mark.parametrize(
    "variant",
    [
        {"encoder_decoder__dropout": 0.2, "accumulate": 2, "optimizer__name": "muon"},
        {"architecture": "recurrent"},
        {"translation__joint": False, "encoder_decoder__shared_embeddings": "none",
         "encoder_decoder__norm_placement": "post", "encoder_decoder__target_vocab_size": 275},
    ],
    ids=["muon", "recurrent", "separate vocabularies"],
)  # fmt: skip
def test_the_instant_of_a_kill_does_not_matter(
    make_pairs_config: MakeConfig, monkeypatch: pytest.MonkeyPatch, variant: dict[str, Any]
) -> None:
    straight = make_pairs_config("straight", steps=6, **variant)
    start.train(straight)
    broken = make_pairs_config("broken", steps=6, **variant)
    _train_until(broken, random.Random(str(variant)).randrange(6), monkeypatch)
    start.resume(broken.out or "")
    assert_same_run(straight.out, broken.out)


def test_it_learns_to_translate(make_pairs_config: MakeConfig) -> None:
    config = make_pairs_config(
        steps=80,
        watch__sample_every=80,
        watch__evaluate_every=80,
        watch__bleu_sentences=0,
        checkpoint__every=80,
        optimizer__lr=1e-2,
        encoder_decoder__d_model=32,
        encoder_decoder__dropout=0.0,
    )
    run = start.train(config)
    first, last = run.metrics[0], run.metrics[-1]
    assert (first["kind"], last["kind"]) == ("train", "final")
    assert last["loss"] < 0.9 < 4 < first["loss"]
    assert "\n-> " in run.samples_file.read_text()
    tokenizer = PairTokenizer.load(run.tokenizer_folder)
    assert (
        tokenizer.decode_target(tokenizer.encode_target(["vier  fünf"])[0].tolist()) == "vier fünf"
    )


def test_it_stops_early_when_bleu_no_longer_grows(
    make_pairs_config: MakeConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    scores = iter([1.0, 3.0, 2.0, 3.0, 9.0])

    def validate(task: Translation, model: Any, num_tokens: int) -> dict[str, Any]:
        return {"loss": 1.0, "bleu": next(scores)}

    monkeypatch.setattr(Translation, "validate", validate)
    config = make_pairs_config(steps=10, watch__evaluate_every=1, watch__patience=2)
    run = start.train(config)
    assert run.state is not None
    assert run.state.step == 4  # the second step was the best, two others were no better
    assert CheckpointStore(run.checkpoint_folder).steps()[-1] == 4


def test_bleu_on_the_way_and_the_average_at_the_end(make_pairs_config: MakeConfig) -> None:
    config = make_pairs_config(
        steps=4, watch__evaluate_every=2, checkpoint__every=1, checkpoint__average=3
    )
    run = start.train(config)
    bleu = [record["bleu"] for record in run.metrics if record["kind"] == "validation"]
    assert len(bleu) == 2
    store = CheckpointStore(run.checkpoint_folder)
    every = [read_weights(store.path(step))[0] for step in (2, 3, 4)]
    bundle = load_bundle(run.path)
    assert (bundle.source, bundle.step) == (store.average_path, 4)
    for name, tensor in bundle.model.named_parameters():
        mean = sum(weights[name] for weights in every) / 3
        assert torch.allclose(tensor, mean, atol=1e-6)
    # Of a short run, what there is; but not the weights that it began with.
    short = start.train(make_pairs_config("short", steps=1, checkpoint__average=3))
    assert CheckpointStore(short.checkpoint_folder).steps() == [0, 1]
    kept = read_weights(CheckpointStore(short.checkpoint_folder).path(1))[0]
    average = load_bundle(short.path).model.state_dict()
    assert all(tensor.equal(average[name]) for name, tensor in kept.items())
    longer = dataclasses.replace(config, steps=5, checkpoint=CheckpointConfig(every=1))
    start.resume(run.path, longer)
    assert load_bundle(run.path).source == store.path(5)  # the average is of the past


def test_the_schedule_of_the_paper(make_pairs_config: MakeConfig) -> None:
    """lr * d_model^-0.5 * min(t^-0.5, t * warmup^-1.5)."""
    schedule = ScheduleConfig(name="inverse-square-root", warmup=0.5)
    config = make_pairs_config(optimizer__lr=2.0, optimizer__schedule=schedule, steps=8)
    rates = [record["lr"] for record in start.train(config).metrics if record["kind"] == "train"]
    expected = [2 * 16**-0.5 * min(t**-0.5, t * 4**-1.5) for t in range(1, 9)]
    assert rates == pytest.approx(expected)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"architecture": "gpt2"}, "gpt2 does not learn from sentence pairs"),
        ({"pairs": ()}, "encoder-decoder learns from sentence pairs; give two aligned files"),
        ({"encoder_decoder__target_vocab_size": 279,
          "encoder_decoder__shared_embeddings": "none"}, "vocabularies have 280 and 279"),
        ({"translation__joint": False}, "shared_embeddings is all, translation.joint is false"),
        ({"translation__max_tokens": 600}, "translation.max_tokens is 600, the model takes 512"),
        ({"text": ("a.txt",)}, "a text and pairs are given; give one of them"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_refused(
    make_pairs_config: MakeConfig, changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        build(make_pairs_config(**changes), Ranks())


def test_by_command_with_automatic_sizes(
    pairs: tuple[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    small = ["--encoder-decoder.d-model", "32", "--machine.peak-flops", "1e11", "--steps", "3"]
    sizes = ["--encoder-decoder.source-vocab-size", "280", "--encoder-decoder.target-vocab-size"]
    files = ["--pairs", *pairs, "--validation", *pairs]
    assert main(["train", *files, *small, *sizes, "280", "--machine.threads", "1"]) == 0
    out, err = capfd.readouterr()
    assert "80 sentence pairs" in err
    assert "vocabulary 280, 2 + 2 layers of 32 with 4 heads" in err  # the user's, not the chosen
    assert "3 steps" in err
    assert "muon (learning rate muon 0.02, adamw 0.005), linear schedule" in err
    assert "translate runs/numbers" in out
    assert Path("runs/latest").readlink().name == "numbers"
    assert main(["train", "--pairs", pairs[0]]) == 2
    assert "numbers.en: is one side only" in capfd.readouterr().err


def test_mistakes_inside_the_files_come_before_the_settings(
    pairs: tuple[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    short = tmp_path / "short.de"
    short.write_text("eins\n")
    speed = ["--machine.peak-flops", "1e11"]
    for files in (
        ["--pairs", pairs[0], short],
        ["--pairs", *pairs, "--validation", pairs[0], short],
    ):
        assert main(["train", *map(str, files), *speed]) == 2
        err = capfd.readouterr().err
        assert "line 2 has no partner" in err
        assert "settings" not in err


def test_verify_resume_takes_pairs(
    make_pairs_config: MakeConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = make_pairs_config()
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text(to_yaml(dataclasses.replace(config, pairs=())))
    asked: list[TrainConfig] = []

    def verify(config: TrainConfig, folder: Path, **settings: int) -> Verdict:
        asked.append(config)
        return Verdict(12, [], 0, 0, 0, [])

    monkeypatch.setattr("trafo.training.verify.verify_resume", verify)
    assert main(["verify-resume", str(recipe), "--pairs", *config.pairs]) == 0
    assert asked == [config]


def test_all_settings_are_kept_with_the_run(make_pairs_config: MakeConfig) -> None:
    config = make_pairs_config(steps=1)
    run = start.train(config)
    kept: TrainConfig = run.read_config()
    assert dataclasses.replace(kept, data=config.data) == config
