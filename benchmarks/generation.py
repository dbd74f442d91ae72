"""Generation, against Hugging Face's `generate`: the same shape, each with its own KV cache.

Vocabulary 10,000, context 256, d_model 512, 4 layers, 16 heads, d_ff 1,344, float32, random
weights; 128 new tokens, greedy, from prompts of 16 tokens, one row and eight. trafo runs both of
its ways: the model by torch, and the kernels compiled for this processor.
"""

import argparse
import sys
from collections.abc import Callable

import torch

from model_peers import CONFIG, llama_config
from timing import Contenders, compare
from trafo.fast import accelerate
from trafo.generate import GenerationConfig, generate_ids
from trafo.models import TransformerLM

PROMPT_TOKENS = 16
NEW_TOKENS = 128
BATCHES = (1, 8)


def trafo(kernel: str) -> Callable[[torch.Tensor], object]:
    model = accelerate(TransformerLM.from_config(CONFIG)).eval()
    config = GenerationConfig(max_new_tokens=NEW_TOKENS, temperature=0.0, kernel=kernel)
    return lambda ids: generate_ids(model, ids.tolist(), config)


def hugging_face() -> Callable[[torch.Tensor], object]:
    from transformers import LlamaForCausalLM

    model = LlamaForCausalLM(llama_config()).eval()
    # No end token: random weights must not end a row early.
    model.generation_config.eos_token_id = None
    model.generation_config.pad_token_id = 0

    def run(ids: torch.Tensor) -> object:
        return model.generate(
            ids,
            attention_mask=torch.ones_like(ids),
            max_new_tokens=NEW_TOKENS,
            do_sample=False,
        )

    return run


def measure(rounds: int) -> None:
    torch.manual_seed(0)
    everyone = {
        "trafo, compiled kernels": trafo("compiled"),
        "trafo, by torch": trafo("readable"),
        "Hugging Face Llama": hugging_face(),
    }
    for batch in BATCHES:
        ids = torch.randint(CONFIG.vocab_size, (batch, PROMPT_TOKENS))
        runs: Contenders = {
            name: (lambda run=run, ids=ids: run(ids)) for name, run in everyone.items()
        }
        rows = "1 row" if batch == 1 else f"{batch} rows"
        what = f"{NEW_TOKENS} new tokens, greedy, {rows}"
        compare(what, runs, amount=batch * NEW_TOKENS, unit="tokens", rounds=rounds)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--threads", type=int, default=None, help="default: one for each core")
    options = parser.parse_args()
    if options.threads:
        torch.set_num_threads(options.threads)
    print(f"torch {torch.__version__}, {torch.get_num_threads()} threads", file=sys.stderr)
    measure(options.rounds)
