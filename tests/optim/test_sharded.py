"""Two processes that hold half of each parameter make the same step as one that holds all."""

import copy
import socket
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.processes import FORK_AFTER_IMPORTS
from torch import Tensor
from torch import distributed as dist
from torch import multiprocessing as mp
from torch.nn import Module

from trafo.models import TransformerLM
from trafo.optim import AdamW, Muon, clip_gradients, cross_entropy

SHAPE: dict[str, Any] = {
    "vocab_size": 17,  # odd: the shards of the tables are of different lengths
    "context_length": 8,
    "d_model": 12,
    "num_layers": 2,
    "num_heads": 2,
    "d_ff": 20,
}
KINDS = ("adamw", "muon")
STEPS = 3
MAX_NORM = 0.5


def make_optimizers(model: Module, kind: str) -> list[Any]:
    if kind == "adamw":
        return [AdamW(model.parameters(), lr=1e-2, weight_decay=0.1)]
    named = dict(model.named_parameters())
    inner = [name for name, p in named.items() if p.ndim == 2 and name.startswith("layers.")]
    outer = [p for name, p in named.items() if name not in inner]
    muon = Muon([named[name] for name in inner], lr=1e-2, weight_decay=0.1)
    return [muon, AdamW(outer, lr=1e-2)]


def train(model: Module, kind: str, ids: Tensor) -> list[float]:
    """A few steps; returns the norms of the gradients before they were clipped."""
    optimizers = make_optimizers(model, kind)
    norms = []
    for _ in range(STEPS):
        cross_entropy(model(ids[:, :-1]), ids[:, 1:]).backward()
        norms.append(clip_gradients(model.parameters(), MAX_NORM).item())
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad()
    return norms


def make_model() -> TransformerLM:
    torch.manual_seed(0)
    return TransformerLM(**SHAPE)


def make_ids() -> Tensor:
    return torch.randint(17, (4, 9), generator=torch.Generator().manual_seed(1))


def run_rank(rank: int, port: int, folder: str) -> None:
    from torch.distributed.fsdp import fully_shard

    torch.set_num_threads(1)
    address = f"tcp://127.0.0.1:{port}"
    dist.init_process_group("gloo", init_method=address, rank=rank, world_size=2)
    for kind in KINDS:
        model = make_model()
        for layer in model.layers:
            fully_shard(layer)
        fully_shard(model)
        norms = train(model, kind, make_ids().chunk(2)[rank])
        weights = {name: p.full_tensor().detach() for name, p in model.named_parameters()}
        torch.save((norms, weights), Path(folder) / f"{kind}-{rank}.pt")
    dist.destroy_process_group()


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What both ranks saved, for each kind of optimizer."""
    folder = tmp_path_factory.mktemp("ranks")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    mp.start_processes(
        run_rank, args=(port, str(folder)), nprocs=2, start_method=FORK_AFTER_IMPORTS
    )
    return folder


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("rank", [0, 1])
def test_a_step_with_shards_equals_a_step_without(results: Path, kind: str, rank: int) -> None:
    alone = make_model()
    before = copy.deepcopy(alone.state_dict())
    norms = train(alone, kind, make_ids())
    assert min(norms) > MAX_NORM  # clipping did something
    their_norms, weights = torch.load(results / f"{kind}-{rank}.pt", weights_only=True)
    assert their_norms == pytest.approx(norms, abs=1e-5)
    for name, parameter in alone.named_parameters():
        torch.testing.assert_close(weights[name], parameter.detach(), atol=1e-5, rtol=0)
        assert not torch.equal(parameter, before[name])
