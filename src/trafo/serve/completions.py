"""`/v1/completions` and `/v1/chat/completions`: a body in, an answer or a stream out."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from secrets import randbits

import torch
from starlette.requests import Request as HttpRequest
from starlette.responses import Response

from trafo.generate.config import GenerationConfig
from trafo.generate.request import Request, vocab_size
from trafo.generate.sampling import Token, with_logprobs
from trafo.models import CausalLM
from trafo.models.base import evaluating
from trafo.serve.answer import Answer, AnswerFormat, ChatFormat, CompletionFormat, EventStream
from trafo.serve.errors import invalid, queue_full, refusing
from trafo.serve.models import ServedModel
from trafo.serve.protocol import ChatBody, CompletionBody, SamplingBody, parse_count
from trafo.serve.service import (
    Service,
    check_prompt_ids,
    encode_prompts,
    list_prompts,
    read_body,
    run_apart,
    service_of,
)

DEFAULT_MAX_TOKENS = 16
"""of a completion, OpenAI's default"""
DEFAULT_CHAT_TOKENS = 256
REQUEST_ID = "x-request-id"
"""header with the client's name for a request"""
_ANSWERS_IN_MEMORY = 4
"""of the largest size, together"""
_SAME_NAMES = (
    "temperature",
    "top_p",
    "min_p",
    "repetition_penalty",
    "presence_penalty",
    "frequency_penalty",
)
"""fields that are called the same in `GenerationConfig`"""


async def completions(http: HttpRequest) -> Response:
    """`POST /v1/completions`."""
    service, body = service_of(http), await read_body(http, CompletionBody)
    served = service.models.get(body.model, "language")
    tokenizer, model, logprobs = served.bundle.tokenizer, served.bundle.model, body.logprobs
    prompts = list_prompts(body.prompt, "prompt", service.config.max_choices)
    _check_choices(service, body, len(prompts))
    max_tokens = _first(body.max_tokens, DEFAULT_MAX_TOKENS)
    config = _generation_config(service, served, body, max_tokens, logprobs)
    ids = await encode_prompts(service, served, prompts, "prompt")
    requests = [Request.of(each, config, tokenizer) for each in ids]
    echoes: list[tuple[str, Sequence[Token]]] = []
    if body.echo:
        texts = await run_apart(
            lambda: [each if isinstance(each, str) else tokenizer.decode(each) for each in prompts],
            sum(map(len, prompts)),
        )
        tokens: list[list[Token]] = [[] for _ in texts]
        if logprobs is not None:
            num_echoed = sum(map(len, ids)) * config.num_samples * (1 + logprobs)
            _check_logprobs(service, served, requests, num_echoed)
            tokens = await service.compute(
                lambda check: [_prompt_tokens(model, each, logprobs, check) for each in ids]
            )
        echoes = list(zip(texts, tokens, strict=True))
    form = CompletionFormat(served.name, tokenizer.vocab, logprobs is not None)
    return await _answer(http, body, served, requests, form, echoes)


async def chat_completions(http: HttpRequest) -> Response:
    """`POST /v1/chat/completions`."""
    service, body = service_of(http), await read_body(http, ChatBody)
    served = service.models.get(body.model, "language")
    tokenizer, template = served.bundle.tokenizer, served.template
    if body.top_logprobs is not None and not body.logprobs:
        raise invalid("top_logprobs needs logprobs: true", "top_logprobs")
    _check_choices(service, body, 1)
    max_tokens = _first(body.max_completion_tokens, body.max_tokens, DEFAULT_CHAT_TOKENS)
    logprobs = (body.top_logprobs or 0) if body.logprobs else None
    config = _generation_config(service, served, body, max_tokens, logprobs, template.stop)
    messages = [{"role": each.role, "content": each.text} for each in body.messages]
    with refusing("messages"):  # a thread: a model's own template runs in another process
        ids = await asyncio.to_thread(template.encode, tokenizer, messages)
    check_prompt_ids(service, served, ids, "messages")
    form = ChatFormat(served.name, tokenizer.vocab, bool(body.logprobs))
    return await _answer(http, body, served, [Request.of(ids, config, tokenizer)], form)


