"""The same shape of language model, three times: ours, Hugging Face's and nanoGPT's.

nanoGPT is not a package: `--nanogpt PATH` names a checkout of karpathy/nanoGPT. Its feed-forward
has two matrices of 4 d_model where the others have three of d_ff = 1,344: 1.6 % more arithmetic.
"""

import importlib.util
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor
from torch.nn import Module

from timing import silence
from trafo.fast import accelerate, head_loss
from trafo.fast.mixed import mixed_precision
from trafo.models import TransformerLM, TransformerLMConfig

CONFIG = TransformerLMConfig(
    vocab_size=10_000, context_length=256, d_model=512, num_layers=4, num_heads=16, d_ff=1_344
)


@dataclass
class Contender:
    """A model with its own way to a loss, and to the logits of all positions if it has one."""

    model: Module
    loss: Callable[[Tensor, Tensor], Tensor]
    logits: Callable[[Tensor], Tensor] | None

    def step(
        self, ids: Tensor, targets: Tensor, *, compiled: bool, dtype: torch.dtype = torch.float32
    ) -> Callable[[], object]:
        """Forward, loss, backward into fresh gradients; other dtypes by torch's autocast."""
        loss = torch.compile(self.loss) if compiled else self.loss

        def run() -> None:
            self.model.zero_grad(set_to_none=True)
            with mixed_precision(ids.device, dtype):
                found = loss(ids, targets)
            found.backward()

        return run

    def forward(self, ids: Tensor, *, compiled: bool) -> Callable[[], object] | None:
        if self.logits is None:
            return None
        logits = torch.compile(self.logits) if compiled else self.logits

        @torch.no_grad()
        def run() -> Tensor:
            return logits(ids)

        return run


def contenders(nanogpt: Path | None) -> dict[str, Contender]:
    """Ours first; nanoGPT only if there is a checkout of it."""
    everyone = {"trafo": _trafo(), "Hugging Face Llama": _hugging_face()}
    if nanogpt is None:
        print("no nanoGPT: give a checkout of karpathy/nanoGPT with --nanogpt PATH")
    else:
        everyone["nanoGPT"] = _nanogpt(nanogpt)
    return everyone


def _trafo() -> Contender:
    model = accelerate(TransformerLM.from_config(CONFIG))

    def loss(ids: Tensor, targets: Tensor) -> Tensor:
        return head_loss(model, model.hidden_states(ids), targets)

    return Contender(model, loss, model.forward)


def llama_config(**settings: object):  # type: ignore[no-untyped-def]
    """The shape in Hugging Face's words."""
    from transformers import LlamaConfig

    return LlamaConfig(
        vocab_size=CONFIG.vocab_size,
        max_position_embeddings=CONFIG.context_length,
        hidden_size=CONFIG.d_model,
        num_hidden_layers=CONFIG.num_layers,
        num_attention_heads=CONFIG.num_heads,
        intermediate_size=CONFIG.feed_forward_size,
        tie_word_embeddings=False,
        **settings,
    )


def _hugging_face() -> Contender:
    from transformers import LlamaForCausalLM

    model = LlamaForCausalLM(llama_config(attn_implementation="sdpa", use_cache=False))

    def loss(ids: Tensor, targets: Tensor) -> Tensor:
        return model(input_ids=ids, labels=ids).loss  # it shifts the labels by itself

    return Contender(model, loss, lambda ids: model(input_ids=ids).logits)


def _nanogpt(checkout: Path) -> Contender:
    module = _module("nanogpt_model", checkout / "model.py")
    config = module.GPTConfig(
        vocab_size=CONFIG.vocab_size,
        block_size=CONFIG.context_length,
        n_embd=CONFIG.d_model,
        n_layer=CONFIG.num_layers,
        n_head=CONFIG.num_heads,
        dropout=0.0,
        bias=False,
    )
    with silence():
        model = module.GPT(config)
    # Without targets it returns the last position's logits only: no peer for the forward pass.
    return Contender(model, lambda ids, targets: model(ids, targets)[1], None)


def _module(name: str, path: Path):  # type: ignore[no-untyped-def]
    if not path.is_file():
        sys.exit(f"{path} is not there: --nanogpt wants the folder that holds nanoGPT's model.py")
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses look for their module there
    spec.loader.exec_module(module)
    return module
