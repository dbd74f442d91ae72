"""The commands of `trafo`: verb -> module and description.

`trafo --help` must not import them, so the table holds the modules' names. A module offers

- `Options`: a frozen, keyword-only dataclass, one docstring per field; its flags and help, and
- `run(options) -> int | None`: runs it; a number is the exit code; and, if flags alone do not say
  everything (there is a config file, a run),
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
    """Subcommands, such as those of `trafo tokenizer`."""

    description: str
    verbs: Mapping[str, Verb]


Table = Mapping[str, Verb | Group]

TOKENIZER = Group(
    "train and use tokenizers",
    {
        "train": Verb("trafo.cli.tokenizer.train", "train a byte-level BPE tokenizer on text"),
        "encode": Verb("trafo.cli.tokenizer.encode", "encode text as token ids"),
        "decode": Verb("trafo.cli.tokenizer.decode", "decode token ids to text"),
        "report": Verb("trafo.cli.tokenizer.report", "report how a tokenizer encodes a text"),
        "convert": Verb("trafo.cli.tokenizer.convert", "convert between file formats"),
    },
)

VERBS: Table = {
    "demo": Verb("trafo.cli.demo", "train a small model end to end, on Python's own sources"),
    "tokenizer": TOKENIZER,
    "train": Verb(
        "trafo.cli.train", "train a language model on text, or a translator on sentence pairs"
    ),
    "resume": Verb("trafo.cli.resume", "resume a run from its newest checkpoint, bit for bit"),
    "eval": Verb("trafo.cli.eval", "evaluate a model: loss, perplexity, bits per byte"),
    "translate": Verb("trafo.cli.translate", "translate sentences with a trained model"),
    "score": Verb("trafo.cli.score", "score a translation: BLEU and chrF"),
    "generate": Verb("trafo.cli.generate", "generate text from a prompt"),
    "serve": Verb("trafo.cli.serve", "serve models: OpenAI's HTTP API, and a page to look inside"),
    "chat": Verb("trafo.cli.chat", "write a text together with a model, in turns"),
    "export": Verb("trafo.cli.export", "export a model for transformers, llama.cpp or llama2.c"),
    "average": Verb("trafo.cli.average", "average the weights of a run's newest checkpoints"),
    "runs": Verb("trafo.cli.runs", "list runs and their losses"),
    "plot": Verb("trafo.cli.plot", "plot the loss curves of one or more runs"),
    "experiment": Verb(
        "trafo.cli.experiment", "compare variants: run arms, sweeps and seeds, and report"
    ),
    "verify-resume": Verb("trafo.cli.verify_resume", "check that a killed run resumes exactly"),
    "completion": Verb("trafo.cli.completion", "print a script that completes commands and flags"),
    "account": Verb("trafo.cli.account", "count parameters, FLOPs, memory and time of a model"),
}
