"""Sizes chosen for a text: not our own figures again, but what any good choice has to fulfil."""

import dataclasses
from datetime import date
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from trafo.account import Workload, account
from trafo.cli.main import main
from trafo.cli.train import parse
from trafo.config import load
from trafo.errors import ConfigError
from trafo.training import machine
from trafo.training.auto.text import SHAPES, Text, best_choice, choose, model_of, vocabulary_for
from trafo.training.config import MachineConfig, TrainConfig
from trafo.training.start import make_portable

texts = st.floats(1e3, 1e11)
work = st.floats(1e11, 1e18)


@given(texts, work)
def test_a_choice_fits_the_text_and_the_time(num_bytes, flops):
    text = Text(num_bytes)
    choice = best_choice(text, flops)
    model = model_of(choice.shape, choice.vocab)  # which checks itself
    batch = Workload(seq=model.context_length, batch_size=choice.batch_size)
    if choice.shape is not SHAPES[0]:
        assert choice.shape.parameters < 10 * text.tokens(choice.vocab)  # else it memorizes
        assert choice.steps * account(model, batch).flops <= 1.5 * flops
    assert choice.steps >= 1
    assert 256 < choice.vocab <= 32_768


@given(texts, work)
def test_more_time_never_means_a_smaller_model(num_bytes, flops):
    text = Text(num_bytes)
    less, more = best_choice(text, flops), best_choice(text, 100 * flops)
    assert more.shape.parameters >= less.shape.parameters


@given(texts, texts)
def test_more_text_never_means_a_smaller_vocabulary(one, other):
    low, high = sorted((one, other))
    assert vocabulary_for(low) <= vocabulary_for(high)


@pytest.fixture
def book(tmp_path: Path) -> str:
    path = tmp_path / "text.txt"
    path.write_text("so few words\n" * 50_000)
    return str(path)


def test_what_is_used_is_said_once(book: str, capsys: pytest.CaptureFixture[str]) -> None:
    options, only_shown = parse([book, "--model.num-layers", "5", "--optimizer.lr", "0.0123"], "")
    said = capsys.readouterr().err
    assert not only_shown
    assert said.count("\n") == 1
    for what in (
        "650 kB of text",
        f"measured {date.today().isoformat()}",
        f"vocabulary {options.model.vocab_size:,},",
        # As the flags say:
        f", 5 layers of {options.model.d_model} with {options.model.num_heads} heads",
        f"batch size {options.batch_size},",
        f"{options.steps:,} steps (about ",
        "zero-initialized",
        f"muon (learning rate muon {options.optimizer.muon_lr}, adamw 0.0123)",
        "linear schedule",
        "--show-config",
    ):
        assert what in said
    parse([book, "--budget", "90s"], "")
    assert "steps for 90s" in capsys.readouterr().err


