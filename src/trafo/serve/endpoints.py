"""The other endpoints: models, embeddings, translations, tokens, health, metrics."""

from __future__ import annotations

import base64
import struct
from collections.abc import Callable

import torch
from prometheus_client import CONTENT_TYPE_LATEST
from starlette.requests import Request as HttpRequest
from starlette.responses import JSONResponse, Response

from trafo.generate.translate import Translation, search_settings, translate
from trafo.models import CausalLM
from trafo.models.sentence import Pooling, sentence_vectors
from trafo.serve.answer import token_text
from trafo.serve.errors import invalid, refusing
from trafo.serve.protocol import (
    DetokenizeBody,
    EmbeddingBody,
    Json,
    TokenizeBody,
    TranslationBody,
)
from trafo.serve.service import encode_prompts, json_response, list_prompts, read_body, service_of

_MAX_TEXTS = 256
_MAX_HYPOTHESES = 2048
"""of a request for translations: sentences times beam"""
_TOKENS_TOGETHER = 4096
"""of texts whose vectors are computed together, padding included"""


async def list_models(http: HttpRequest) -> Response:
    """`GET /v1/models`."""
    cards = [served.card() for served in service_of(http).models]
    return JSONResponse({"object": "list", "data": cards})


async def one_model(http: HttpRequest) -> Response:
    """`GET /v1/models/NAME`."""
    return JSONResponse(service_of(http).models.get(http.path_params["name"]).card())


async def embeddings(http: HttpRequest) -> Response:
    """`POST /v1/embeddings`: a vector for each text."""
    service, body = service_of(http), await read_body(http, EmbeddingBody)
    served = service.models.get(body.model, "language")
    prompts = list_prompts(body.input, "input", _MAX_TEXTS)
    ids = await encode_prompts(service, served, prompts, "input")
    model, number = served.bundle.model, sum(map(len, ids))
    vectors = await service.compute(lambda check: _embed(model, ids, body.pooling, check))

    def content() -> Json:
        data = [
            {"object": "embedding", "index": index, "embedding": _encode_vector(vector, body)}
            for index, vector in enumerate(vectors)
        ]
        usage = {"prompt_tokens": number, "total_tokens": number}
        return {"object": "list", "model": served.name, "data": data, "usage": usage}

    return await json_response(content, len(vectors) * len(vectors[0]))


@torch.inference_mode()
def _embed(
    model: CausalLM, ids: list[list[int]], pooling: Pooling, check: Callable[[], None]
) -> list[list[float]]:
    """Return a vector for each text, a few at a time: memory does not grow with their number."""
    device = model.head_weight.device
    longest = max(map(len, ids))
    num_rows = max(1, _TOKENS_TOGETHER // longest)
    found: list[list[float]] = []
    for start in range(0, len(ids), num_rows):
        check()
        rows = ids[start : start + num_rows]
        width = max(map(len, rows))
        padded = torch.tensor([each + [0] * (width - len(each)) for each in rows])
        real = torch.arange(width) < torch.tensor([len(each) for each in rows])[:, None]
        vectors = sentence_vectors(model, padded.to(device), real.to(device), pooling)
        found += vectors.float().tolist()
    return found


def _encode_vector(vector: list[float], body: EmbeddingBody) -> list[float] | str:
    if body.encoding_format != "base64":
        return vector
    return base64.b64encode(struct.pack(f"<{len(vector)}f", *vector)).decode()


async def translations(http: HttpRequest) -> Response:
    """`POST /v1/translations`: the best translations of each sentence."""
    service, body = service_of(http), await read_body(http, TranslationBody)
    served = service.models.get(body.model, "translation")
    sentences = [body.input] if isinstance(body.input, str) else body.input
    if not 1 <= len(sentences) <= _MAX_TEXTS:
        what = f"input has {len(sentences):,} sentences; it must have 1 to {_MAX_TEXTS}"
        raise invalid(what, "input")
    bundle = served.bundle
    given = {"beam": body.beam, "n_best": body.n_best, "length_penalty": body.length_penalty}
    with refusing("input"):
        config = search_settings(bundle, **given)
        number = len(sentences) * config.beam
        if number > _MAX_HYPOTHESES:
            what = (
                f"beam: {len(sentences)} sentences with a beam of {config.beam} keep {number:,} "
                f"hypotheses; at most {_MAX_HYPOTHESES:,} are allowed: send fewer, or lower beam"
            )
            raise invalid(what, "beam")
        found = await service.compute(
            lambda check: translate(bundle.model, bundle.tokenizer, sentences, config, check=check)
        )

    def content() -> Json:
        data = [
            {"index": index, "text": best[0].text, "translations": [_translation(t) for t in best]}
            for index, best in enumerate(found)
        ]
        return {"object": "list", "model": served.name, "data": data}

    return await json_response(content, sum(len(t.ids) for best in found for t in best))


def _translation(found: Translation) -> Json:
    return {name: getattr(found, name) for name in ("text", "score", "logprob")}


async def tokenize(http: HttpRequest) -> Response:
    """`POST /tokenize`."""
    service, body = service_of(http), await read_body(http, TokenizeBody)
    served = service.models.get(body.model, "language")
    tokenizer = served.bundle.tokenizer

    def content() -> Json:
        ids = tokenizer.encode(body.prompt, "ignore")
        begin = tokenizer.begin
        if body.add_special_tokens and begin is not None:
            ids = [begin, *ids]
        return {
            "count": len(ids),
            "max_model_len": served.bundle.model.context_length,
            "tokens": ids,
            "token_strs": [token_text(tokenizer.vocab, i) for i in ids],
        }

    return await json_response(content, len(body.prompt))


async def detokenize(http: HttpRequest) -> Response:
    """`POST /detokenize`."""
    service, body = service_of(http), await read_body(http, DetokenizeBody)
    served = service.models.get(body.model, "language")
    with refusing("tokens"):
        return await json_response(
            lambda: {"prompt": served.bundle.tokenizer.decode(body.tokens)}, len(body.tokens)
        )


async def health(http: HttpRequest) -> Response:
    """`GET /health`."""
    return JSONResponse({"status": "ok"})


async def metrics(http: HttpRequest) -> Response:
    """`GET /metrics`, for Prometheus."""
    return Response(service_of(http).metrics.text(), media_type=CONTENT_TYPE_LATEST)
