"""`trafo account`: answers, refusals, and that every model's own fields are flags."""

import json
import re

import pytest

from trafo.cli.main import main
from trafo.config import fields_table
from trafo.models import CONFIGS

XL_SHAPE = "--vocab-size 50257 --context-length 1024 --num-layers 48 --d-model 1600 --num-heads 25"


def run(line, capsys):
    code = main(["account", *line.split()])
    out, err = capsys.readouterr()
    return code, out, err


def answers(line, capsys):
    code, out, _ = run(f"{line} --json", capsys)
    assert code == 0
    return json.loads(out)


def test_the_known_answers_of_gpt2_xls_shape(capsys):
    result = answers(f"transformer-lm {XL_SHAPE} --d-ff 6400", capsys)
    assert result["parameters"] == 2_127_057_600
    assert f"{result['memory']['parameters'] / 1e9:.2f}" == "8.51"
    assert f"{result['flops']['forward'] / 1e12:.3f}" == "4.513"
    assert result["flops"]["backward"] == 2 * result["flops"]["forward"]


def test_a_short_time_is_not_zero(capsys):
    """A token of gpt2 at 312 TFLOP/s: FLOPs divided by FLOP/s, in a unit that shows it."""
    line = "gpt2 --phase decode --length 1 --peak-flops 312e12"
    seconds = answers(line, capsys)["flops"]["forward"] / 312e12
    _, out, _ = run(line, capsys)
    assert re.search(rf"one step +{seconds * 1e9:.0f} ns", out), out
    _, out, _ = run("gpt2 --phase decode --length 1 --peak-flops 1e6", capsys)
    assert re.search(r"speed +[\dm ]+s per token", out), out


def test_the_json_adds_up(capsys):
    result = answers("encoder-decoder --source-length 20 --length 30", capsys)
    parts = result["parts"]
    assert sum(part["parameters"] for part in parts) == result["parameters"]
    assert sum(part["forward_flops"] for part in parts) == result["flops"]["forward"]
    assert sum(part["kept_bytes"] for part in parts) == result["memory"]["activations"]
    for part in parts:
        products = [2 * p["m"] * p["n"] * p["p"] * p["times"] for p in part["products"]]
        assert part["layers"] * sum(products) == part["forward_flops"]


def test_the_table_shows_parts_products_and_answers(capsys):
    line = "gpt2 --products --memory 80GB --peak-flops 19.5e12 --utilisation 0.5 --steps 1000"
    code, out, _ = run(line, capsys)
    assert code == 0
    for word in ("124,439,808", "feed-forward", "1024 x 768 x 3072", "largest batch in 80.0 GB"):
        assert word in out
    for line in (
        "attention: scores +1024 x 64 x 1024",
        "attention: weighted mean +1024 x 1024 x 64",
    ):
        assert re.search(line, out)
    assert "at 50 % of 19.50 TFLOP/s" in out
    assert max(map(len, out.splitlines())) <= 80


@pytest.mark.parametrize("phase", ["prefill", "decode"])
@pytest.mark.parametrize("model", CONFIGS)
def test_every_model_in_every_phase(model, phase, capsys):
    result = answers(f"{model} --phase {phase} --memory 8GB", capsys)
    assert result["flops"]["backward"] == 0
    assert result["memory"]["cache"] > 0
    assert result["largest_batch"] > 1


@pytest.mark.parametrize("model", CONFIGS)
def test_every_field_of_a_model_is_a_flag_with_its_own_help(model, capsys):
    code, out, _ = run(f"{model} --help", capsys)
    words = " ".join(out.replace("│", " ").split())
    assert code == 0
    for setting in fields_table(CONFIGS[model]):
        assert setting.flag in words
        assert setting.help.split(";")[0] in words


def test_a_yaml_file_and_flags_over_it(tmp_path, capsys):
    file = tmp_path / "model.yaml"
    file.write_text("d_model: 64\nnum_heads: 4\ntied_head: true\nd_ff: null\nqk_norm: false\n")
    result = answers(f"{file} --num-layers 7", capsys)
    assert (result["model"], result["config"]["d_model"]) == ("transformer-lm", 64)
    assert (result["config"]["num_layers"], result["config"]["tied_head"]) == (7, True)