def test_all_settings_are_shown_on_request(
    book: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    monkeypatch.chdir(tmp_path)
    flags = [book, "--seed", "7"]
    assert main(["train", *flags, "--show-config"]) == 0
    shown = capsys.readouterr().out
    assert not Path("runs").exists()
    recipe = Path(book).with_name("recipe.yaml")
    recipe.write_text(shown)
    assert load(TrainConfig, recipe) == parse(flags, "")[0]


def test_a_busy_machine_changes_nothing(
    book: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A kept peak decides, also in later processes: it is in a file. Until one is much higher."""
    monkeypatch.setenv("TRAFO_CACHE", str(tmp_path / "cache"))
    asked = TrainConfig(text=(book,), budget="60s")
    chosen = []
    for flops in (1e9, 1e12, 1.2e12, 1e8):
        monkeypatch.setattr(machine, "measured_peak_flops", lambda *_, flops=flops: flops)
        machine._peak_now.cache_clear()  # as in another process
        chosen.append(choose(asked))
    assert chosen[0] != chosen[1]
    assert chosen[1] == chosen[2] == chosen[3]
    assert machine.peak_of().measured == date.today().isoformat()
    for broken in ("", "[]", '{"a": 1}', "{"):
        machine.peak_file().write_text(broken)
        assert machine.peak_of().flops == 1e8
    assert choose(asked) != chosen[1]
    given = dataclasses.replace(asked, machine=MachineConfig(peak_flops=1e12))
    assert choose(given) == chosen[1]
    machine._peak_now.cache_clear()


def test_a_peak_that_cannot_be_kept_is_measured_each_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("TRAFO_CACHE", str(tmp_path / "file" / "cache"))
    monkeypatch.setattr(machine, "measured_peak_flops", lambda *_: 5.0)
    machine._peak_now.cache_clear()
    assert machine.peak_of().flops == 5.0
    machine._peak_now.cache_clear()


def test_a_gpu_is_the_default_where_there_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    assert machine.device_of(MachineConfig()) == "cpu"
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    monkeypatch.setattr("torch.accelerator.is_available", lambda: True)
    monkeypatch.setattr("torch.accelerator.current_accelerator", lambda: torch.device("cuda"))
    monkeypatch.setattr("torch.accelerator.device_count", lambda: 2)
    assert machine.device_of(MachineConfig()) == "cuda:0"
    assert machine.device_of(MachineConfig(), local_rank=1) == "cuda:1"
    assert machine.device_of(MachineConfig(device="cuda:1")) == "cuda:1"
    with pytest.raises(
        ConfigError, match=r"'cuda:2', which .* have; choose one of cpu, cuda, cuda:0, cuda:1"
    ):
        machine.device_of(MachineConfig(), local_rank=2)


@pytest.mark.parametrize("device", ["cuda", "cuda:1", "mps", "xpu", "meta", "warp:9"])
def test_a_device_that_is_not_there_is_refused(
    device: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("torch.accelerator.is_available", lambda: False)
    config = MachineConfig(device=device, dtype="auto")
    with pytest.raises(
        ConfigError, match=r"^machine\.device is '.*', which .* have; choose one of cpu$"
    ):
        machine.dtype_of(config)


def test_nothing_to_train_on():
    with pytest.raises(ConfigError, match="no text to train on"):
        choose(TrainConfig())


def peaks(monkeypatch: pytest.MonkeyPatch, **flops: float) -> None:
    """As if the machine had these peaks."""
    monkeypatch.setattr(
        machine, "measured_peak_flops", lambda _device, dtype, _rounds: flops[dtype]
    )
    machine.peak_file().unlink(missing_ok=True)
    machine._peak_now.cache_clear()


@pytest.mark.parametrize(("bfloat16", "expected"), [(2.2e11, "bfloat16"), (1.2e11, "float32")])
def test_auto_is_bfloat16_where_it_is_much_faster(
    monkeypatch: pytest.MonkeyPatch,
    book: str,
    capsys: pytest.CaptureFixture[str],
    bfloat16: float,
    expected: str,
) -> None:
    peaks(monkeypatch, float32=1e11, bfloat16=bfloat16)
    assert machine.dtype_of(MachineConfig(dtype="auto")) == expected
    assert machine.dtype_of(MachineConfig(dtype="float32")) == "float32"
    options, _ = parse([book], "")
    assert options.machine.dtype == expected
    assert f" {expected} FLOP/s" in capsys.readouterr().err
    asked, _ = parse([book, "--machine.dtype", "float32"], "")
    assert asked.machine.dtype == "float32"
    # A run has what was found, whatever machine it is resumed on.
    assert make_portable(TrainConfig(machine=MachineConfig(dtype="auto"))).machine.dtype == expected
    machine._peak_now.cache_clear()


def test_a_slow_product_is_timed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """bfloat16 is emulated on many processors; nobody wants to wait for twelve rounds of that."""
    clock = iter(range(0, 1000, 2))
    monkeypatch.setattr(machine, "perf_counter", lambda: next(clock))
    assert machine.measured_peak_flops(rounds=12) == 2 * 1024**3 / 2
    assert next(clock) == 4  # one product, begun at 0 and ended at 2
