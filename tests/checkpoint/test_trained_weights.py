"""Small trained models in a clone: `transformers` said what they compute, and trafo agrees.

`tests/fixtures/make_weights.py` says how the files were made.
"""

import json
from pathlib import Path

import pytest
import torch

from trafo.checkpoint.bundle import load_bundle
from trafo.checkpoint.export import export_model
from trafo.generate import GenerationConfig, generate

FIXTURES = Path(__file__).parents[1] / "fixtures"
FOLDERS = ["sonnet-llama", "sonnet-gpt2"]


def check(path, expected):
    """Logits and greedy text of whatever is at `path`."""
    for fast in (False, True):
        bundle = load_bundle(path, fast=fast)
        assert bundle.tokenizer.encode(expected["prompt"]) == expected["ids"]
        with torch.no_grad():
            logits = bundle.model(torch.tensor([expected["ids"]]))[0]
        for position, row in expected["logits"].items():
            torch.testing.assert_close(
                logits[int(position)], torch.tensor(row), atol=2e-4, rtol=2e-4
            )
        for kernel in ("readable", "compiled"):
            config = GenerationConfig(temperature=0.0, max_new_tokens=16, kernel=kernel)
            (done,) = generate(bundle.model, bundle.tokenizer, [expected["prompt"]], config)
            assert done.text == expected["greedy"]


@pytest.mark.parametrize("name", FOLDERS)
def test_trained_weights_compute_what_transformers_says(name):
    folder = FIXTURES / name
    expected = json.loads((folder / "expected.json").read_text())
    assert max(max(row) for row in expected["logits"].values()) > 5  # it has learned something
    check(folder, expected)
    assert sum(file.stat().st_size for file in folder.glob("*.safetensors")) < 60_000


@pytest.mark.parametrize(
    ("name", "out"),
    [("sonnet-llama", "a.gguf"), ("sonnet-llama", "a.bin"), ("sonnet-gpt2", "a.gguf")],
)
def test_so_they_do_in_other_formats(tmp_path, name, out):
    pytest.importorskip("gguf")
    bundle = load_bundle(FIXTURES / name)
    if out == "a.bin":  # llama2.c computes with this eps
        assert bundle.model.config.norm_eps == 1e-5
    export_model(bundle.model, tmp_path / out, tokenizer=bundle.tokenizer)
    check(tmp_path / out, json.loads((FIXTURES / name / "expected.json").read_text()))
