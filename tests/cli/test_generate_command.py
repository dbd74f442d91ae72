"""`trafo generate` and `trafo eval` on a folder with a tiny model."""

import io
import json
import math
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from trafo.checkpoint.bundle import load_bundle
from trafo.checkpoint.convert.hugging_face import save_hugging_face
from trafo.checkpoint.snapshot import read_tensors, write_tensors
from trafo.cli import pipes
from trafo.cli.generate import write
from trafo.cli.main import main
from trafo.evaluate.evaluation import count_token_bytes, evaluate_ids
from trafo.generate import GenerationConfig, generate, generate_ids
from trafo.models import TransformerLM
from trafo.tokenizer import Tokenizer, encode_files

TEXT = "größer als gestern, kleiner als morgen.\n<|endoftext|>" * 9


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    torch.manual_seed(0)
    path = tmp_path_factory.mktemp("run") / "model"
    save_hugging_face(TransformerLM(257, 32, 16, 2, 2), path)
    Tokenizer({i: bytes([i]) for i in range(256)}, [], ["<|endoftext|>"]).save(path)
    return path


def expected(folder, prompts, **settings):
    bundle = load_bundle(folder)
    return generate(bundle.model, bundle.tokenizer, prompts, GenerationConfig(**settings))


def test_one_completion_is_streamed_and_its_speed_told(trafo, folder):
    code, out, err = trafo("generate", "--prompt", "Hi", "--max-new-tokens", 40, "--seed", 3)
    (done,) = expected(folder, ["Hi"], max_new_tokens=40, seed=3)
    assert code == 0
    assert out == f"Hi{done.text}\n"
    speed = err.splitlines()[-1]  # on a new machine it comes after a line about compiling
    assert speed.startswith(f"{len(done.ids)} tokens in ")
    assert ", the first after " in speed
    assert speed.endswith(" tokens/s")
    again = trafo("generate", "--prompt", "Hi", "--max-new-tokens", 40, "--seed", 3, "--no-echo")
    assert again[1] == f"{done.text}\n"


def test_prompts_and_samples_are_told_apart(trafo, folder, tmp_path):
    file = tmp_path / "prompts.txt"
    file.write_text("größer\n\n  two words\n")
    settings = ["--max-new-tokens", 5, "--num-samples", 2, "--top-k", 9]
    code, out, _ = trafo("generate", "--prompts", file, *settings)
    prompts = ["größer", "  two words"]
    done = expected(folder, prompts, max_new_tokens=5, num_samples=2, top_k=9)
    parts = [
        f"--- prompt {d.prompt + 1}, sample {d.sample + 1}\n{prompts[d.prompt]}{d.text}\n"
        for d in done
    ]
    assert code == 0
    assert out == "".join(parts)


def test_json_holds_ids_and_log_probabilities(trafo, folder):
    line = ["--prompt", "a", "b", "--json", "--logprobs", 2, "--max-new-tokens", 4]
    code, out, _ = trafo("generate", *line, "--temperature", 0)
    content = json.loads(out)
    done = expected(folder, ["a", "b"], logprobs=2, max_new_tokens=4, temperature=0.0)
    assert code == 0
    assert [c["prompt"] for c in content] == ["a", "b"]
    for entry, completion in zip(content, done, strict=True):
        assert entry["text"] == completion.text
        assert entry["ids"] == completion.ids
        assert entry["finish_reason"] == "length"
        assert entry["logprobs"] == pytest.approx(completion.logprobs)
        likeliest = [max(pairs.values()) for pairs in entry["alternatives"]]
        assert likeliest == pytest.approx(entry["logprobs"])


def test_without_a_prompt_a_text_begins(trafo):
    code, out, _ = trafo("generate", "--max-new-tokens", 3)
    assert code == 0
    assert out.endswith("\n")


