"""Beam search with 5 beams over 1,000 sentences, against Hugging Face's Marian and CTranslate2.

Marian: 3 + 3 layers, d_model 128, d_ff 512, 4 heads, 5,000 tokens, random weights, the same in
both; sources have lengths like image captions, and every translation has 20 tokens (the end token
is forbidden), so that both do the same work. CTranslate2: a trained model that writes Arabic names
in Latin letters (6 + 6 layers, d_model 32), in float32, as `--aren` names it; names are random
letters. Both times the translations are compared.
"""

import argparse
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from timing import Contenders, compare
from trafo.checkpoint.convert import load_ctranslate2
from trafo.fast import accelerate
from trafo.generate.beam import beam_search_all
from trafo.generate.beam_config import BeamConfig
from trafo.models import EncoderDecoder, EncoderDecoderConfig

BEAM, SENTENCES, TOKENS = 5, 1000, 20
VOCAB, PADDING, END = 5000, 0, 1
AREN = Path("../shared/data/aren")


def marian() -> Any:
    from transformers import MarianConfig, MarianMTModel

    config = MarianConfig(
        vocab_size=VOCAB, d_model=128, encoder_layers=3, decoder_layers=3, encoder_ffn_dim=512,
        decoder_ffn_dim=512, encoder_attention_heads=4, decoder_attention_heads=4,
        activation_function="relu", scale_embedding=True, max_position_embeddings=128,
        pad_token_id=PADDING, eos_token_id=END, decoder_start_token_id=END,
        forced_eos_token_id=None, init_std=0.1,
    )  # fmt: skip
    model = MarianMTModel(config).eval()
    model.final_logits_bias[0, [PADDING, END]] = -1e9
    return model


def same_in_trafo(model: Any) -> EncoderDecoder:
    """The same weights, in our model."""
    ours = EncoderDecoder(
        EncoderDecoderConfig(
            source_vocab_size=VOCAB, target_vocab_size=VOCAB, context_length=128, d_model=128,
            num_encoder_layers=3, num_decoder_layers=3, num_heads=4, d_ff=512, final_norms=False,
            attention_bias=True, head_bias=True, padding_id=PADDING, dropout=0.0,
        )
    )  # fmt: skip
    weights = {
        "lm_head.weight": model.lm_head.weight,
        "lm_head.bias": model.final_logits_bias[0],
        "source_embeddings.weight": model.model.shared.weight,
        "target_embeddings.weight": model.model.shared.weight,
    }
    for name, tensor in model.model.state_dict().items():
        stack, _, rest = name.partition(".layers.")
        if rest:
            weights[f"{stack}.{_our_name(stack, rest)}"] = tensor
    ours.load_state_dict(weights)
    ours.positions.table.copy_(model.model.encoder.embed_positions.weight)
    return accelerate(ours.eval())


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


def measure_marian(rounds: int) -> None:
    theirs = marian()
    ours = same_in_trafo(theirs)
    chance = random.Random(0)
    sources = [
        [chance.randrange(2, VOCAB) for _ in range(max(4, round(chance.gauss(14, 4))))] + [END]
        for _ in range(SENTENCES)
    ]
    sources.sort(key=len)  # for Marian, whose batches we make; trafo sorts by itself
    config = BeamConfig(beam=BEAM, max_ratio=0.0, max_extra=TOKENS)
    found: dict[str, list[list[int]]] = {}

    def run_ours() -> None:
        all_found = beam_search_all(ours, sources, END, config)
        found["trafo"] = [list(hypotheses[0].ids) for hypotheses in all_found]

    def run_theirs() -> None:
        found["Marian"] = []
        for start in range(0, SENTENCES, 100):
            found["Marian"] += _generate(theirs, sources[start : start + 100])

    contenders: Contenders = {"trafo": run_ours, "Hugging Face Marian": run_theirs}
    what = f"beam {BEAM}, {SENTENCES:,} sentences, 3 + 3 layers of 128"
    compare(what, contenders, amount=SENTENCES, unit="sentences", rounds=rounds)
    _show_agreement(found["trafo"], found["Marian"])


@torch.inference_mode()
def _generate(model: Any, sources: Sequence[list[int]]) -> list[list[int]]:
    longest = max(map(len, sources))
    ids = torch.tensor([source + [PADDING] * (longest - len(source)) for source in sources])
    out = model.generate(
        input_ids=ids,
        attention_mask=ids != PADDING,
        num_beams=BEAM,
        max_new_tokens=TOKENS,
        min_new_tokens=TOKENS,
        do_sample=False,
    )
    return [row[1:] for row in out.tolist()]


def measure_ctranslate2(folder: Path, rounds: int, threads: int) -> None:
    import ctranslate2

    theirs = ctranslate2.Translator(
        str(folder), device="cpu", compute_type="float32", inter_threads=1, intra_threads=threads
    )
    ours = accelerate(load_ctranslate2(folder / "model.bin"))
    letters, latin = (
        (folder / f"{side}_vocabulary.txt").read_text(encoding="utf-8").split("\n")
        for side in ("source", "target")
    )
    chance = random.Random(0)
    usual = range(3, 38)  # the vocabulary is in the order of frequency
    weights = range(len(usual), 0, -1)
    sources = [chance.choices(usual, weights, k=chance.randint(3, 10)) for _ in range(SENTENCES)]
    names = [[letters[i] for i in source] for source in sources]
    found: dict[str, list[str]] = {}

    def run_ours() -> None:
        all_found = beam_search_all(ours, sources, end=2, start=1, config=BeamConfig(beam=BEAM))
        found["trafo"] = ["".join(latin[i] for i in each[0].ids[:-1]) for each in all_found]

    def run_theirs() -> None:
        results = theirs.translate_batch(names, beam_size=BEAM, max_batch_size=200)
        found["CTranslate2"] = ["".join(result.hypotheses[0]) for result in results]

    contenders: Contenders = {"trafo": run_ours, "CTranslate2, float32": run_theirs}
    what = f"beam {BEAM}, {SENTENCES:,} names, 6 + 6 layers of 32, {threads} thread(s)"
    compare(what, contenders, amount=SENTENCES, unit="names", rounds=rounds)
    _show_agreement(found["trafo"], found["CTranslate2"])


def _show_agreement(ours: Sequence[object], theirs: Sequence[object]) -> None:
    same = sum(a == b for a, b in zip(ours, theirs, strict=True))
    print(f"  {same:,} of {len(ours):,} translations are the same")


def measure(rounds: int, threads: int = 1, aren: Path = AREN) -> None:
    torch.set_num_threads(threads)
    torch.manual_seed(0)
    if (aren / "model.bin").exists():
        measure_ctranslate2(aren, rounds, threads)
    else:
        print(f"no model in {aren}: CTranslate2 is left out")
    measure_marian(rounds)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--aren", type=Path, default=AREN)
    options = parser.parse_args()
    measure(options.rounds, options.threads, options.aren)
