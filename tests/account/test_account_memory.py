"""Activations against autograd, state against the optimizers, the peak against a run."""

import dataclasses
import weakref
from typing import Any, ClassVar

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import FlopCounterMode

from trafo.account import Workload, account
from trafo.account.measurement import EXAMPLES, measure
from trafo.account.memory import (
    count_newton_schulz_flops,
    find_largest_batch,
    predict_memory,
    predict_update,
)
from trafo.fast import accelerate, head_loss
from trafo.models import GPT2_PRESETS, TransformerLMConfig, build_model
from trafo.optim import SGD, AdamW
from trafo.optim.muon import orthogonalize

SMALL = TransformerLMConfig(vocab_size=97, context_length=48, d_model=32, num_layers=2, num_heads=4)


class Box:
    """What autograd holds instead of a saved tensor: dies when the tensor is let go."""

    def __init__(self, tensor: Tensor) -> None:
        self.tensor = tensor.detach()


def kept_bytes(model: Any, config: Any, batch: int, seq: int, source: int) -> int:
    """Bytes of all tensors, but the model's own, that wait for the backward pass."""
    boxes: list[weakref.ref[Box]] = []

    def pack(tensor: Tensor) -> Box:
        box = Box(tensor)
        boxes.append(weakref.ref(box))
        return box

    ids = torch.randint(1, 70, (batch, seq))
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda box: box.tensor):
        if hasattr(config, "source_vocab_size"):
            states = model.hidden_states(ids, model.encode(torch.randint(1, 70, (batch, source))))
        else:
            states = model.hidden_states(ids)
        total = head_loss(model, states, ids)
    alive = [box.tensor for ref in boxes if (box := ref()) is not None]
    assert total.requires_grad  # and with it the graph is alive
    storages = {t.untyped_storage().data_ptr(): t.untyped_storage().nbytes() for t in alive}
    for own in (*model.parameters(), *model.buffers()):
        storages.pop(own.untyped_storage().data_ptr(), None)
    return sum(storages.values())


def test_activations_are_what_autograd_keeps(config):
    work = Workload(seq=40, source_seq=24, batch_size=3)
    real = kept_bytes(accelerate(build_model(config)).train(), config, 3, 40, 24)
    assert account(config, work).kept.total() == pytest.approx(real, rel=0.02)


class LiveBytes(TorchDispatchMode):
    """Counts the bytes of all tensors that are alive, and the most there ever were."""

    def __init__(self) -> None:
        super().__init__()
        self.now = self.peak = 0
        self.known: weakref.WeakSet[Any] = weakref.WeakSet()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **kwargs or {})
        for tensor in tree_leaves(out):
            if isinstance(tensor, Tensor) and tensor.untyped_storage() not in self.known:
                storage = tensor.untyped_storage()
                self.known.add(storage)
                self.now += storage.nbytes()
                self.peak = max(self.peak, self.now)
                weakref.finalize(storage, self.free, storage.nbytes())
        return out

    def free(self, num_bytes: int) -> None:
        self.now -= num_bytes


@pytest.mark.parametrize("wide", [{}, {"d_ff": 8}, {"d_model": 8, "num_layers": 1}])
def test_the_peak_of_forward_and_backward_is_that_of_all_live_tensors(wide):
    shape = {"vocab_size": 512, "context_length": 256, "d_model": 64, "num_layers": 3}
    config = TransformerLMConfig(**shape | {"num_heads": 4, "d_ff": 512} | wide)
    model: Any = accelerate(build_model(config))
    ids = torch.randint(512, (4, 256))
    with LiveBytes() as live:
        head_loss(model, model.hidden_states(ids), ids).backward()
    result = account(config, Workload(seq=256, batch_size=4))
    # With an optimizer that keeps nothing, the parameters are all there is besides.
    predicted = predict_memory(result, "sgd").peak - 4 * result.parameters
    assert predicted == pytest.approx(live.peak, rel=0.1)


def test_adamw_keeps_two_numbers_and_sgd_none_for_each_parameter(config):
    result = account(config, Workload(seq=40))
    assert predict_update("adamw", result).state_numbers == 2 * result.parameters
    assert predict_update("sgd", result).state_numbers == 0


class Arithmetic(TorchDispatchMode):
    """Counts additions, multiplications, divisions and roots, element by element."""

    EACH: ClassVar = {
        "lerp_": 3,  # m + w (g - m)
        "addcmul_": 3,  # v + c g g
        "addcdiv_": 3,  # p + c m / r
        "add_": 1,
        "mul_": 1,
        "div_": 1,
        "sqrt": 1,
    }

    def __init__(self) -> None:
        super().__init__()
        self.flops = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func.overloadpacket.__name__
        if name in self.EACH:
            self.flops += self.EACH[name] * args[0].numel()
        return func(*args, **kwargs or {})


