"""Prompts -> completions: text in, text out, at once or streamed.

generate(model, tokenizer, ["Once upon a time"], GenerationConfig(temperature=0.8))
for piece in stream_text(model, tokenizer, "Once upon a time"): ...
"""

from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace

from trafo.errors import ConfigError, InputError, require_lists
from trafo.generate.beam_config import BeamConfig
from trafo.generate.config import EngineConfig, GenerationConfig
from trafo.generate.engine import Engine
from trafo.generate.engine.build import make_step
from trafo.generate.request import FinishReason, Piece, Request, vocab_size
from trafo.generate.sampling import Token
from trafo.models import CausalLM
from trafo.models.base import evaluating
from trafo.runtime.threads import ThreadChooser
from trafo.tokenizer import END_OF_TEXT, Tokenizer

_CHUNK_TOKENS = 512  # larger than in the service: no client waits for its next token


@dataclass
class Completion:
    """One completion of one prompt; `ids` and `logprobs` are those of the tokens, in order.

    The text ends before a stop string, but the tokens include it. The end token is not included.
    """

    prompt: int
    sample: int
    text: str = ""
    tokens: list[Token] = field(default_factory=list)
    finish_reason: FinishReason = "length"

    @property
    def ids(self) -> list[int]:
        """The ids of the tokens."""
        return [token.id for token in self.tokens]

    @property
    def logprobs(self) -> list[float]:
        """Under the model's own distribution; empty unless the config asks for them."""
        return [token.logprob for token in self.tokens if token.logprob is not None]


def generate(
    model: CausalLM,
    tokenizer: Tokenizer,
    prompts: Sequence[str],
    config: GenerationConfig | None = None,
) -> list[Completion]:
    """Completions: all samples of the first prompt, then of the second, and so on."""
    config = config or GenerationConfig()
    return collect(stream(model, tokenizer, prompts, config), len(prompts), config.num_samples)


def collect(pieces: Iterator[Piece], num_prompts: int, num_samples: int) -> list[Completion]:
    """Join streamed pieces into completions."""
    done = [Completion(i, j) for i in range(num_prompts) for j in range(num_samples)]
    for piece in pieces:
        completion = done[piece.row]
        completion.text += piece.text
        if piece.token is not None:
            completion.tokens.append(piece.token)
        if piece.finish_reason is not None:
            completion.finish_reason = piece.finish_reason
    return done


def stream_text(
    model: CausalLM, tokenizer: Tokenizer, prompt: str, config: GenerationConfig | None = None
) -> Iterator[str]:
    """Stream the text of one completion: whole characters, nothing of a stop string."""
    config = config or GenerationConfig()
    if config.num_samples != 1:
        raise ConfigError(
            f"num_samples is {config.num_samples}, but only one text can be streamed",
            hint="use `stream` for several",
        )
    return (piece.text for piece in stream(model, tokenizer, [prompt], config) if piece.text)


def stream(
    model: CausalLM,
    tokenizer: Tokenizer,
    prompts: Sequence[str | list[int]],
    config: GenerationConfig,
    threads: ThreadChooser | None = None,
) -> Iterator[Piece]:
    """Stream the pieces of all rows; row i * num_samples + j is sample j of prompt i.

    A prompt may also be ids, such as those of a chat. `threads` chooses the number of CPU threads,
    by timing the steps.
    """
    if tokenizer.vocab_size > vocab_size(model):
        raise InputError(
            f"the tokenizer has {tokenizer.vocab_size:,} ids, the model {vocab_size(model):,}",
            hint="use the model's own tokenizer",
        )
    require_lists(prompts=prompts)
    ids = [encode_prompt(tokenizer, prompt, config) for prompt in prompts]
    return _pieces(model, [Request.of(each, config, tokenizer) for each in ids], threads)


