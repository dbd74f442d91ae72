"""What int8 weights cost in quality: perplexity on held-out text, float32 against int8.

Both by the engine's kernels, on the same windows of text: `int8_perplexity.py RUN TEXT`. A run
trained on TEXT must have held its end out, as `trafo train` does.
"""

import argparse
import math
from pathlib import Path

import numpy as np
import torch

from trafo.checkpoint.bundle import load_bundle
from trafo.generate.engine.cache import BLOCK, PagedCache, StepBatch
from trafo.generate.packed.step import PackedStep


def mean_loss(step: PackedStep, cache: PagedCache, ids: np.ndarray, context: int) -> float:
    """Mean loss in nats over windows of `context` ids; each predicts its own later ids."""
    total, number = 0.0, 0
    table = np.arange(-(-context // BLOCK))[None]
    for start in range(0, len(ids) - context, context):
        window = ids[start : start + context].astype(np.int64)
        everything = np.arange(context)
        batch = StepBatch(window, everything, np.zeros_like(everything), table, everything[:-1])
        logits = step(batch, cache)
        targets = torch.from_numpy(window[1:])
        total += torch.nn.functional.cross_entropy(logits, targets, reduction="sum").item()
        number += len(targets)
    return total / number


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("run")
    parser.add_argument("text")
    parser.add_argument("--characters", type=int, default=200_000, help="from the end of the text")
    options = parser.parse_args()
    bundle = load_bundle(options.run)
    model = bundle.model
    text = Path(options.text).read_text(encoding="utf-8")[-options.characters :]
    ids = bundle.tokenizer.encode_array(text)
    context = model.context_length
    perplexity = {}
    for weights in ("float32", "int8"):
        cache = PagedCache(model, -(-context // BLOCK))
        loss = mean_loss(PackedStep(model, weights), cache, ids, context)
        perplexity[weights] = math.exp(loss)
        print(f"{weights:<8} perplexity {perplexity[weights]:.4f} on {len(ids):,} tokens")
    rise = perplexity["int8"] / perplexity["float32"] - 1
    print(f"int8 changes it by {rise:+.3%}")


if __name__ == "__main__":
    main()
