"""Beam search with 5 beams over 1,000 names, against CTranslate2.

A trained model that writes Arabic names in Latin letters (6 + 6 layers, d_model 32), in float32, as
`--aren` names it; names are random letters. The translations are compared.
"""

import argparse
import random
from collections.abc import Sequence
from pathlib import Path

import torch

from ctranslate2_model import load_ctranslate2
from timing import Contenders, compare
from trafo.fast import accelerate
from trafo.generate.beam import beam_search_all
from trafo.generate.beam_config import BeamConfig

BEAM, SENTENCES = 5, 1000
AREN = Path("../shared/data/aren")


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
    if (aren / "model.bin").exists():
        measure_ctranslate2(aren, rounds, threads)
    else:
        print(f"no model in {aren}: CTranslate2 is left out")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--aren", type=Path, default=AREN)
    options = parser.parse_args()
    measure(options.rounds, options.threads, options.aren)