def test_evaluation_of_text_and_of_its_tokens(trafo, folder, tmp_path):
    text = tmp_path / "text.txt"
    text.write_text(TEXT)
    bundle = load_bundle(folder)
    ids = bundle.tokenizer.encode_array(TEXT)
    lengths = count_token_bytes(bundle.tokenizer)
    wanted = evaluate_ids(bundle.model, ids, stride=10, byte_lengths=lengths)
    tokens = encode_files(bundle.tokenizer, text, tmp_path / "text.tokens").path
    for path in (text, tokens):
        code, out, _ = trafo("eval", path, "--stride", 10, "--json")
        result = json.loads(out)
        assert code == 0
        assert result["tokens"] == len(ids) - 1
        assert result["bytes"] == len(TEXT.replace("<|endoftext|>", "").encode()) - 1
        assert result["loss"] == pytest.approx(wanted.loss)
        assert result["perplexity"] == pytest.approx(math.exp(wanted.loss))
        assert result["bits_per_byte"] == pytest.approx(wanted.bits_per_byte)


def test_evaluation_as_a_table(trafo, tmp_path):
    text = tmp_path / "text.txt"
    text.write_text(TEXT)
    code, out, _ = trafo("eval", text, "--max-tokens", 64)
    rows = dict(line.rsplit(maxsplit=1) for line in out.splitlines())
    assert code == 0
    assert list(rows) == [
        "loss",
        "standard error",
        "perplexity",
        "bits per byte",
        "tokens",
        "bytes",
    ]
    assert rows["tokens"] == "64"


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--top-p", "2"], "top_p is 2.0; it must be more than 0 and at most 1"),
        (["--prompt", "a", "--prompts", "b"], "both --prompt and --prompts are given"),
        (["--logprobs", "1"], "--logprobs needs --json"),
        (["--prompts", "absent"], "absent: no such file"),
        (["--beam", "2", "--num-samples", "3"], "n_best 3 with a beam of 2; raise beam"),
        (["--beam", "2", "--top-p", "0.5"], "beam search takes no top_p"),
        (["--end-token", "</s>"], "the tokenizer has no special token '</s>'"),
    ],
)
def test_wrong_questions_get_one_line(trafo, arguments, complaint):
    code, _, err = trafo("generate", *arguments)
    assert code == 2
    assert complaint in err
    assert err.count("\n") == 1


def test_a_beam_of_one_is_greedy_and_the_best_of_a_beam_come_in_order(trafo):
    length = ("--prompt", "ab", "--max-new-tokens", 5, "--ignore-end")
    greedy = trafo("generate", *length, "--temperature", 0)[1]
    assert trafo("generate", *length, "--beam", 1)[1] == greedy
    code, out, _ = trafo("generate", *length, "--beam", 3, "--num-samples", 2, "--json")
    assert code == 0
    assert [done["sample"] for done in json.loads(out)] == [0, 1]
    assert [len(done["ids"]) for done in json.loads(out)] == [5, 5]


def test_wrong_texts_get_one_line(trafo, tmp_path):
    text = tmp_path / "a.txt"
    text.write_text("abc")
    other = Tokenizer({i: bytes([i]) for i in range(256)}, [])
    tokens = encode_files(other, text, tmp_path / "a.tokens").path
    for arguments, complaint in [
        ([tokens], "made by another tokenizer"),
        ([tokens, text], "one of them a token file"),
        ([text, "--stride", "0"], "--stride is 0; it must be at least 1"),
        ([text, "--stride", "99"], "stride is 99; it must be from 1 to the context, 32"),
        ([tmp_path / "absent"], "no such file"),
    ]:
        code, _, err = trafo("eval", *arguments)
        assert code == 2
        assert complaint in err
        assert err.count("\n") == 1
    empty = tmp_path / "empty.txt"
    empty.write_text("")
    assert "the text has 0 ids" in trafo("eval", empty)[2]
    prompts = tmp_path / "bad.txt"
    prompts.write_bytes(b"a\xff")
    assert "not UTF-8: byte 0xff at offset 1" in trafo("generate", "--prompts", prompts)[2]
    assert "has no prompts" in trafo("generate", "--prompts", empty)[2]


