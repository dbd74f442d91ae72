"""Time to a given quality: nanoGPT's CPU setting on tinyshakespeare, and ours.

nanoGPT (a checkout of karpathy/nanoGPT, by `--nanogpt PATH`) trains as its README says for a CPU:
block 64, batch 12, 4 layers, 4 heads, 128 wide, 2,000 steps, AdamW at 1e-3. We train with
configs/tinyshakespeare.yaml. Both are whole commands, from the start of Python to its end, in turn;
for us that includes training the tokenizer and encoding the text. Both train on the first 90 % of
the characters and are measured on all of the other 10 %, in bits per byte: ours by `trafo eval`,
nanoGPT's by the mean loss of consecutive blocks, since its own estimate is a sample.
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from texts import SHARED

RECIPE = Path(__file__).parent.parent / "configs" / "tinyshakespeare.yaml"
NANOGPT_CPU = [
    "--device=cpu", "--compile=False", "--eval_iters=20", "--log_interval=100",
    "--block_size=64", "--batch_size=12", "--n_layer=4", "--n_head=4", "--n_embd=128",
    "--max_iters=2000", "--lr_decay_iters=2000", "--dropout=0.0",
]  # fmt: skip

# Run in nanoGPT's checkout: all of val.bin in blocks of 64, each character predicted once.
MEASURE_NANOGPT = """
import math, numpy, torch
from model import GPT, GPTConfig
saved = torch.load("out/ckpt.pt", weights_only=False)
model = GPT(GPTConfig(**saved["model_args"]))
model.load_state_dict(saved["model"])
model.eval()
ids = torch.from_numpy(numpy.fromfile("data/shakespeare_char/val.bin", numpy.uint16).astype(int))
total, count = 0.0, 0
with torch.inference_mode():
    for start in range(0, len(ids) - 1, 64 * 64):
        part = ids[start : start + 64 * 64 + 1]
        full = (len(part) - 1) // 64 * 64
        for x, y in ((part[:full].view(-1, 64), part[1 : full + 1].view(-1, 64)),
                     (part[full:-1][None], part[full + 1 :][None])):
            if x.numel():
                total += model(x, y)[1].item() * x.numel()
                count += x.numel()
print(total / count / math.log(2))
"""


def split(text: Path, folder: Path) -> tuple[Path, Path]:
    """nanoGPT's split: the first 90 % of the characters, and the rest."""
    characters = text.read_text(encoding="utf-8")
    border = int(0.9 * len(characters))
    parts = folder / "train.txt", folder / "validation.txt"
    parts[0].write_text(characters[:border], encoding="utf-8")
    parts[1].write_text(characters[border:], encoding="utf-8")
    return parts


def seconds_of(command: list[str], folder: Path) -> float:
    start = time.perf_counter()
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{' '.join(command)}\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}")
    return time.perf_counter() - start


def train_ours(folder: Path, training: Path, validation: Path, round_number: int) -> float:
    """A run with an empty cache."""
    cache = folder / f"cache-{round_number}"
    flags = ["--validation", str(validation), "--data.cache", str(cache)]
    out = ["--out", str(folder / f"run-{round_number}")]
    command = [sys.executable, "-m", "trafo", "train", str(training), "--config", str(RECIPE)]
    return seconds_of([*command, *flags, *out, "--quiet"], folder)


def bits_of_ours(run: Path, validation: Path) -> float:
    command = [sys.executable, "-m", "trafo", "eval", str(run), str(validation), "--json"]
    answer = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return float(json.loads(answer)["bits_per_byte"])


def prepare_nanogpt(checkout: Path, text: Path, folder: Path) -> Path:
    """A copy to work in, with its data made by its own script."""
    copy = folder / "nanogpt"
    data = copy / "data" / "shakespeare_char"
    data.mkdir(parents=True)
    (copy / "config").mkdir()
    for name in ("train.py", "model.py", "configurator.py", "config/train_shakespeare_char.py",
                 "data/shakespeare_char/prepare.py"):  # fmt: skip
        (copy / name).write_bytes((checkout / name).read_bytes())
    (data / "input.txt").write_bytes(text.read_bytes())
    prepare = data / "prepare.py"
    # Its download is not needed: the text is there.
    prepare.write_text(prepare.read_text().replace("import requests\n", ""))
    seconds_of([sys.executable, str(prepare)], copy)
    return copy


def train_nanogpt(copy: Path) -> float:
    script = ["train.py", "config/train_shakespeare_char.py", "--out_dir=out", *NANOGPT_CPU]
    return seconds_of([sys.executable, *script], copy)


def bits_of_nanogpt(copy: Path) -> float:
    command = [sys.executable, "-c", MEASURE_NANOGPT]
    done = subprocess.run(command, cwd=copy, capture_output=True, text=True, check=True)
    return float(done.stdout.split()[-1])


def measure(nanogpt: Path | None, rounds: int) -> None:
    text = SHARED / "text/tinyshakespeare.txt"
    if not text.exists():
        print("no tinyshakespeare.txt: learning is not compared")
        return
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        training, validation = split(text, folder)
        copy = None if nanogpt is None else prepare_nanogpt(nanogpt, text, folder)
        if copy is None:
            print("no nanoGPT: give a checkout of karpathy/nanoGPT with --nanogpt PATH")
        ours, theirs = [], []
        for number in range(rounds):
            ours.append(train_ours(folder, training, validation, number))
            if copy is not None:
                theirs.append(train_nanogpt(copy))
        bits = bits_of_ours(folder / "run-0", validation)
        print("\ntinyshakespeare, whole commands")
        print(f"  trafo    {statistics.median(ours):6.1f} s   {bits:.3f} bits per byte")
        if copy is not None:
            bits = bits_of_nanogpt(copy)
            ratios = [us / them for us, them in zip(ours, theirs, strict=True)]
            print(f"  nanoGPT  {statistics.median(theirs):6.1f} s   {bits:.3f} bits per byte")
            print(
                f"  trafo takes {statistics.median(ratios):.2f} of the time "
                f"({min(ratios):.2f} to {max(ratios):.2f})"
            )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nanogpt", type=Path, help="a checkout of karpathy/nanoGPT")
    parser.add_argument("--rounds", type=int, default=2)
    options = parser.parse_args()
    measure(options.nanogpt, options.rounds)
