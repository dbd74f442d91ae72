"""The table of what `trafo` can do: verb -> module and description.

Listing the verbs must not import them, so the table holds the modules' names. A module offers

- `Options`: a frozen, keyword-only dataclass, one docstring per field; its flags and help, and
- `run(options) -> int | None`: does it; a number is the exit code; and, if flags alone do not say
  it all (there is a config file, a run),
- `parse(arguments, prog)`: what `run` gets, in place of `Options`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Verb:
    """One command."""

    module: str
    description: str


@dataclass(frozen=True)
class Group:
    """Commands under a common word, such as `trafo tokenizer ...`."""

    description: str
    verbs: Mapping[str, Verb]


Table = Mapping[str, Verb | Group]

TOKENIZER = Group(
    "train tokenizers and use them",
    {
        "train": Verb("trafo.cli.tokenizer.train", "learn a vocabulary from text"),
        "encode": Verb("trafo.cli.tokenizer.encode", "turn text into ids"),
        "decode": Verb("trafo.cli.tokenizer.decode", "turn ids back into text"),
        "report": Verb("trafo.cli.tokenizer.report", "measure what a tokenizer does to a text"),
        "convert": Verb("trafo.cli.tokenizer.convert", "read one file format and write another"),
    },
)

VERBS: Table = {
    "demo": Verb("trafo.cli.demo", "the main job on a corpus that is already on this machine"),
    "tokenizer": TOKENIZER,
    "train": Verb("trafo.cli.train", "train a language model on text"),
    "resume": Verb("trafo.cli.resume", "go on with a run, bit for bit as if it had not stopped"),
    "eval": Verb("trafo.cli.eval", "measure a model: loss, perplexity, bits per byte"),
    "generate": Verb("trafo.cli.generate", "let a model continue a text"),
    "runs": Verb("trafo.cli.runs", "list the runs with their losses"),
    "plot": Verb("trafo.cli.plot", "draw the losses of one run, or of several together"),
    "verify-resume": Verb("trafo.cli.verify_resume", "prove that a killed run goes on exactly"),
    "account": Verb("trafo.cli.account", "what a model costs: FLOPs, memory, time"),
}
