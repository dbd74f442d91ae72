"""Beam search with 5 beams over 1,000 sentences, against Hugging Face's Marian.

    python benchmarks/translation_marian.py [--data FOLDER] [--run RUN] [--threads 1 2]

One trained model in both: 3 + 3 layers, d_model 128, d_ff 512, 4 heads, post-norm, 5,000 tokens,
whose logits are compared first. It is trained here, for about five minutes; `--run` keeps it, and
the next time it is used. The sentences are those of Multi30k's test2016, from ids to ids, and each
translation ends where the model ends it. Marian's `generate` has its KV cache, stops as trafo does
(`early_stopping`). It runs twice: plainly, in batches of the given order with its default
attention; and with the batch size, order and attention with which it is fastest.
"""

import argparse
import time
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch

from timing import Contenders, compare, silence
from trafo.checkpoint.bundle import load_bundle
from trafo.data.pairs import read_lines
from trafo.data.prepare_pairs import TranslationConfig
from trafo.generate.beam import beam_search_all
from trafo.generate.beam_config import BeamConfig
from trafo.models import EncoderDecoder, EncoderDecoderConfig
from trafo.optim.config import OptimizerConfig, ScheduleConfig
from trafo.training.config import TrainConfig, WatchConfig
from trafo.training.start import train

DATA = Path("../shared/data/multi30k")
SEARCH = BeamConfig(beam=5, max_ratio=0.0, max_extra=80)
SHAPE = EncoderDecoderConfig(
    source_vocab_size=5000, target_vocab_size=5000, context_length=128, d_model=128,
    num_encoder_layers=3, num_decoder_layers=3, num_heads=4, d_ff=512, norm_placement="post",
    final_norms=False, attention_bias=True, shared_embeddings="all",
)  # fmt: skip

SIZES = (16, 32, 64, 128)
PLAIN = 32
"""sentences in a batch, when nothing is tried"""

Ids = list[int]


@dataclass(frozen=True)
class Setting:
    """How Marian is run."""

    batch_size: int
    is_sorted: bool
    attention: str

    def __str__(self) -> str:
        order = "sorted by length" if self.is_sorted else "in the given order"
        return f"batches of {self.batch_size}, {order}, {self.attention} attention"


def train_one(data: Path, folder: Path) -> None:
    """A model that Marian can hold."""
    config = TrainConfig(
        pairs=(str(data / "train.en"), str(data / "train.de")),
        validation=(str(data / "val.en"), str(data / "val.de")),
        out=folder, steps=600, label_smoothing=0.1, architecture="encoder-decoder",
        encoder_decoder=SHAPE, translation=TranslationConfig(lowercase=True, batch_tokens=2500),
        optimizer=OptimizerConfig(
            name="muon", lr=0.004, muon_lr=0.015, schedule=ScheduleConfig(name="linear", decay=0.9)
        ),
        watch=WatchConfig(bleu_sentences=0, sample_every=0),
    )  # fmt: skip
    train(config)


def marian(ours: EncoderDecoder, end: int) -> Any:
    """The same weights in Hugging Face's model; its sinusoids are a table, which is ours."""
    from transformers import MarianConfig, MarianMTModel

    shape = ours.config
    config = MarianConfig(
        vocab_size=shape.target_vocab_size, d_model=shape.d_model,
        encoder_layers=shape.num_encoder_layers, decoder_layers=shape.num_decoder_layers,
        encoder_ffn_dim=shape.d_ff, decoder_ffn_dim=shape.d_ff,
        encoder_attention_heads=shape.num_heads, decoder_attention_heads=shape.num_heads,
        activation_function="relu", scale_embedding=True,
        max_position_embeddings=shape.context_length, pad_token_id=shape.padding_id,
        eos_token_id=end, decoder_start_token_id=end, forced_eos_token_id=None,
    )  # fmt: skip
    model = MarianMTModel(config).eval()
    weights = ours.state_dict()
    table = weights["target_embeddings.weight"]
    with torch.no_grad():
        model.model.shared.weight.copy_(table)
        for stack in (model.model.encoder, model.model.decoder):
            stack.embed_positions.weight.copy_(ours.positions.table)
        for name, tensor in model.model.named_parameters():
            kind, _, rest = name.partition(".layers.")
            if rest:
                tensor.copy_(weights[f"{kind}.{_our_name(kind, rest)}"])
    model.tie_weights()
    return model


def _our_name(stack: str, name: str) -> str:
    for theirs, our in {
        "self_attn_layer_norm": "ln1",
        "encoder_attn_layer_norm": "ln2",
        "final_layer_norm": "ln2" if stack == "encoder" else "ln3",
        "encoder_attn": "cross_attn",
        "out_proj": "output_proj",
        "fc1": "ffn.w1",
        "fc2": "ffn.w2",
    }.items():
        name = name.replace(theirs, our)
    return name


@torch.inference_mode()
def check_logits(ours: EncoderDecoder, theirs: Any, sources: Sequence[Ids]) -> None:
    """Both give the same logits, padding among the sources or not."""
    source, mask = _padded(sources[:20], ours.config.padding_id)
    target = source[:, :12]
    found = theirs(input_ids=source, attention_mask=mask, decoder_input_ids=target).logits
    apart = float((found - ours(source, target)).abs().max())
    print(f"logits of both models differ by at most {apart:.1e}")
    assert apart < 1e-4


def _padded(sources: Sequence[Ids], padding: int) -> tuple[torch.Tensor, torch.Tensor]:
    longest = max(map(len, sources))
    ids = torch.tensor([source + [padding] * (longest - len(source)) for source in sources])
    lengths = torch.tensor([len(source) for source in sources])
    return ids, (torch.arange(longest) < lengths[:, None]).long()


