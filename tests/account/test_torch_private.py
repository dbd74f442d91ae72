"""What is private in torch still does what the dry run relies on."""

import ast
from pathlib import Path

import pytest
import torch
from torch.autograd.graph import Node
from torch.nn.functional import scaled_dot_product_attention

import trafo
from trafo.account.torch_private import (
    FLASH_ATTENTION,
    OperationMode,
    current_node,
    uses_flash_attention,
)


class Listener(OperationMode):
    def __init__(self):
        super().__init__()
        self.seen = []

    def record(self, operation, args, out):
        self.seen.append((operation, out[0].shape, current_node()))


def test_every_operation_is_seen_with_the_node_that_it_belongs_to():
    x = torch.empty(3, 4, device="meta", requires_grad=True)
    y = torch.empty(4, 5, device="meta", requires_grad=True)
    with Listener() as listener:
        out = (x @ y).exp()
        made = [number for _, _, (number, is_backward) in listener.seen if not is_backward]
        out.sum().backward()
    aten = torch.ops.aten
    assert [operation for operation, _, _ in listener.seen[:2]] == [aten.mm, aten.exp]
    assert listener.seen[0][1] == (3, 5)
    gradients = [each for each in listener.seen if each[2][1]]
    assert {number for _, _, (number, _) in gradients} >= set(made)
    products = [node for operation, _, node in gradients if operation is aten.mm]
    assert products == [(made[0], True)] * 2
    assert isinstance(out.grad_fn, Node)


@pytest.mark.parametrize("is_masked", [False, True])
def test_the_kernel_of_attention_is_the_one_that_a_cpu_uses(is_masked):
    q = torch.randn(2, 4, 16, 8)
    mask = torch.ones(16, 16).bool().tril() if is_masked else None
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        scaled_dot_product_attention(q, q, q, attn_mask=mask)
    names = {event.key for event in profile.key_averages()}
    ran = str(FLASH_ATTENTION).replace(".", "::") in names
    assert uses_flash_attention(q, q, q, mask) is ran


MAY_BE_PRIVATE = {
    "account/torch_private.py",
    "config/flags.py",
    "nn/dropout.py",  # the public torch.compiler.disable imports the compiler: 2 s
}


def test_no_other_file_imports_what_is_private_in_another_package():
    folder = Path(trafo.__file__).parent
    found = set()
    for path in folder.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names = []
            if isinstance(node, ast.ImportFrom) and node.module:
                names = [f"{node.module}.{alias.name}" for alias in node.names]
            elif isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
                names = [f"{node.value.id}.{node.attr}"] if node.value.id == "torch" else []
            is_private = any(
                part.startswith("_") and not part.startswith("__")
                for name in names
                if not name.startswith(("trafo", "__future__", "_typeshed"))
                for part in name.split(".")
            )
            if is_private:
                found.add(path.relative_to(folder).as_posix())
    assert found <= MAY_BE_PRIVATE, found - MAY_BE_PRIVATE
