"""The training functions of the CS336 suite, called as the suite calls them."""

import io
from types import ModuleType

import numpy as np
import torch


def test_batch_schedule_clip_and_checkpoint(
    adapters: ModuleType,
) -> None:
    inputs, targets = adapters.run_get_batch(np.arange(100), 32, 7, "cpu")
    assert inputs.shape == targets.shape == (32, 7)
    assert torch.equal(inputs + 1, targets)
    assert (
        adapters.run_get_lr_cosine_schedule(
            it=7,
            max_learning_rate=1.0,
            min_learning_rate=0.1,
            warmup_iters=7,
            cosine_cycle_iters=21,
        )
        == 1.0
    )

    model = torch.nn.Linear(3, 2)
    optimizer = adapters.get_adamw_cls()(
        model.parameters(), lr=1e-3, weight_decay=0.01, betas=(0.9, 0.999), eps=1e-8
    )
    model(torch.ones(1, 3)).sum().backward()
    adapters.run_gradient_clipping(model.parameters(), 0.01)
    norm = torch.cat([p.grad.flatten() for p in model.parameters()]).norm()
    assert norm <= 0.01
    optimizer.step()

    file = io.BytesIO()
    adapters.run_save_checkpoint(model, optimizer, iteration=10, out=file)
    other = torch.nn.Linear(3, 2)
    other_optimizer = adapters.get_adamw_cls()(other.parameters())
    file.seek(0)
    assert adapters.run_load_checkpoint(src=file, model=other, optimizer=other_optimizer) == 10
    assert torch.equal(other.weight, model.weight)
