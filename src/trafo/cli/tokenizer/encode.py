"""`trafo tokenizer encode`: text in, ids out."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from itertools import islice
from time import perf_counter
from typing import TYPE_CHECKING, Annotated

from trafo.cli.arguments import Errors, OptionalPlace, SpecialPolicy, Texts, TokenizerPath
from trafo.cli.pipes import is_interactive, stdin_text, wait_for_stdin, write_text
from trafo.config import Argument
from trafo.errors import ConfigError, InputError, StorageError, require_at_least
from trafo.runtime.console import format_command, show
from trafo.runtime.remote import RemotePath, parse_path
from trafo.runtime.sizes import format_duration, format_size

if TYPE_CHECKING:
    from trafo.tokenizer.tokenizer import Tokenizer

_IDS_PER_WRITE = 4096


@dataclass(frozen=True, kw_only=True)
class Options:
    """Encode text as token ids: files into a token file, or one text into a line of ids.

    Files need --out; run the same command again to resume after an interruption. Without files,
    the ids of --text, or of the text on stdin, are printed.
    """

    tokenizer: TokenizerPath
    """a tokenizer in any format that trafo reads, or a run or model that has one"""
    files: Annotated[Texts, Argument(metavar="FILE ...")] = ()
    """files, folders or globs; plain text, .gz, .zst, .jsonl, .parquet"""
    out: OptionalPlace = None
    """token file to write, with a manifest beside it; a path, or a URL such as s3://bucket/x.tokens"""
    text: str | None = None
    """a text to encode, instead of files"""
    special: SpecialPolicy | None = None
    """special tokens in the text: allow (encode as special), ignore (as plain text), or refuse;
    None: allow in files, where <|endoftext|> ends a document, ignore in --text and on stdin"""
    end_of_document: str | None = None
    """special token to add after each file or record"""
    workers: int | None = None
    """number of threads, or of CPUs of a cluster that --on ray starts; None: all cores"""
    on: str | None = None
    """Ray cluster to work on: ray (on this machine), ray://host:port or host:port; None: threads"""
    field: str = "text"
    """field that holds the text in JSON lines and Parquet"""
    errors: Errors = "strict"
    """invalid UTF-8: stop (strict), or read U+FFFD (replace)"""

    def __post_init__(self) -> None:
        require_at_least(1, **{"--workers": self.workers})
        if self.files and self.text is not None:
            raise ConfigError("both files and --text are given", hint="give one of them")
        if self.files and self.out is None:
            raise ConfigError(
                "--out is missing",
                hint="say where the token file goes, or pipe one text in to see its ids",
            )
        if self.out is not None and not self.files:
            raise ConfigError("--out is for files, but none are given", hint="name them before it")


def run(options: Options) -> None:
    """Load the tokenizer, then encode what was given."""
    from trafo.checkpoint.locate import load_tokenizer

    if options.out is not None:
        _refuse_other_files(options.out)
    tokenizer = load_tokenizer(options.tokenizer)
    if options.out is not None:
        _write_token_file(tokenizer, options, options.out)
    else:
        _print_ids(tokenizer, options)


def _refuse_other_files(out: str) -> None:
    """Raise if there is a file that is not a token file, which alone may be replaced."""
    if parse_path(out).exists() and not parse_path(f"{out}.json").exists():
        hint = "give another name for --out"
        raise StorageError("exists and is not a token file", where=out, hint=hint)


def _write_token_file(tokenizer: Tokenizer, options: Options, out: str) -> None:
    from trafo.cluster.encoding import encoding_on
    from trafo.tokenizer.encode_corpus import encode_files

    before = _read_change_time(out)
    start = perf_counter()
    cluster = nullcontext() if options.on is None else encoding_on(options.on, options.workers)
    with cluster as backend:
        token_file = encode_files(
            tokenizer,
            options.files,
            out,
            num_workers=options.workers,
            field=options.field,
            errors=options.errors,
            special=options.special or "allow",
            end_of_document=options.end_of_document,
            backend=backend,
        )
    seconds = perf_counter() - start
    about = token_file.manifest
    ratio = about.num_bytes / max(1, about.num_tokens)
    show(
        f"{about.num_tokens:,} tokens from {format_size(about.num_bytes)} of text "
        f"({ratio:.2f} bytes per token), {about.num_documents:,} documents, {about.dtype}"
    )
    is_new = _read_change_time(out) != before
    done = f"written to {out} in {format_duration(seconds)}" if is_new else f"{out} was up to date"
    show(f"{done}; back to text with")
    show(f"  {format_command('tokenizer', 'decode', options.tokenizer, '--tokens', out)}")


def _read_change_time(out: str) -> int:
    """Return when the manifest was written, which is written last, or 0 if there is none."""
    manifest = parse_path(f"{out}.json")
    if isinstance(manifest, RemotePath):
        return manifest.size_and_change()[1] if manifest.exists() else 0
    return manifest.stat().st_mtime_ns if manifest.exists() else 0


def _print_ids(tokenizer: Tokenizer, options: Options) -> None:
    """Write all ids in one line, as they come."""
    if options.text is not None:
        texts = iter([options.text])
    elif is_interactive():
        raise InputError("no text given", hint="give --text, pipe text in, or give files and --out")
    else:
        wait_for_stdin("the text")
        texts = stdin_text(options.errors)
    write_text(_format_ids(tokenizer.encode_iterable(texts, options.special or "ignore")))


def _format_ids(ids: Iterator[int]) -> Iterator[str]:
    separator = ""
    while batch := list(islice(ids, _IDS_PER_WRITE)):
        yield separator + " ".join(map(str, batch))
        separator = " "
    yield "\n"
