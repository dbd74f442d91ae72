"""`/v1/completions` and `/v1/chat/completions`: a body in, an answer or a stream out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from secrets import randbits

import torch
from starlette.requests import Request as HttpRequest
from starlette.responses import Response

from trafo.generate.config import GenerationConfig
from trafo.generate.decode import vocab_size
from trafo.generate.request import Request
from trafo.generate.sampling import Token, with_logprobs
from trafo.models import CausalLM
from trafo.models.evaluating import evaluating
from trafo.serve.answer import Answer, Echo, EventStream
from trafo.serve.errors import invalid, refusing
from trafo.serve.formats import ChatFormat, CompletionFormat, Format
from trafo.serve.models import LanguageModel
from trafo.serve.protocol import ChatBody, CompletionBody, Sampling
from trafo.serve.service import Service, fitting, prompt_ids, prompts_of, read_body, service_of

DEFAULT_MAX_TOKENS = 16
"""of a completion, OpenAI's default"""
DEFAULT_CHAT_TOKENS = 256
REQUEST_ID = "x-request-id"
"""header with the client's name for a request"""


async def completions(http: HttpRequest) -> Response:
    """`POST /v1/completions`."""
    service, body = service_of(http), await read_body(http, CompletionBody)
    served = service.models.language(body.model)
    config = _config(service, served, body, _first(body.max_tokens, DEFAULT_MAX_TOKENS))
    config = _with(config, logprobs=body.logprobs)
    prompts = prompts_of(body.prompt, "prompt")
    ids = [prompt_ids(service, served, prompt, "prompt") for prompt in prompts]
    tokenizer = served.bundle.tokenizer
    echoes = []
    if body.echo:
        echoes = [
            await _echo(service, served, *each, body) for each in zip(prompts, ids, strict=True)
        ]
    form = CompletionFormat(served.name, tokenizer.vocab, body.logprobs is not None)
    requests = [Request.of(each, config, tokenizer) for each in ids]
    return await _answer(http, body, served, requests, form, echoes)


async def chat_completions(http: HttpRequest) -> Response:
    """`POST /v1/chat/completions`."""
    service, body = service_of(http), await read_body(http, ChatBody)
    served = service.models.language(body.model)
    if body.top_logprobs is not None and not body.logprobs:
        raise invalid("top_logprobs needs logprobs: true", "top_logprobs")
    max_tokens = _first(body.max_completion_tokens, body.max_tokens, DEFAULT_CHAT_TOKENS)
    config = _config(service, served, body, max_tokens)
    number = (body.top_logprobs or 0) if body.logprobs else None
    config = _with(config, logprobs=number, stop=(*config.stop, *served.template.stop))
    tokenizer = served.bundle.tokenizer
    ids = fitting(service, served, served.template.encode(tokenizer, body.messages), "messages")
    form = ChatFormat(served.name, tokenizer.vocab, bool(body.logprobs))
    return await _answer(http, body, served, [Request.of(ids, config, tokenizer)], form)


async def _answer(
    http: HttpRequest,
    body: Sampling,
    served: LanguageModel,
    requests: list[Request],
    form: Format,
    echoes: list[Echo] | None = None,
) -> Response:
    service = service_of(http)
    if body.stream_options is not None and not body.stream:
        raise invalid("stream_options needs stream: true", "stream_options")
    number = len(requests) * requests[0].config.num_samples
    if number > service.config.max_choices:
        most = service.config.max_choices
        raise invalid(f"n: {number} completions; at most {most} are allowed", "n")
    name = http.headers.get(REQUEST_ID)
    subscription = served.worker.submit(requests, service.config.max_seconds, name)
    answer = Answer(subscription, form, service.metrics, echoes or [])
    if not body.stream:
        return await answer.whole(http)
    options = body.stream_options
    return EventStream(answer, options is not None and options.include_usage)


def _config(
    service: Service, served: LanguageModel, body: Sampling, max_tokens: int
) -> GenerationConfig:
    """The generation settings; fields that are left out have OpenAI's defaults."""
    if max_tokens > service.config.max_tokens:
        most = service.config.max_tokens
        raise invalid(f"max_tokens is {max_tokens:,}; at most {most:,} are allowed", "max_tokens")
    stop = [body.stop] if isinstance(body.stop, str) else body.stop or []
    config = GenerationConfig(
        max_new_tokens=max_tokens,
        seed=randbits(63) if body.seed is None else body.seed % 2**64,
        logit_bias=_logit_bias(served, body.logit_bias or {}),
    )
    same_names = ("temperature", "top_p", "min_p", "repetition_penalty")
    penalties = ("presence_penalty", "frequency_penalty")
    given = {name: getattr(body, name) for name in (*same_names, *penalties)}
    given |= {"top_k": body.top_k if (body.top_k or 0) > 0 else None, "num_samples": body.n}
    given = {name: value for name, value in given.items() if value is not None}
    return _with(config, stop=tuple(stop), **given)


def _with(config: GenerationConfig, **changes: object) -> GenerationConfig:
    with refusing(next(iter(changes))):
        return replace(config, **changes)  # type: ignore[arg-type]


def _logit_bias(served: LanguageModel, given: dict[str, float]) -> tuple[tuple[int, float], ...]:
    size = vocab_size(served.bundle.model)
    for name in given:
        if not (name.isascii() and name.isdigit() and int(name) < size):
            what = f"logit_bias has {name!r}: the model knows ids from 0 to {size - 1:,}"
            raise invalid(what, "logit_bias")
    return tuple((int(name), number) for name, number in given.items())


async def _echo(
    service: Service,
    served: LanguageModel,
    prompt: str | list[int],
    ids: list[int],
    body: CompletionBody,
) -> Echo:
    """The prompt at the start of the answer, with its log-probabilities if requested."""
    text = prompt if isinstance(prompt, str) else served.bundle.tokenizer.decode(prompt)
    if body.logprobs is None:
        return Echo(text)
    model, number = served.bundle.model, body.logprobs
    return Echo(text, await service.compute(lambda: _prompt_tokens(model, ids, number)))


@torch.inference_mode()
def _prompt_tokens(model: CausalLM, ids: Sequence[int], alternatives: int) -> list[Token]:
    """A prompt with its log-probabilities; the first token has none: nothing comes before it."""
    tensor = torch.tensor([ids], device=model.head_weight.device)
    with evaluating(model):
        logits = model(tensor)[0, :-1]
    if len(ids) == 1:
        return [Token(ids[0])]
    return [Token(ids[0]), *with_logprobs(logits, tensor[0, 1:], alternatives)]


def _first(*values: int | None) -> int:
    return next(value for value in values if value is not None)
