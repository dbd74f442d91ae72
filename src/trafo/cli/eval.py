"""`trafo eval`: loss, perplexity and bits per byte of a model; BLEU and chrF of translations."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from trafo.cli.arguments import Errors, Paths, RunPath, Texts
from trafo.cli.decoding import DecodingFlags
from trafo.errors import InputError, require, require_at_least
from trafo.runtime.console import plain_table, show, show_json
from trafo.runtime.progress import progress

if TYPE_CHECKING:
    from trafo.checkpoint.bundle import Bundle
    from trafo.data.pairs import Pair
    from trafo.evaluate.evaluation import Evaluation
    from trafo.tokenizer import TokenFile, Tokenizer

_TOKENS = ".tokens"


@dataclass(frozen=True, kw_only=True)
class Options(DecodingFlags):
    """Evaluate a model: loss, perplexity and bits per byte; of translations, BLEU and chrF too."""

    run: RunPath
    """a run, one of its checkpoints, a Hugging Face folder, a GGUF or a llama2.c file"""
    text: Texts = ()
    """text files, folders or globs; plain text, .gz, .zst, .jsonl, .parquet; or one token file"""
    pairs: Paths = ()
    """sentence pairs for a translation model, instead of a text: two aligned files, .tsv, .jsonl"""
    lowercase: bool = False
    """BLEU and chrF: ignore upper and lower case"""
    context_length: int | None = None
    """tokens per window; None: the model's context length"""
    stride: int | None = None
    """tokens predicted per window; fewer than the context length give each more context"""
    batch_size: int = 8
    """windows per forward pass"""
    max_tokens: int | None = None
    """evaluate about this many tokens, spread evenly over the text, instead of all"""
    end_of_document: str | None = None
    """special token to add after each file or record"""
    field: str = "text"
    """field that holds the text in JSON lines and Parquet"""
    errors: Errors = "strict"
    """invalid UTF-8: stop (strict), or read U+FFFD (replace)"""
    threads: int | None = None
    """CPU threads; None: the fastest number, found by timing the work"""
    best: bool = False
    """use the checkpoint with the lowest validation loss instead of the newest"""
    fast: bool = True
    """use the faster versions of the layers; false runs the readable model"""
    json: bool = False
    """print JSON instead of a table"""

    def __post_init__(self) -> None:
        for flag in ("context_length", "stride", "batch_size", "max_tokens", "threads"):
            require_at_least(1, **{"--" + flag.replace("_", "-"): getattr(self, flag)})
        is_one = bool(self.text) != bool(self.pairs)
        require(is_one, "eval needs a TEXT, or sentence pairs by --pairs", "give one of them")


def run(options: Options) -> None:
    """Load, encode, evaluate, show."""
    facts = _translation_facts(options) if options.pairs else _text_facts(options)
    (show_json if options.json else _show_table)(facts)


def _text_facts(options: Options) -> dict[str, Any]:
    from trafo.checkpoint.bundle import load_bundle

    bundle = load_bundle(options.run, best=options.best, fast=options.fast).require_language_model()
    with _open_tokens(bundle.tokenizer, options) as tokens:
        return _facts(_evaluate(bundle, tokens, options))


def _translation_facts(options: Options) -> dict[str, Any]:
    """The loss on the references, and the scores of the model's own translations."""
    from trafo.checkpoint.bundle import load_bundle
    from trafo.cli.translate import translate_all
    from trafo.data.pairs import read_pairs
    from trafo.evaluate.scores import score_bleu, score_chrf
    from trafo.generate.translate import search_settings

    pairs = read_pairs(options.pairs, errors=options.errors)
    bundle = load_bundle(options.run, best=options.best, fast=options.fast)
    bundle.require_translation_model()
    sources = [pair.source for pair in pairs]
    search = search_settings(bundle, **options.decoding)
    found = translate_all(bundle, sources, search, options.threads)
    hypotheses, references = [best[0].text for best in found], [[pair.target for pair in pairs]]
    lowercase = options.lowercase or bundle.tokenizer.lowercase
    bleu = score_bleu(hypotheses, references, lowercase=lowercase)
    chrf = score_chrf(hypotheses, references, lowercase=lowercase)
    return _facts(_evaluate_pairs(bundle, pairs, options)) | {
        "sentences": len(pairs),
        "bleu": bleu.value,
        "chrf": chrf.value,
        "signature": bleu.signature,
        "chrf_signature": chrf.signature,
    }


def _evaluate_pairs(bundle: Bundle, pairs: list[Pair], options: Options) -> Evaluation:
    from trafo.data.pair_batches import EncodedPairs
    from trafo.evaluate.evaluation import count_token_bytes, evaluate_pairs

    tokenizer = bundle.tokenizer
    encoded = EncodedPairs(
        tokenizer.encode_source([pair.source for pair in pairs]),
        tokenizer.encode_target([pair.target for pair in pairs]),
        bundle.model.config.padding_id,
    )
    lengths = count_token_bytes(tokenizer.target)
    return evaluate_pairs(
        bundle.model, encoded, byte_lengths=lengths, max_tokens=options.max_tokens
    )


def _facts(evaluation: Evaluation) -> dict[str, Any]:
    return {
        "loss": evaluation.loss,
        "standard_error": evaluation.standard_error,
        "perplexity": evaluation.perplexity,
        "bits_per_byte": evaluation.bits_per_byte,
        "tokens": evaluation.num_tokens,
        "bytes": evaluation.num_bytes,
    }


@contextmanager
def _open_tokens(tokenizer: Tokenizer, options: Options) -> Iterator[TokenFile]:
    """A token file as it is; text through a temporary one, so that memory stays small."""
    from trafo.tokenizer import TokenFile, encode_files

    if any(path.endswith(_TOKENS) for path in options.text):
        if len(options.text) > 1:
            raise InputError(
                "several inputs, one of them a token file", hint="give one token file, or texts"
            )
        yield TokenFile.open(options.text[0], tokenizer.hash)
        return
    with TemporaryDirectory() as folder:
        yield encode_files(
            tokenizer,
            options.text,
            Path(folder, "text" + _TOKENS),
            field=options.field,
            errors=options.errors,
            end_of_document=options.end_of_document,
        )


def _evaluate(bundle: Bundle, tokens: TokenFile, options: Options) -> Evaluation:
    from trafo.evaluate.evaluation import count_token_bytes, evaluate_ids
    from trafo.fast.threads import torch_threads

    total = min(len(tokens) - 1, options.max_tokens or len(tokens))
    threads = torch_threads(options.threads)
    with progress("evaluating", total=total, unit="tokens") as bar:
        return evaluate_ids(
            bundle.model,
            tokens.ids,
            context_length=options.context_length,
            stride=options.stride,
            batch_size=options.batch_size,
            byte_lengths=count_token_bytes(bundle.tokenizer),
            max_tokens=options.max_tokens,
            advance=threads.watching(bar.advance),
        )


def _show_table(facts: dict[str, Any]) -> None:
    table = plain_table("lr")
    for name, value in facts.items():
        if not isinstance(value, str):
            table.add_row(name.replace("_", " "), _shown(value))
    show(table, *(value for value in facts.values() if isinstance(value, str)))


def _shown(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:,}" if isinstance(value, int) else f"{value:.4f}"