def test_help_does_not_wait_for_torch():
    program = """
import sys
from trafo.cli.main import main
assert main(["generate", "--help"]) == main(["eval", "--help"]) == 0
assert "torch" not in sys.modules
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "--kernel" in done.stdout


def test_a_prompt_from_a_pipe(trafo, folder, monkeypatch):
    for piped, prompt in (("größer\n", "größer"), ("a\n\n", "a\n"), ("", "")):
        stdin = io.TextIOWrapper(io.BytesIO(piped.encode()), encoding="utf-8")
        monkeypatch.setattr(sys, "stdin", stdin)
        code, out, _ = trafo("generate", "--max-new-tokens", 4)
        (done,) = expected(folder, [prompt], max_new_tokens=4)
        assert (code, out) == (0, f"{prompt}{done.text}\n")


@pytest.mark.timeout(60)
def test_prompts_that_never_end_or_never_begin_are_refused(trafo, tmp_path, monkeypatch):
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", "/dev/zero", tmp_path):
        code, _, err = trafo("generate", "--prompts", path)
        assert (code, err.count("\n")) == (2, 1)
        assert f"{path}: is a pipe, a folder or a device; save the prompts" in err
    monkeypatch.setattr("trafo.cli.generate._LONGEST_PROMPT", 1_000_000)
    with Path("/dev/zero").open(encoding="utf-8") as stdin:
        monkeypatch.setattr(sys, "stdin", stdin)
        code, _, err = trafo("generate")
    assert code == 2
    assert "stdin: the prompt has more than 1,000,000 characters" in err


def test_a_slow_pipe_is_waited_for_aloud(trafo, monkeypatch):
    read, write = os.pipe()
    monkeypatch.setattr(pipes, "_SECONDS_TO_WAIT", 0.0)
    wait = pipes.wait_for_stdin

    def wait_and_write(what):
        wait(what)  # nothing is there yet
        os.write(write, b"Hi")
        os.close(write)

    monkeypatch.setattr("trafo.cli.generate.wait_for_stdin", wait_and_write)
    with os.fdopen(read, encoding="utf-8") as stdin:
        monkeypatch.setattr(sys, "stdin", stdin)
        code, out, err = trafo("generate", "--max-new-tokens", 1)
    assert code == 0
    assert out.startswith("Hi")
    assert err.startswith("waiting for the prompt on standard input")


def test_the_latest_run_unless_one_is_named(trafo, folder, tmp_path, monkeypatch, capfdbinary):
    monkeypatch.chdir(tmp_path)
    assert main(["generate", "--prompt", "Hi"]) == 2
    assert b"runs/latest: no such run; `trafo runs`" in capfdbinary.readouterr().err
    (done,) = expected(folder, ["Hi"], max_new_tokens=3)
    for latest, argv in ((folder, []), (tmp_path, [str(folder)])):
        (tmp_path / "runs").mkdir(exist_ok=True)
        (tmp_path / "runs" / "latest").unlink(missing_ok=True)
        (tmp_path / "runs" / "latest").symlink_to(latest)
        assert main(["generate", "--max-new-tokens", "3", "--prompt", "Hi", *argv]) == 0
        assert capfdbinary.readouterr().out.decode() == f"Hi{done.text}\n"


def test_a_chat_goes_on_from_what_both_have_written(trafo, folder, monkeypatch):
    lines = ["Hi", "", "/new", "größer"]
    stdin = io.TextIOWrapper(io.BytesIO("\n".join(lines).encode()), encoding="utf-8")
    monkeypatch.setattr(sys, "stdin", stdin)
    code, out, err = trafo("chat", "--max-new-tokens", 4, "--ignore-end", "--stop", "\n")
    assert code == 0
    settings = {"max_new_tokens": 4, "temperature": 0.8, "ignore_end": True, "stop": ("\n",)}
    (first,) = expected(folder, ["Hi"], seed=0, **settings)
    (second,) = expected(folder, ["Hi" + first.text], seed=1, **settings)
    (third,) = expected(folder, ["größer"], seed=3, **settings)
    assert out == f"{first.text}\n{second.text}\n{third.text}\n"
    assert "Ctrl-D" in err
    assert trafo("chat", "--num-samples", 2)[0] == 2


def test_a_chat_template_makes_messages_of_what_is_typed(folder, tmp_path, monkeypatch, capfd):
    model = tmp_path / "with template"
    shutil.copytree(folder, model)
    source = "{% for m in messages %}{{ m.role[0] }}{{ m.content }}{{ eos_token }}{% endfor %}a"
    (model / "chat_template.jinja").write_text(source)
    line = ["chat", str(model), "--max-new-tokens", "3", "--ignore-end", "--temperature", "0"]

    def chat(*more):
        stdin = io.TextIOWrapper(io.BytesIO(b"Hi\n<|endoftext|>"), encoding="utf-8")
        monkeypatch.setattr(sys, "stdin", stdin)
        return main([*line, *more]), *capfd.readouterr()

    settings = {"max_new_tokens": 3, "temperature": 0.0, "ignore_end": True}
    bundle = load_bundle(folder)
    first = [*b"sx", 256, *b"uHi", 256, *b"a"]
    (one,) = generate_ids(bundle.model, [first], GenerationConfig(**settings))
    answer = bundle.tokenizer.decode(one.ids)
    second = [*first, *answer.encode(), 256, *b"u<|endoftext|>", 256, *b"a"]
    (two,) = generate_ids(bundle.model, [second], GenerationConfig(**settings))
    code, out, err = chat("--system", "x")
    assert (code, out) == (0, f"{answer}\n{bundle.tokenizer.decode(two.ids)}\n")
    assert "the model answers" in err
    plain = chat("--no-template")
    assert "the model continues" in plain[2]
    code, _, err = chat("--no-template", "--system", "x")
    assert code == 2
    assert "--system needs a chat template" in err


@pytest.mark.parametrize("verb", ["generate", "eval", "chat"])
def test_the_number_of_threads_can_be_set(trafo, tmp_path, verb):
    text = tmp_path / "text.txt"
    text.write_text(TEXT)
    before = torch.get_num_threads()
    try:
        arguments = [text] if verb == "eval" else ["--max-new-tokens", 2]
        assert trafo(verb, *arguments, "--threads", 2)[0] == 0
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)
    code, _, err = trafo(verb, *arguments, "--threads", 0)
    assert (code, err) == (2, "error: --threads is 0; it must be at least 1\n")


def test_weights_that_are_not_numbers_are_refused(tmp_path, capsys):
    path = tmp_path / "model"
    save_hugging_face(TransformerLM(257, 32, 16, 2, 2), path)
    weights = read_tensors(path / "model.safetensors")
    weights["model.layers.0.mlp.down_proj.weight"][0, 0] = math.nan
    write_tensors(path / "model.safetensors", weights)
    Tokenizer({i: bytes([i]) for i in range(256)}, [], ["<|endoftext|>"]).save(path)
    for flags in (["--temperature", "0"], ["--top-p", "0.9"], ["--kernel", "readable"]):
        assert main(["generate", str(path), "--prompt", "a", *flags]) == 2
        out, err = capsys.readouterr()
        assert err.splitlines()[-1].startswith("error: the model computes NaN or infinity")
        assert out == "a\n"  # so that the error has a line of its own


def test_control_characters_do_not_reach_a_terminal(monkeypatch):
    """ESC [ 2 J would clear the screen; line ends and tabs stay, and so does what is piped."""
    text = "a\x1b[2J\tb\r\n\x7f\x9bö"
    for is_terminal, shown in ((True, "a␛[2J\tb␍\n␡\ufffdö"), (False, text)):
        out = io.TextIOWrapper(io.BytesIO(), encoding="utf-8")
        out.isatty = lambda is_terminal=is_terminal: is_terminal
        monkeypatch.setattr(sys, "stdout", out)
        write(text)
        assert out.buffer.getvalue().decode() == shown
