"""`trafo export`: a model in a folder goes out in each format."""

import json

import pytest
import torch

from trafo.checkpoint.convert.gguf_file import load_gguf
from trafo.checkpoint.convert.hugging_face import save_hugging_face
from trafo.cli.main import main
from trafo.models import TransformerLM
from trafo.tokenizer import Tokenizer

VOCAB = {**{i: bytes([i]) for i in range(256)}, 256: b" t"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    torch.manual_seed(0)
    path = tmp_path_factory.mktemp("run") / "model"
    tokenizer = Tokenizer(VOCAB, [(b" ", b"t")], ["<|endoftext|>"])
    save_hugging_face(TransformerLM(258, 32, 16, 2, 2), path, tokenizer=tokenizer)
    return path


def export(folder, out, *flags):
    return main(["export", str(folder), "--out", str(out), *flags])


def test_each_format_is_written_and_told(folder, tmp_path, capsys):
    for to, name in (("hf", "folder"), ("gguf", "model"), ("llama2c", "weights")):
        assert export(folder, tmp_path / name, "--to", to) == 0
        out = capsys.readouterr().out
        assert str(tmp_path / name) in out
        assert "logits differ by at most 0 " in out
    assert (tmp_path / "folder" / "tokenizer.json").exists()
    assert load_gguf(tmp_path / "model").config.d_model == 16
    assert (tmp_path / "weights.tokenizer" / "trafo.json").exists()


def test_the_name_decides_and_half_precision_is_measured(folder, tmp_path):
    assert export(folder, tmp_path / "m.gguf", "--dtype", "float16", "--no-tokenizer") == 0
    parity = json.loads((tmp_path / "m.gguf.parity.json").read_text())
    assert parity["format"] == "gguf-float16"
    assert parity["largest_logit_difference"] > 0


def test_nothing_is_replaced_unasked(folder, tmp_path, capsys):
    mine = tmp_path / "thesis.bin"
    mine.write_text("years of work")
    assert export(folder, mine) == 2
    assert "thesis.bin: already exists; --overwrite replaces it" in capsys.readouterr().err
    assert mine.read_text() == "years of work"
    assert export(folder, mine, "--overwrite") == 0
    assert mine.read_bytes()[:4] == (16).to_bytes(4, "little")


def test_other_commands_take_what_was_exported(folder, tmp_path, capsys):
    """The same text, loss, size and ids, whichever form the model is in."""
    text = tmp_path / "text.txt"
    text.write_text("größer als gestern, kleiner als morgen.\n" * 3)
    names = ("folder", "model.gguf", "weights.bin")
    for name in names:
        assert export(folder, tmp_path / name) == 0
    for before, after in (
        (["generate"], ["--prompt", "Hi", "--temperature", "0", "--max-new-tokens", "9"]),
        (["eval"], [str(text), "--json"]),
        (["account"], ["--json"]),
        (["tokenizer", "encode"], ["--text", "größer"]),
    ):
        outputs = set()
        for path in (folder, *(tmp_path / name for name in names)):
            capsys.readouterr()
            assert main([*before, str(path), *after]) == 0
            outputs.add(capsys.readouterr().out.replace(str(path), "PATH"))
        assert len(outputs) == 1, before
