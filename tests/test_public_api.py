"""The names that users import, and what importing them costs."""

import inspect
import subprocess
import sys
import typing
from types import ModuleType, UnionType

import pytest

import trafo
import trafo.tokenizer
from trafo import nn
from trafo.errors import ConfigError


@pytest.mark.parametrize("name", trafo.tokenizer.__all__)
def test_every_public_name_of_the_tokenizer_is_there(name: str) -> None:
    public = getattr(trafo.tokenizer, name)
    assert public == "<|endoftext|>" if name == "END_OF_TEXT" else public.__name__ == name


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="Tokeniser"):
        trafo.tokenizer.Tokeniser  # noqa: B018


def loaded_modules(program: str) -> set[str]:
    """The modules in memory after running a program in a new Python."""
    program += "\nimport sys; print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    return set(done.stdout.split())


def test_the_tokenizer_runs_without_torch_installed() -> None:
    program = """
import sys
sys.modules["torch"] = None  # importing it fails from now on
from trafo.tokenizer import Tokenizer, encode_files, train_bpe
tokenizer = Tokenizer({i: bytes([i]) for i in range(256)}, [], ["<|endoftext|>"])
assert tokenizer.decode(tokenizer.encode("a<|endoftext|>b")) == "a<|endoftext|>b"
"""
    assert "trafo.tokenizer.tokenizer" in loaded_modules(program)


def test_importing_trafo_costs_nothing() -> None:
    parts = "trafo.tokenizer, trafo.errors, trafo.training, trafo.checkpoint, trafo.data"
    loaded = loaded_modules(f"import trafo, {parts}")
    assert not loaded & {"numpy", "numba", "torch", "rich", "regex"}


def test_training_starts_without_the_compiler() -> None:
    """`torch._dynamo` takes as long to import as the rest of torch together."""
    program = """
import torch
from trafo.nn import Dropout
from trafo.optim import AdamW
from trafo.training.config import TrainConfig
from trafo.training.fit_memory import require_memory
require_memory(TrainConfig(), 10**15)
layer = torch.nn.Sequential(torch.nn.Linear(4, 4), Dropout(0.5))
optimizer = AdamW(layer.parameters())
layer(torch.ones(2, 4)).sum().backward()
optimizer.step()
optimizer.zero_grad()
optimizer.load_state_dict(optimizer.state_dict())
"""
    assert "torch._dynamo" not in loaded_modules(program)


PARTS = ["account", "checkpoint", "config", "data", "fast", "generate", "models", "nn"]
PARTS += ["optim", "tokenizer"]


@pytest.mark.parametrize("part", PARTS)
def test_every_part_offers_what_it_names(part: str) -> None:
    """By `import trafo` alone, also after submodules of the same name have been imported."""
    package = getattr(trafo, part)
    assert isinstance(package, ModuleType)
    for name in package.__all__:
        for _ in range(2):
            assert not isinstance(getattr(package, name), ModuleType), name
    with pytest.raises(AttributeError):
        package.no_such_name  # noqa: B018


def test_the_library_s_face() -> None:
    for name in trafo.__all__:
        assert callable(getattr(trafo, name)), name
    assert inspect.isfunction(trafo.train)
    assert inspect.isfunction(trafo.experiment)
    assert set(trafo.__all__) <= set(dir(trafo))
    with pytest.raises(AttributeError, match="trane"):
        trafo.trane  # noqa: B018


# What no parameter of such a type takes; a bool is an int, and an int a float, to Python too.
WRONG: dict[object, list[object]] = {
    int: ["swiglu", 2.5, [1], b"1"],
    float: ["swiglu", [1.0], 1j],
    bool: ["yes", 1, [True]],
    str: [96, b"text", ["text"]],
}


def wrong_arguments() -> list[tuple[str, str, str, object]]:
    """Part, name, parameter and a value of a wrong type, for all that the parts offer."""
    found = []
    for part in ("nn", "models", "optim", "tokenizer"):
        package = getattr(trafo, part)
        names = [name for name in package.__all__ if name not in ("Inputs", "TokenFile")]
        for name in names:
            public = getattr(package, name)
            if not inspect.isfunction(public) and not isinstance(public, type):
                continue
            owner = public.__init__ if isinstance(public, type) else public
            for parameter, hint in typing.get_type_hints(owner).items():
                is_union = isinstance(hint, UnionType | type(typing.Optional[int]))  # noqa: UP045
                parts = typing.get_args(hint) if is_union else (hint,)
                kinds = [kind for kind in parts if kind is not type(None)]
                if typing.get_origin(hint) is typing.Literal:
                    values: list[object] = [96, "no such choice", None, ["pre"]]
                elif len(kinds) == 1 and isinstance(kind := kinds[0], type) and kind in WRONG:
                    values = WRONG[kind] if type(None) in parts else [*WRONG[kind], None]
                else:
                    continue
                if parameter != "return":
                    found += [(part, name, parameter, value) for value in values]
    return found


def test_arguments_of_a_wrong_type_are_refused_by_name() -> None:
    wrong = wrong_arguments()
    assert len({(part, name) for part, name, *_ in wrong}) > 40
    for part, name, parameter, value in wrong:
        # The others are missing: types are checked before anything is done.
        with pytest.raises(ConfigError, match=f"^{parameter} is "):
            getattr(getattr(trafo, part), name)(**{parameter: value})


def test_swapped_arguments_are_refused() -> None:
    assert nn.default_d_ff("swiglu", 96) == 256  # 8/3 x 96
    with pytest.raises(ConfigError, match="kind is 96; choose one of swiglu, silu"):
        nn.default_d_ff(96, "swiglu")
    with pytest.raises(ConfigError, match="d_model is '96'; it must be an integer"):
        nn.default_d_ff("swiglu", "96")
    with pytest.raises(ConfigError, match=r"window is 2\.5; it must be an integer or None"):
        nn.HeadsAttention(window=2.5)
