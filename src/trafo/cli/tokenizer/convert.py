"""`trafo tokenizer convert`: one file format in, another out."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated, Literal

from tyro.conf import Positional, arg

from trafo.cli.tokenizer.arguments import OptionalString, Strings, TokenizerPath
from trafo.errors import ConfigError, FormatError

if TYPE_CHECKING:
    from trafo.tokenizer.formats.load import Format
    from trafo.tokenizer.formats.spec import TokenizerParts

# Each kind of word that a split pattern knows, and many scripts.
SAMPLE = """The quick brown fox can't jump over 12,345.67 lazy dogs; WE'LL see, they've said!
\tdef f(x):\r\n        return {"key": [x ** 2, None]}  # trailing   \n\n\n
Zażółć gęślą jaźń. Ὦ ξεῖν\u2019, ἀγγέλλειν. Съешь же ещё этих мягких французских булок.
いろはにほへと 色は匂へど 한글은 좋다 नमस्ते دنیا שלום ไทย 👩\u200d👩\u200d👧 🇩🇪 e\u0301 \u00a0 ﬁn
"""


@dataclass(frozen=True, kw_only=True)
class Options:
    """Read a tokenizer in one format, write it in another, and see that it still does the same."""

    tokenizer: TokenizerPath
    """a folder or file in any format that trafo reads"""
    out: Annotated[Positional[Path], arg(metavar="OUT")]
    """where to write: a folder for trafo and gpt2, a file for the others"""
    to: Annotated[
        Literal["trafo", "gpt2", "huggingface", "tiktoken"] | None,
        arg(metavar="{trafo,gpt2,huggingface,tiktoken}"),
    ] = None
    """the format; if not given, OUT tells: x.json, x.tiktoken, or a folder of trafo's own"""
    pattern: OptionalString = None
    """how text is split into words, for formats that do not say it: a name or a regex"""
    special_tokens: Strings = ()
    """special tokens to add"""
    overwrite: bool = False
    """replace what is already there"""


def run(options: Options) -> None:
    """Read, try the new format in a temporary place, then write it."""
    from trafo.cli.tokenizer.existing import refuse_to_replace
    from trafo.runtime.console import show
    from trafo.tokenizer.formats.load import detect_format, load_any, save_as

    to = options.to or _format_by_name(options.out)
    if not options.overwrite:
        refuse_to_replace(options.out)
    parts = load_any(
        options.tokenizer,
        pattern=options.pattern,
        special_tokens=options.special_tokens or None,
    )
    with TemporaryDirectory() as folder:
        # Under another name: a reader that knows cl100k_base by its name proves nothing.
        trial = Path(folder, "trial").with_suffix(".json" if to == "huggingface" else "")
        save_as(parts, trial, to)
        _check_same(parts, trial, to)
    save_as(parts, options.out, to)
    formats = f"{detect_format(options.tokenizer)} -> {to}"
    show(f"{options.out}: {formats}, {len(parts.vocab):,} tokens, read back with the same ids")
    for line in _unsaid(parts, to):
        show(line)


def _format_by_name(out: Path) -> Format:
    formats: dict[str, Format] = {".json": "huggingface", ".tiktoken": "tiktoken", "": "trafo"}
    if out.suffix not in formats:
        raise ConfigError(
            f"{out.name!r} does not tell the format",
            hint="add --to trafo, gpt2, huggingface or tiktoken",
        )
    return formats[out.suffix]


def _check_same(parts: TokenizerParts, path: Path, to: Format) -> None:
    """Read the new files and compare the ids of a sample that also holds the special tokens."""
    from trafo.tokenizer.formats.load import load_any
    from trafo.tokenizer.tokenizer import Tokenizer

    again = load_any(path, pattern=parts.pattern, special_tokens=parts.special_tokens)
    sample = SAMPLE + SAMPLE.join(parts.special_tokens)
    if Tokenizer.from_parts(again).encode(sample) != Tokenizer.from_parts(parts).encode(sample):
        raise FormatError(
            f"read back from {to}, this tokenizer gives other ids",
            hint="choose another format; trafo's own holds everything",
        )


def _unsaid(parts: TokenizerParts, to: Format) -> list[str]:
    """What the format has no place for and whoever reads it must know."""
    if to not in ("gpt2", "tiktoken"):
        return []
    lines = [f"not in this format: the pattern, {parts.pattern}"]
    if parts.special_tokens:
        named = ", ".join(f"{token} = {i}" for token, i in parts.special_tokens.items())
        lines.append(f"not in this format: the special tokens, {named}")
    return lines