def search(
    model: CausalLM,
    tokenizer: Tokenizer,
    prompts: Sequence[str],
    beam: BeamConfig,
    config: GenerationConfig | None = None,
) -> list[Completion]:
    """The `n_best` completions of each prompt by beam search, best first.

    Of the `config`, the settings of prompts and ends count; what shapes sampling is refused.
    """
    from trafo.generate.beam import beam_search_prompts  # compiles when first used

    config = config or GenerationConfig()
    _refuse_sampling(config)
    requests = [
        Request.of(encode_prompt(tokenizer, each, config), config, tokenizer) for each in prompts
    ]
    ends = requests[0].ends if requests else frozenset[int]()
    with evaluating(model):
        found = beam_search_prompts(
            model, [request.prompt for request in requests], ends, beam, config.max_new_tokens
        )
    done = []
    for i, (request, hypotheses) in enumerate(zip(requests, found, strict=True)):
        for j, (ids, _, _) in enumerate(hypotheses):
            has_ended = ids[-1] in ends
            kept = ids[:-1] if has_ended else ids
            text = b"".join(request.vocab.get(token, b"") for token in kept)
            reason: FinishReason = "end" if has_ended else "length"
            decoded = text.decode("utf-8", errors="replace")
            done.append(Completion(i, j, decoded, [Token(token) for token in kept], reason))
    return done


def _refuse_sampling(config: GenerationConfig) -> None:
    """Settings without a meaning for beam search are mistakes, not wishes to ignore."""
    plain = GenerationConfig()
    names = ("temperature", "top_k", "top_p", "min_p", "repetition_penalty", "frequency_penalty")
    for name in (*names, "presence_penalty", "logit_bias", "stop", "logprobs"):
        if getattr(config, name) != getattr(plain, name):
            hint = "leave it out, or sample without a beam"
            raise ConfigError(f"beam search takes no {name}", hint=hint)


def generate_ids(
    model: CausalLM,
    prompts: Sequence[Sequence[int]],
    config: GenerationConfig | None = None,
    *,
    end_id: int | None = None,
) -> list[Completion]:
    """Like `generate`, from ids to ids: no text, no stop strings."""
    config = config or GenerationConfig()
    if config.stop:
        raise ConfigError("stop strings are for text", hint="use `generate`, or an end_id")
    ends = frozenset() if end_id is None else frozenset([end_id])
    pieces = _pieces(model, [Request(prompt, config, ends) for prompt in prompts])
    return collect(pieces, len(prompts), config.num_samples)


def encode_prompt(
    tokenizer: Tokenizer, prompt: str | list[int], config: GenerationConfig
) -> list[int]:
    """The ids of a prompt, after the begin token if there is one; an empty prompt needs one."""
    if isinstance(prompt, list) and all(isinstance(i, int) for i in prompt):
        return prompt
    if not isinstance(prompt, str):
        raise InputError(f"a prompt has type {type(prompt).__name__}", hint="it must be a string")
    ids = tokenizer.encode(prompt, "allow" if config.allow_special else "ignore")
    begin = tokenizer.begin
    if begin is not None and ids[:1] != [begin]:
        return [begin, *ids]
    if ids:
        return ids
    start = tokenizer.special_tokens.get(END_OF_TEXT)
    if start is None:
        raise InputError(
            f"the prompt is empty and the tokenizer has no {END_OF_TEXT} to begin with",
            hint="write at least one character",
        )
    return [start]


def _pieces(
    model: CausalLM, requests: Sequence[Request], threads: ThreadChooser | None = None
) -> Iterator[Piece]:
    """What each step adds to each row, until all are done. The requests have the same config.

    Compiled kernels copy the weights: they do not see later updates of a training run.
    """
    if not requests:
        return
    num_samples = requests[0].config.num_samples
    config = EngineConfig(
        kernel=requests[0].config.kernel,
        chunk_tokens=_CHUNK_TOKENS,
        max_running=min(len(requests) * num_samples, EngineConfig.max_running),
    )
    timed = nullcontext if threads is None else threads.timed
    with evaluating(model):
        engine = Engine(model, config, make_step(model, config))
        for request in requests:
            engine.add(request)
        first_rows = {request: i * num_samples for i, request in enumerate(requests)}
        while engine.has_work:
            with timed(engine.num_running + engine.num_waiting):
                done = engine.step()
            for request, piece in done:
                if isinstance(piece, Exception):
                    raise piece
                yield replace(piece, row=first_rows[request] + piece.row)
