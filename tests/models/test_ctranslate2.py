"""CTranslate2's files: a small one written here, and a trained one whose translations are known."""

import struct
from pathlib import Path

import pytest
import torch
from benchmarks.ctranslate2_model import load_ctranslate2, opennmt_positions
from tests.shared import shared

from trafo.errors import FormatError
from trafo.generate.beam import beam_search_all
from trafo.generate.beam_config import BeamConfig

D, D_FF, SOURCE_VOCAB, VOCAB = 16, 24, 7, 9


def text(name: str) -> bytes:
    encoded = name.encode() + b"\0"
    return struct.pack("<H", len(encoded)) + encoded


def shapes() -> dict[str, tuple[int, ...]]:
    """One encoder layer, one decoder layer."""

    def linear(name: str, rows: int, columns: int) -> dict[str, tuple[int, ...]]:
        return {f"{name}/weight": (rows, columns), f"{name}/bias": (rows,)}

    def norm(name: str) -> dict[str, tuple[int, ...]]:
        return {f"{name}/layer_norm/gamma": (D,), f"{name}/layer_norm/beta": (D,)}

    found = {"encoder/embeddings/weight": (SOURCE_VOCAB, D)}
    found |= {"decoder/embeddings/weight": (VOCAB, D)} | linear("decoder/projection", VOCAB, D)
    for stack in ("encoder", "decoder"):
        layer = f"{stack}/layer_0"
        found |= norm(stack) | norm(f"{layer}/ffn") | norm(f"{layer}/self_attention")
        found |= linear(f"{layer}/self_attention/linear_0", 3 * D, D)
        found |= linear(f"{layer}/self_attention/linear_1", D, D)
        found |= linear(f"{layer}/ffn/linear_0", D_FF, D) | linear(f"{layer}/ffn/linear_1", D, D_FF)
    cross = "decoder/layer_0/attention"
    found |= norm(cross) | linear(f"{cross}/linear_0", D, D)
    return found | linear(f"{cross}/linear_1", 2 * D, D) | linear(f"{cross}/linear_2", D, D)


def write(path: Path, variables: dict[str, torch.Tensor], version: int = 2) -> None:
    content = struct.pack("<I", version) + text("TransformerBase")
    content += struct.pack("<II", 2, len(variables))
    for name, tensor in variables.items():
        content += text(name) + struct.pack("<B", tensor.ndim)
        content += b"".join(struct.pack("<I", size) for size in tensor.shape)
        content += struct.pack("<BI", 4, tensor.numel()) + tensor.numpy().tobytes()
    path.write_bytes(content)


@pytest.fixture
def variables() -> dict[str, torch.Tensor]:
    return {name: torch.randn(shape) for name, shape in sorted(shapes().items())}


def test_every_variable_has_its_place(tmp_path, variables):
    write(tmp_path / "model.bin", variables)
    model = load_ctranslate2(tmp_path / "model.bin", context_length=20)
    assert (model.config.num_encoder_layers, model.config.num_decoder_layers) == (1, 1)
    assert (model.config.d_ff, model.config.num_heads) == (D_FF, 8)
    assert sum(p.numel() for p in model.parameters()) == sum(v.numel() for v in variables.values())
    keys = model.decoder[0].cross_attn.k_proj
    assert keys.weight.equal(variables["decoder/layer_0/attention/linear_1/weight"][:D])
    assert model.decoder[0].ln3.bias.equal(variables["decoder/layer_0/ffn/layer_norm/beta"])
    assert model.encoder[0].ln2.weight.equal(variables["encoder/layer_0/ffn/layer_norm/gamma"])


def test_positions_are_counted_from_one_and_sines_come_first():
    table = opennmt_positions(3, 6).double()
    waves = 10_000 ** -(torch.arange(3).double() / 2)
    expected = torch.cat([(2 * waves).sin(), (2 * waves).cos()])
    torch.testing.assert_close(table[1], expected, atol=1e-6, rtol=1e-6)


def test_what_is_not_such_a_file_is_refused(tmp_path, variables):
    path = tmp_path / "model.bin"
    write(path, variables)
    whole = path.read_bytes()
    for content in (b"", b"\2\0", whole[:500], whole[:-1]):
        path.write_bytes(content)
        with pytest.raises(FormatError, match="not a CTranslate2 model, or cut off"):
            load_ctranslate2(path)
    write(path, variables, version=6)
    with pytest.raises(FormatError, match="CTranslate2 format 6"):
        load_ctranslate2(path)
    write(path, variables | {"decoder/scale": torch.ones(1)})
    with pytest.raises(FormatError, match="decoder/scale"):
        load_ctranslate2(path)


def test_a_trained_model_writes_what_ctranslate2_writes():
    """The translations and scores that came with the model."""
    model = load_ctranslate2(shared("aren/model.bin"))
    letters, latin = (
        shared(f"aren/{side}_vocabulary.txt").read_text(encoding="utf-8").split("\n")
        for side in ("source", "target")
    )
    sources = [[letters.index(letter) for letter in name] for name in ("آتزمون", "آزا")]
    found = beam_search_all(model, sources, end=2, start=1, config=BeamConfig(beam=2, n_best=2))
    names = [["".join(latin[i] for i in each.ids[:-1]) for each in best] for best in found]
    assert names == [["atzmon", "atzumon"], ["azza", "aza"]]
    scores = [found[0][0].score, *(each.score for each in found[1])]
    assert scores == pytest.approx([-0.15167, -0.1509, -0.2145], abs=1e-4)