@torch.inference_mode()
def generate(model: Any, sources: Sequence[Ids], setting: Setting) -> list[Ids]:
    """Marian's translations, in the order of the sources."""
    padding, end = model.config.pad_token_id, model.config.eos_token_id
    model.set_attn_implementation(setting.attention)
    order = list(range(len(sources)))
    if setting.is_sorted:
        order.sort(key=lambda i: -len(sources[i]))
    found: list[Ids] = [[] for _ in sources]
    for first in range(0, len(order), setting.batch_size):
        batch = order[first : first + setting.batch_size]
        ids, mask = _padded([sources[i] for i in batch], padding)
        out = model.generate(
            input_ids=ids, attention_mask=mask, num_beams=SEARCH.beam, early_stopping=True,
            length_penalty=SEARCH.length_penalty, max_new_tokens=SEARCH.max_extra,
            do_sample=False, use_cache=True,
        )  # fmt: skip
        for place, row in zip(batch, out[:, 1:].tolist(), strict=True):
            found[place] = row[: row.index(end) + 1] if end in row else row
    return found


def fastest(model: Any, sources: Sequence[Ids], sizes: Sequence[int]) -> Setting:
    """The setting with which Marian is fastest, each tried once on a third of the sentences."""
    seconds: dict[Setting, float] = {}
    sources = sources[::3]
    generate(model, sources[:32], Setting(32, is_sorted=True, attention="sdpa"))
    for size, is_sorted, attention in product(sizes, (True, False), ("sdpa", "eager")):
        setting = Setting(size, is_sorted, attention)
        start = time.perf_counter()
        with silence():
            generate(model, sources, setting)
        seconds[setting] = time.perf_counter() - start
        print(f"  Marian, {setting}: {len(sources) / seconds[setting]:.1f} sentences/s")
    return min(seconds, key=lambda setting: seconds[setting])


class Bench:
    """Both models and the sentences."""

    def __init__(self, run: Path, data: Path) -> None:
        bundle = load_bundle(run)
        readable = load_bundle(run, fast=False).model.eval()
        assert isinstance(readable, EncoderDecoder)
        self.ours, self.end = bundle.model.eval(), bundle.tokenizer.end
        self.theirs = marian(readable, self.end)
        encoded = bundle.tokenizer.encode_source(read_lines(data / "test_2016_flickr.en"))
        self.sources = [encoded[row].tolist() for row in range(len(encoded))]
        check_logits(readable, self.theirs, self.sources)
        self.exact = readable.double()

    def compare(self, rounds: int, threads: int, sizes: Sequence[int]) -> None:
        """Speed and translations."""
        torch.set_num_threads(threads)
        setting = fastest(self.theirs, self.sources, sizes)
        print(f"Marian is fastest with {setting}")
        found: dict[str, list[Ids]] = {}

        def run_ours() -> None:
            all_found = beam_search_all(self.ours, self.sources, self.end, SEARCH)
            found["trafo"] = [list(hypotheses[0].ids) for hypotheses in all_found]

        def run_theirs() -> None:
            found["Marian"] = generate(self.theirs, self.sources, setting)

        plain = Setting(PLAIN, is_sorted=False, attention="sdpa")
        number = len(self.sources)
        contenders: Contenders = {
            "trafo": run_ours,
            "Marian, as it is fastest": run_theirs,
            "Marian, plainly": lambda: generate(self.theirs, self.sources, plain),
        }
        what = f"beam 5, {number:,} sentences, 3 + 3 layers of 128, {threads} thread(s)"
        compare(what, contenders, amount=number, unit="sentences", rounds=rounds)
        self.show_agreement(found["trafo"], found["Marian"])

    def show_agreement(self, ours: list[Ids], theirs: list[Ids]) -> None:
        """How many are the same; of the others, the scores in float64."""
        other = [i for i, (a, b) in enumerate(zip(ours, theirs, strict=True)) if a != b]
        print(f"  {len(ours) - len(other):,} of {len(ours):,} translations are the same")
        for i in other:
            scores = f"{self.score(i, ours[i]):.6f}, Marian's {self.score(i, theirs[i]):.6f}"
            print(f"    sentence {i + 1}: score {scores}")

    @torch.inference_mode()
    def score(self, i: int, ids: Ids) -> float:
        """Log-probability by length."""
        target = torch.tensor([[self.end, *ids[:-1]]])
        logits = self.exact(torch.tensor([self.sources[i]]), target)[0]
        total = logits.log_softmax(-1)[torch.arange(len(ids)), ids].sum()
        return SEARCH.score(float(total), len(ids))


def measure(
    rounds: int = 5,
    threads: Sequence[int] = (1,),
    data: Path = DATA,
    run: Path | None = None,
    sizes: Sequence[int] = SIZES,
) -> None:
    if not (data / "train.en").exists():
        print(f"no Multi30k in {data}: Hugging Face's Marian is left out")
        return
    with TemporaryDirectory() as folder:
        run = run or Path(folder, "run")
        if not run.exists():
            train_one(data, run)
        bench = Bench(run, data)
    for number in threads:
        bench.compare(rounds, number, sizes)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--data", type=Path, default=DATA)
    parser.add_argument("--run", type=Path, help="the run, trained if it is not there")
    parser.add_argument("--batch-sizes", type=int, nargs="+", default=SIZES)
    options = parser.parse_args()
    measure(options.rounds, options.threads, options.data, options.run, options.batch_sizes)
