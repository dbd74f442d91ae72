"""What the model writes on the way: samples.txt, and a line on the screen."""

from __future__ import annotations

from pathlib import Path

from trafo.generate import GenerationConfig, generate
from trafo.models import CausalLM
from trafo.runtime.atomic import storage_errors
from trafo.runtime.console import say
from trafo.train.build import Training

_LONGEST_ON_SCREEN = 200


def write_sample(training: Training, model: CausalLM, path: Path, step: int) -> str:
    """Let the model go on from the prompt; the same random numbers each time."""
    config = training.config
    was_training = model.training
    model.eval()
    try:
        prompt = config.watch.prompt or _beginning(training)
        settings = GenerationConfig(
            max_new_tokens=config.watch.sample_tokens, temperature=0.8, top_p=0.95, seed=config.seed
        )
        completion = generate(model, training.dataset.tokenizer, [prompt], settings)[0]
    finally:
        model.train(was_training)
    text = prompt + completion.text
    with storage_errors(path), path.open("a", encoding="utf-8") as file:
        file.write(f"--- step {step} ---\n{text}\n\n")
    flat = " ".join(text.split())
    short = flat[:_LONGEST_ON_SCREEN] + ("..." if len(flat) > _LONGEST_ON_SCREEN else "")
    say(f"  step {step} writes: {short}")
    return text


def _beginning(training: Training) -> str:
    """Nothing where a document can begin with its token; else a line break."""
    return "" if training.dataset.tokenizer.special_tokens else "\n"