@pytest.mark.parametrize(
    ("architecture", "branch"),
    [
        ("transformer-lm", "model"),
        ("gpt2", "gpt2"),
        ("encoder-decoder", "encoder_decoder"),
        ("recurrent", "recurrent"),
    ],
)
def test_the_config_of_a_run(architecture, branch, tmp_path, capsys):
    file = tmp_path / "config.yaml"
    text = f"steps: 9\narchitecture: {architecture}\nmodel:\n  d_model: 64\n"
    file.write_text(f"{text}{branch}:\n  d_model: 96\n" if branch != "model" else text)
    result = answers(f"{file} --length 8", capsys)
    expected = 64 if branch == "model" else 96
    assert (result["model"], result["config"]["d_model"]) == (architecture, expected)


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        ("d_modell: 64", "model.yaml: unknown key d_modell; did you mean d_model?"),
        ("d_model: wide", "model.yaml: d_model: expected int, got 'wide'"),
        ("name: gpt3", "unknown model 'gpt3'; did you mean gpt2?"),
        ("- 1", "is a list"),
        ("a: [", "is not YAML"),
    ],
)
def test_a_bad_yaml_file_is_refused_in_one_line(content, complaint, tmp_path, capsys):
    file = tmp_path / "model.yaml"
    file.write_text(content)
    code, out, err = run(str(file), capsys)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert complaint in err


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ("gtp2-xl", "unknown model 'gtp2-xl'; did you mean gpt2-xl?"),
        ("llama", "unknown model 'llama'; choose one of"),
        ("nowhere.yaml", "nowhere.yaml: cannot be read: no such file"),
        ("gpt2 --window 5", "unknown flag --window"),
        ("gpt2 --d-model 100", "not divisible by num_heads"),
        ("gpt2 --context-length 0", "context_length is 0"),
        ("recurrent --length 0", "seq is 0"),
        ("gpt2 --batch-size -1", "batch_size is -1"),
        ("gpt2 --steps 0", "steps is 0"),
        ("gpt2 --memory lots", "'lots' is not a size"),
        ("gpt2 --peak-flops 0", "peak_flops is 0"),
        ("gpt2 --peak-flops 1e12 --utilisation 50", "utilisation is 50"),
        ("gpt2 --picture shares.txt", "cannot draw"),
        ("gpt2 --picture nowhere/shares.png", "no such folder"),
        ("gpt2 --lengths 1 2", "unknown flag --lengths; did you mean --length?"),
        ("gpt2 --measure --phase decode", "cannot measure decode"),
        ("complexity --lengths 64", "lengths are 64"),
    ],
)
def test_nonsense_is_refused_in_one_line(line, complaint, capsys):
    code, out, err = run(line, capsys)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert complaint in err


@pytest.mark.parametrize("model", ["transformer-lm", "gpt2-xl", "encoder-decoder", "recurrent"])
def test_the_picture_of_the_shares(model, tmp_path, capsys):
    code, _, _ = run(f"{model} --picture {tmp_path / 'shares.png'}", capsys)
    assert code == 0
    assert (tmp_path / "shares.png").read_bytes().startswith(b"\x89PNG")


def test_complexity_prints_theory_beside_measurement(tmp_path, capsys):
    picture = tmp_path / "growth.png"
    line = f"complexity --lengths 64 256 --d-model 8 --window 8 --picture {picture}"
    code, out, _ = run(line, capsys)
    assert code == 0
    assert picture.read_bytes().startswith(b"\x89PNG")
    for word in ("O(n² d)", "O(r n d)", "O(n d²)", "O(k n d²)", "restricted, r = 8"):
        assert word in out
    rows = answers("complexity --lengths 64 256 --d-model 8", capsys)
    assert [row["expected"] for row in rows] == [2, 1, 1, 1]


def test_measure_compares_the_model_that_was_asked_for(capsys):
    line = "transformer-lm --measure --d-model 64 --num-heads 4 --batch-size 4"
    [result] = answers(line, capsys)
    assert result["measured"] > 0
    assert result["error"] == pytest.approx(result["predicted"] / result["measured"] - 1)
