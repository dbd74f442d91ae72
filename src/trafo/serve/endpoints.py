"""`/v1/completions` and `/v1/chat/completions`: a body in, an answer or a stream out."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from secrets import randbits

from starlette.requests import Request as HttpRequest
from starlette.responses import Response

from trafo.errors import TrafoError
from trafo.generate.config import GenerationConfig
from trafo.generate.decode import vocab_size
from trafo.generate.prompt_logprobs import prompt_logprobs
from trafo.generate.request import Request
from trafo.serve.answer import Answer, Echo
from trafo.serve.errors import ApiError, from_trafo
from trafo.serve.formats import ChatFormat, CompletionFormat, Format
from trafo.serve.models import LanguageModel
from trafo.serve.protocol import ChatBody, CompletionBody, Sampling
from trafo.serve.reading import (
    Service,
    fitting,
    prompt_ids,
    prompts_of,
    read_body,
    service_of,
)

DEFAULT_MAX_TOKENS = 16
"""of a completion, as OpenAI has it"""
DEFAULT_CHAT_TOKENS = 256
REQUEST_ID = "x-request-id"
"""header by which a client names a request"""


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
        raise _refused("top_logprobs needs logprobs: true", "top_logprobs")
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
        raise _refused("stream_options needs stream: true", "stream_options")
    number = len(requests) * requests[0].config.num_samples
    if number > service.config.max_choices:
        most = service.config.max_choices
        raise _refused(f"n: {number} completions; at most {most} are allowed", "n")
    name = http.headers.get(REQUEST_ID)
    subscription = served.worker.submit(requests, service.config.max_seconds, name)
    answer = Answer(subscription, form, service.metrics, echoes or [])
    if not body.stream:
        return await answer.whole(http)
    options = body.stream_options
    return answer.stream(include_usage=options is not None and options.include_usage)


def _config(
    service: Service, served: LanguageModel, body: Sampling, max_tokens: int
) -> GenerationConfig:
    """The settings of generation; what the client left out has OpenAI's defaults."""
    if max_tokens > service.config.max_tokens:
        most = service.config.max_tokens
        raise _refused(f"max_tokens is {max_tokens:,}; at most {most:,} are allowed", "max_tokens")
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
    try:
        return replace(config, **changes)  # type: ignore[arg-type]
    except TrafoError as error:
        raise from_trafo(error, next(iter(changes))) from None


def _logit_bias(served: LanguageModel, given: dict[str, float]) -> tuple[tuple[int, float], ...]:
    size = vocab_size(served.bundle.model)
    for name in given:
        if not (name.isascii() and name.isdigit() and int(name) < size):
            what = f"logit_bias has {name!r}: the model knows ids from 0 to {size - 1:,}"
            raise _refused(what, "logit_bias")
    return tuple((int(name), number) for name, number in given.items())


async def _echo(
    service: Service,
    served: LanguageModel,
    prompt: str | list[int],
    ids: list[int],
    body: CompletionBody,
) -> Echo:
    """The prompt as the beginning of the answer, with its own log-probabilities if asked for."""
    text = prompt if isinstance(prompt, str) else served.bundle.tokenizer.decode(prompt)
    if body.logprobs is None:
        return Echo(text)
    job = partial(prompt_logprobs, served.bundle.model, ids, body.logprobs)
    return Echo(text, await service.compute(job))


def _first(*values: int | None) -> int:
    return next(value for value in values if value is not None)


def _refused(what: str, param: str) -> ApiError:
    return ApiError(400, what, param=param, code="invalid_value")
