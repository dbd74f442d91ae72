"""`torch.compile` takes every model in one piece and changes nothing.

In processes of their own: the shape checks that the test settings put around every function are
not for compilers. `python tests/models/test_compiled.py llama` runs one of them by hand.
"""

import subprocess
import sys

import pytest
import torch

from trafo.fast import accelerate, head_loss
from trafo.models import GPT2, EncoderDecoder, EncoderDecoderConfig, GPT2Config, TransformerLM

SHAPE = {"vocab_size": 50, "context_length": 16, "d_model": 32, "num_layers": 2, "num_heads": 4}
LANGUAGE_MODELS = {
    "llama": lambda: TransformerLM(**SHAPE, num_kv_heads=2, qk_norm=True),
    "windowed": lambda: TransformerLM(**SHAPE, window=5, norm_placement="post"),
    "gpt2": lambda: GPT2(GPT2Config(**SHAPE)),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", [*LANGUAGE_MODELS, "encoder-decoder"])
def test_compiled_equals_eager(name):
    subprocess.run([sys.executable, __file__, name], check=True, timeout=300)


def compare_training(model):
    ids = torch.randint(50, (2, 17))

    def loss(ids):
        states = model.hidden_states(ids[:, :-1])
        return head_loss(model, states, ids[:, 1:])

    results = []
    for function in (loss, torch.compile(loss, fullgraph=True)):
        model.zero_grad()
        value = function(ids)
        value.backward()
        results.append((value.detach(), *(p.grad.clone() for p in model.parameters())))
    for mine, other in zip(*results, strict=True):
        torch.testing.assert_close(mine, other, atol=1e-5, rtol=1e-4)


@torch.no_grad()
def compare_translation():
    sizes = {"source_vocab_size": 50, "target_vocab_size": 50, "d_model": 32, "d_ff": 64}
    layers = {"num_encoder_layers": 1, "num_decoder_layers": 1, "num_heads": 4}
    model = EncoderDecoder(EncoderDecoderConfig(**sizes, **layers)).eval()
    source, target = torch.randint(1, 50, (2, 7)), torch.randint(1, 50, (2, 5))
    source[1, 4:] = 0
    result = torch.compile(model, fullgraph=True)(source, target)
    torch.testing.assert_close(result, model(source, target), atol=1e-5, rtol=1e-4)


if __name__ == "__main__":
    torch.manual_seed(0)
    chosen = sys.argv[1]
    if chosen in LANGUAGE_MODELS:
        model = LANGUAGE_MODELS[chosen]()
        compare_training(model)
        compare_training(accelerate(model))
    else:
        compare_translation()