@pytest.mark.parametrize(("name", "kind"), [("adamw", AdamW), ("sgd", SGD)])
def test_an_updates_flops_are_those_of_the_optimizers_operations(name, kind):
    model: Any = build_model(SMALL)
    optimizer = kind(model.parameters())
    model(torch.randint(97, (2, 8))).sum().backward()
    with Arithmetic() as arithmetic:
        optimizer.step()
    # p + c g is two operations in one.
    fused = sum(p.numel() for p in model.parameters()) if name == "sgd" else 0
    assert predict_update(name, account(SMALL, Workload(seq=8))).flops == arithmetic.flops + fused


def test_adamws_state_is_what_the_optimizer_holds():
    model: Any = build_model(SMALL)
    optimizer = AdamW(model.parameters())
    model(torch.randint(97, (2, 8))).sum().backward()
    optimizer.step()
    tensors = [x for state in optimizer.state.values() for x in state.values()]
    held = sum(x.numel() for x in tensors if isinstance(x, Tensor))
    assert predict_update("adamw", account(SMALL, Workload(seq=8))).state_numbers == held


def test_muon_keeps_one_number_for_hidden_matrices_and_two_for_the_rest():
    result = account(SMALL, Workload(seq=8))
    model = build_model(SMALL)
    named = dict(model.named_parameters())
    inner = sum(p.numel() for n, p in named.items() if p.ndim == 2 and n.startswith("layers."))
    outer = sum(p.numel() for p in named.values()) - inner
    assert predict_update("muon", result).state_numbers == inner + 2 * outer


@pytest.mark.parametrize("shape", [(24, 40), (40, 24), (8, 8)])
def test_muons_products_equal_torchs_count(shape):
    with FlopCounterMode(display=False) as counter:
        orthogonalize(torch.randn(shape))
    assert count_newton_schulz_flops(*shape) == counter.get_total_flops()


def test_the_static_parts_of_a_training_step():
    result = account(GPT2_PRESETS["gpt2-xl"], Workload(seq=1024))
    parts = predict_memory(result)
    assert parts.parameters == parts.gradients == 4 * result.parameters
    assert parts.optimizer_state == 8 * result.parameters
    assert parts.peak <= 16 * result.parameters + parts.activations + 2 * 50_257 * 1600 * 4


def test_accumulating_gradients_takes_more_than_making_them():
    result = account(SMALL, Workload(seq=48, batch_size=8))
    assert predict_memory(result, accumulating=True).peak > predict_memory(result).peak


def test_the_cache_is_what_the_models_cache_holds(config):
    model: Any = build_model(config).eval()
    batch, seq, source = 3, 20, 12
    cache = model.make_cache(batch, seq)
    if hasattr(config, "source_vocab_size"):
        with torch.no_grad():
            memory_of_source = model.encode(torch.randint(1, 70, (batch, source)))
            model.decode(torch.randint(1, 70, (batch, 1)), memory_of_source, cache=cache)
    numbers = sum(x.numel() for x in cache_tensors(cache))
    work = Workload(seq=seq, source_seq=source, batch_size=batch, phase="decode")
    assert account(config, work).kept.total() == 4 * numbers


def cache_tensors(cache: Any) -> list[Tensor]:
    if hasattr(cache, "keys"):
        return [cache.keys, cache.values]
    if hasattr(cache, "target"):
        return [cache.target.keys, cache.target.values, *(x for kv in cache.source for x in kv)]
    source = cache.source
    return [cache.state, source.states, source.keys, source.first_state]


@pytest.mark.parametrize("phase", ["train", "prefill", "decode"])
def test_the_largest_batch_fits_and_one_more_does_not(phase):
    work = Workload(seq=48, phase=phase)
    available = 30_000_000
    most = find_largest_batch(SMALL, work, available)
    assert most > 1
    peaks = [
        predict_memory(account(SMALL, dataclasses.replace(work, batch_size=batch))).peak
        for batch in (most, most + 1)
    ]
    assert peaks[0] <= available < peaks[1]
    assert find_largest_batch(SMALL, work, 1000) == 0


def test_in_half_precision_all_but_the_sums_is_halved():
    full = predict_memory(account(SMALL, Workload(seq=48, batch_size=8)))
    half = predict_memory(account(SMALL, Workload(seq=48, batch_size=8, dtype="bfloat16")))
    assert half.parameters * 2 == full.parameters
    assert full.activations / 2 <= half.activations < full.activations * 0.6


def test_a_measured_step_takes_what_was_predicted():
    assert abs(measure(*EXAMPLES["GPT-2, large vocabulary"]).error) < 0.05


@pytest.mark.slow
@pytest.mark.parametrize("name", EXAMPLES)
@pytest.mark.parametrize("optimizer", ["adamw", "sgd", "muon"])
def test_every_measured_step_takes_what_was_predicted(name, optimizer):
    assert abs(measure(*EXAMPLES[name], optimizer).error) < 0.15
