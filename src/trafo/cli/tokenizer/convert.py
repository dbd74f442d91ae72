"""`trafo tokenizer convert`: one file format in, another out."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated, Literal

from trafo.cli.arguments import TokenizerPath
from trafo.cli.tokenizer.train import refuse_to_replace
from trafo.config import Argument, Positional
from trafo.errors import ConfigError, FormatError
from trafo.runtime.console import show
from trafo.runtime.remote import local_copy_of

if TYPE_CHECKING:
    from trafo.tokenizer.formats.load import TokenizerFormat
    from trafo.tokenizer.formats.spec import TokenizerSpec

# Each kind of word that a split pattern knows, and many scripts.
SAMPLE = """The quick brown fox can't jump over 12,345.67 lazy dogs; WE'LL see, they've said!
\tdef f(x):\r\n        return {"key": [x ** 2, None]}  # trailing   \n\n\n
Zażółć gęślą jaźń. Ὦ ξεῖν\u2019, ἀγγέλλειν. Съешь же ещё этих мягких французских булок.
いろはにほへと 色は匂へど 한글은 좋다 नमस्ते دنیا שלום ไทย 👩\u200d👩\u200d👧 🇩🇪 e\u0301 \u00a0 ﬁn
"""


@dataclass(frozen=True, kw_only=True)
class Options:
    """Convert a tokenizer to another format, and check that it still gives the same ids."""

    tokenizer: TokenizerPath
    """a tokenizer in any format that trafo reads, or a run or model that has one"""
    out: Annotated[Positional[Path], Argument(metavar="OUT")]
    """where to write: a folder for trafo and gpt2, a file for the others"""
    to: Literal["trafo", "gpt2", "huggingface", "tiktoken"] | None = None
    """format; None: by the name OUT: x.json, x.tiktoken, or a folder in trafo's own format"""
    pattern: str | None = None
    """pre-tokenization pattern, for formats without one: a name or a regular expression"""
    special_tokens: tuple[str, ...] = ()
    """special tokens to add"""
    overwrite: bool = False
    """replace what exists"""


def run(options: Options) -> None:
    """Read, try the new format in a temporary place, then write it."""
    from trafo.tokenizer.formats.load import save_as

    to = options.to or _guess_format(options.out)
    if not options.overwrite:
        refuse_to_replace(options.out)
    spec, source = _load_source(options)
    with TemporaryDirectory() as folder:
        # Under another name: a file called cl100k_base would be recognized by its name.
        trial = Path(folder, "trial").with_suffix(".json" if to == "huggingface" else "")
        save_as(spec, trial, to)
        _check_same(spec, trial, to)
    save_as(spec, options.out, to)
    show(
        f"{options.out}: {source} -> {to}, {len(spec.vocab):,} tokens, read back with the same ids"
    )
    if to in ("gpt2", "tiktoken"):
        show(*(f"not in this format: {part}" for part in _list_missing_parts(spec)))


def _load_source(options: Options) -> tuple[TokenizerSpec, str]:
    """Load the tokenizer and name its format."""
    from trafo.checkpoint.locate import find_kind, load_tokenizer
    from trafo.tokenizer.formats.load import detect_format, load_any
    from trafo.tokenizer.formats.spec import with_special_tokens

    path = local_copy_of(options.tokenizer) if options.tokenizer else options.tokenizer
    kind = find_kind(Path(path))
    if kind in (None, "hugging-face"):
        specials = options.special_tokens or None
        return load_any(path, pattern=options.pattern, special_tokens=specials), detect_format(path)
    spec = with_special_tokens(load_tokenizer(path).spec, options.special_tokens)
    return replace(spec, pattern=options.pattern or spec.pattern), f"the tokenizer of a {kind}"


def _guess_format(out: Path) -> TokenizerFormat:
    formats: dict[str, TokenizerFormat] = {
        ".json": "huggingface",
        ".tiktoken": "tiktoken",
        "": "trafo",
    }
    if out.suffix not in formats:
        raise ConfigError(
            f"{out.name!r} does not say which format",
            hint="add --to trafo, gpt2, huggingface or tiktoken",
        )
    return formats[out.suffix]


def _check_same(spec: TokenizerSpec, path: Path, to: TokenizerFormat) -> None:
    """Read the new files and compare the ids of a sample that also holds the special tokens."""
    from trafo.tokenizer.formats.load import load_any
    from trafo.tokenizer.tokenizer import Tokenizer

    again = load_any(path, pattern=spec.pattern, special_tokens=spec.special_tokens)
    sample = SAMPLE + SAMPLE.join(spec.special_tokens)
    if Tokenizer.from_spec(again).encode(sample) != Tokenizer.from_spec(spec).encode(sample):
        raise FormatError(
            f"read back from {to}, this tokenizer gives different ids",
            hint="choose another format; trafo's own holds everything",
        )


def _list_missing_parts(spec: TokenizerSpec) -> list[str]:
    """List what the formats gpt2 and tiktoken do not store, though a reader needs it."""
    named = ", ".join(f"{token} = {i}" for token, i in spec.special_tokens.items())
    parts = [f"the pattern, {spec.pattern}"]
    parts += [f"the special tokens, {named}"] * bool(named)
    return parts + ["the normalizer, NFC"] * spec.nfc