async def _answer(
    http: HttpRequest,
    body: SamplingBody,
    served: ServedModel,
    requests: list[Request],
    form: AnswerFormat,
    echoes: Sequence[tuple[str, Sequence[Token]]] = (),
) -> Response:
    service, options = service_of(http), body.stream_options
    if options is not None and not body.stream:
        raise invalid("stream_options needs stream: true", "stream_options")
    _check_logprobs(service, served, requests)
    subscription = served.worker.submit(requests, http.headers.get(REQUEST_ID))
    answer = Answer(subscription, form, service.metrics, echoes)
    if not body.stream:
        return await answer.whole()
    return EventStream(answer, options is not None and options.include_usage)


def _check_choices(service: Service, body: SamplingBody, num_prompts: int) -> None:
    number, most = num_prompts * (body.n or 1), service.config.max_choices
    if number > most:
        what = f"n: {body.n or 1} completions of {num_prompts} prompts; at most {most} are allowed"
        raise invalid(what, "n" if body.n else "prompt")


def _check_logprobs(
    service: Service, served: ServedModel, requests: Sequence[Request], num_echoed: int = 0
) -> None:
    """Refuse an answer, or all of them together, that would take too much memory."""
    number = num_echoed + sum(request.num_logprobs for request in requests)
    most = service.config.max_logprobs
    if number > most:
        what = (
            f"logprobs: the answer may have {number:,} log-probabilities (completions times tokens "
            f"times alternatives); at most {most:,} are allowed: lower n, max_tokens or logprobs"
        )
        raise invalid(what, "logprobs")
    if number + served.worker.num_logprobs > _ANSWERS_IN_MEMORY * most:
        raise queue_full()


def _generation_config(
    service: Service,
    served: ServedModel,
    body: SamplingBody,
    max_tokens: int,
    logprobs: int | None,
    more_stops: Sequence[str] = (),
) -> GenerationConfig:
    """Return the generation settings, with OpenAI's defaults for fields that are left out."""
    most = service.config.max_tokens
    if max_tokens > most:
        raise invalid(f"max_tokens is {max_tokens:,}; at most {most:,} are allowed", "max_tokens")
    stops = [body.stop] if isinstance(body.stop, str) else body.stop or []
    given = {name: getattr(body, name) for name in _SAME_NAMES} | {"num_samples": body.n}
    bias = _logit_bias(served, body.logit_bias or {})
    with refusing("stop"):
        return GenerationConfig(
            max_new_tokens=max_tokens,
            seed=randbits(63) if body.seed is None else body.seed % 2**64,
            logit_bias=bias,
            logprobs=logprobs,
            top_k=body.top_k if (body.top_k or 0) > 0 else None,
            stop=(*stops, *more_stops),
            **{name: value for name, value in given.items() if value is not None},
        )


def _logit_bias(served: ServedModel, given: dict[str, float]) -> tuple[tuple[int, float], ...]:
    size, pairs = vocab_size(served.bundle.model), []
    for name, number in given.items():
        token_id = parse_count(name)
        if token_id is None or token_id >= size:
            what = f"logit_bias has {name[:40]!r}: the model knows ids from 0 to {size - 1:,}"
            raise invalid(what, "logit_bias")
        pairs.append((token_id, number))
    return tuple(pairs)


@torch.inference_mode()
def _prompt_tokens(
    model: CausalLM, ids: Sequence[int], alternatives: int, check: Callable[[], None]
) -> list[Token]:
    """Return a prompt with its log-probabilities, none for the first token."""
    check()
    tensor = torch.tensor([ids], device=model.head_weight.device)
    with evaluating(model):
        logits = model(tensor)[0, :-1]
    if len(ids) == 1:
        return [Token(ids[0])]
    return [Token(ids[0]), *with_logprobs(logits, tensor[0, 1:], alternatives)]


def _first(*values: int | None) -> int:
    return next(value for value in values if value is not None)
