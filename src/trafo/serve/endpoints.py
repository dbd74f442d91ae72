"""The endpoints: a body in, an answer out."""

from __future__ import annotations

from secrets import randbits
from typing import TypeVar

from pydantic import ValidationError
from starlette.requests import Request as HttpRequest
from starlette.responses import JSONResponse, Response

from trafo.errors import TrafoError
from trafo.generate.complete import encode_prompt
from trafo.generate.config import GenerationConfig
from trafo.generate.request import Request
from trafo.serve.answer import Answer
from trafo.serve.chat_template import PLAIN_STOPS, encode_chat
from trafo.serve.errors import ApiError, from_trafo, from_validation
from trafo.serve.formats import ChatFormat, CompletionFormat, Format, token_text
from trafo.serve.models import Models, Served
from trafo.serve.protocol import (
    Body,
    ChatBody,
    CompletionBody,
    DetokenizeBody,
    Sampling,
    TokenizeBody,
)

_Body = TypeVar("_Body", bound=Body)

DEFAULT_MAX_TOKENS = 16
"""of a completion, as OpenAI has it"""
DEFAULT_CHAT_TOKENS = 256


async def completions(http: HttpRequest) -> Response:
    """`POST /v1/completions`."""
    body, served = await _read(http, CompletionBody)
    max_tokens = DEFAULT_MAX_TOKENS if body.max_tokens is None else body.max_tokens
    config = _config(body, max_tokens, body.logprobs)
    prompts = [_prompt_ids(served, prompt, config) for prompt in _prompts(body)]
    tokenizer = served.bundle.tokenizer
    form = CompletionFormat(served.name, tokenizer.vocab, body.logprobs is not None)
    requests = [Request.of(ids, config, tokenizer) for ids in prompts]
    return await _answer(http, body, served, requests, form)


async def chat_completions(http: HttpRequest) -> Response:
    """`POST /v1/chat/completions`."""
    body, served = await _read(http, ChatBody)
    if body.top_logprobs is not None and not body.logprobs:
        raise ApiError(400, "top_logprobs needs logprobs: true", param="top_logprobs")
    max_tokens = body.max_completion_tokens
    max_tokens = body.max_tokens if max_tokens is None else max_tokens
    max_tokens = DEFAULT_CHAT_TOKENS if max_tokens is None else max_tokens
    number = (body.top_logprobs or 0) if body.logprobs else None
    config = _config(body, max_tokens, number, PLAIN_STOPS)
    tokenizer = served.bundle.tokenizer
    ids = encode_chat(tokenizer, body.messages)
    form = ChatFormat(served.name, tokenizer.vocab, bool(body.logprobs))
    return await _answer(http, body, served, [Request.of(ids, config, tokenizer)], form)


async def list_models(http: HttpRequest) -> Response:
    """`GET /v1/models`."""
    cards = [served.card() for served in _models(http)]
    return JSONResponse({"object": "list", "data": cards})


async def one_model(http: HttpRequest) -> Response:
    """`GET /v1/models/NAME`."""
    return JSONResponse(_models(http).get(http.path_params["name"]).card())


async def tokenize(http: HttpRequest) -> Response:
    """`POST /tokenize`."""
    body, served = await _read(http, TokenizeBody)
    tokenizer = served.bundle.tokenizer
    ids = tokenizer.encode(body.prompt, "ignore")
    begin = tokenizer.markers.begin
    if body.add_special_tokens and begin is not None:
        ids = [begin, *ids]
    return JSONResponse(
        {
            "count": len(ids),
            "max_model_len": served.bundle.model.context_length,
            "tokens": ids,
            "token_strs": [token_text(tokenizer.vocab, i) for i in ids],
        }
    )


async def detokenize(http: HttpRequest) -> Response:
    """`POST /detokenize`."""
    body, served = await _read(http, DetokenizeBody)
    return JSONResponse({"prompt": served.bundle.tokenizer.decode(body.tokens)})


async def health(http: HttpRequest) -> Response:
    """`GET /health`."""
    return JSONResponse({"status": "ok"})


def _models(http: HttpRequest) -> Models:
    models: Models = http.app.state.models
    return models


async def _read(http: HttpRequest, kind: type[_Body]) -> tuple[_Body, Served]:
    """The body, checked, and the model it is for."""
    try:
        body = kind.model_validate_json(await http.body())
    except ValidationError as error:
        raise from_validation(error) from None
    return body, _models(http).get(body.model)


def _config(
    body: Sampling, max_tokens: int, logprobs: int | None, stops: tuple[str, ...] = ()
) -> GenerationConfig:
    """The settings of generation; what the client left out has OpenAI's defaults."""
    stop = [body.stop] if isinstance(body.stop, str) else body.stop or []
    given = {
        "temperature": body.temperature,
        "top_k": body.top_k if body.top_k and body.top_k > 0 else None,
        "top_p": body.top_p,
        "min_p": body.min_p,
        "repetition_penalty": body.repetition_penalty,
        "num_samples": body.n,
    }
    try:
        return GenerationConfig(
            **{name: value for name, value in given.items() if value is not None},  # type: ignore[arg-type]
            max_new_tokens=max_tokens,
            seed=randbits(63) if body.seed is None else body.seed % 2**64,
            stop=(*stop, *stops),
            logprobs=logprobs,
            kernel="auto",
        )
    except TrafoError as error:
        raise from_trafo(error) from None


def _prompts(body: CompletionBody) -> list[str | list[int]]:
    prompt = body.prompt
    if isinstance(prompt, str):
        return [prompt]
    if not prompt:
        raise ApiError(400, "prompt is an empty list", param="prompt")
    if isinstance(prompt[0], int):
        return [prompt]
    return list(prompt)


def _prompt_ids(served: Served, prompt: str | list[int], config: GenerationConfig) -> list[int]:
    if isinstance(prompt, list):
        return prompt
    return encode_prompt(served.bundle.tokenizer, prompt, config)


async def _answer(
    http: HttpRequest, body: Sampling, served: Served, requests: list[Request], form: Format
) -> Response:
    if body.stream_options is not None and not body.stream:
        raise ApiError(400, "stream_options needs stream: true", param="stream_options")
    answer = Answer(served.worker.submit(requests), form)
    if not body.stream:
        return await answer.whole(http)
    options = body.stream_options
    return answer.stream(include_usage=options is not None and options.include_usage)
