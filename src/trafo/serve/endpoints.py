"""The other endpoints: models, embeddings, translations, tokens, health, metrics."""

from __future__ import annotations

import base64
import struct
from typing import TypeVar

import torch
from prometheus_client import CONTENT_TYPE_LATEST
from starlette.requests import Request as HttpRequest
from starlette.responses import JSONResponse, Response

from trafo.generate.translate import search_settings, translate
from trafo.models import CausalLM
from trafo.models.sentence import Pooling, sentence_vectors
from trafo.serve.errors import invalid, refusing
from trafo.serve.formats import Json, token_text
from trafo.serve.protocol import DetokenizeBody, EmbeddingBody, TokenizeBody, TranslationBody
from trafo.serve.service import prompt_ids, prompts_of, read_body, service_of


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
    served = service.models.language(body.model)
    prompts = _bounded(prompts_of(body.input, "input"))
    ids = [prompt_ids(service, served, prompt, "input") for prompt in prompts]
    model = served.bundle.model
    vectors = await service.compute(lambda: _vectors(model, ids, body.pooling))
    data = [
        {"object": "embedding", "index": index, "embedding": _encoded(vector, body)}
        for index, vector in enumerate(vectors)
    ]
    number = sum(map(len, ids))
    usage = {"prompt_tokens": number, "total_tokens": number}
    return JSONResponse({"object": "list", "model": served.name, "data": data, "usage": usage})


@torch.inference_mode()
def _vectors(model: CausalLM, ids: list[list[int]], pooling: Pooling) -> list[list[float]]:
    """A vector for each text; a few texts at a time, so that memory does not grow with them."""
    device = model.head_weight.device
    longest = max(map(len, ids))
    num_rows = max(1, _TOKENS_TOGETHER // longest)
    found: list[list[float]] = []
    for start in range(0, len(ids), num_rows):
        rows = ids[start : start + num_rows]
        width = max(map(len, rows))
        padded = torch.tensor([each + [0] * (width - len(each)) for each in rows])
        real = torch.arange(width) < torch.tensor([len(each) for each in rows])[:, None]
        vectors = sentence_vectors(model, padded.to(device), real.to(device), pooling)
        found += vectors.float().tolist()
    return found


def _encoded(vector: list[float], body: EmbeddingBody) -> list[float] | str:
    if body.encoding_format == "float":
        return vector
    return base64.b64encode(struct.pack(f"<{len(vector)}f", *vector)).decode()


async def translations(http: HttpRequest) -> Response:
    """`POST /v1/translations`: the best translations of each sentence."""
    service, body = service_of(http), await read_body(http, TranslationBody)
    served = service.models.translation(body.model)
    sentences = _bounded([body.input] if isinstance(body.input, str) else body.input)
    bundle = served.bundle
    given = {"beam": body.beam, "n_best": body.n_best, "length_penalty": body.length_penalty}
    with refusing("input"):
        config = search_settings(bundle, **given)
        found = await service.compute(
            lambda: translate(bundle.model, bundle.tokenizer, sentences, config)
        )
    data = [
        {"index": index, "text": best[0].text, "translations": [_translation(t) for t in best]}
        for index, best in enumerate(found)
    ]
    return JSONResponse({"object": "list", "model": served.name, "data": data})


def _translation(found: object) -> Json:
    return {name: getattr(found, name) for name in ("text", "score", "logprob")}


async def tokenize(http: HttpRequest) -> Response:
    """`POST /tokenize`."""
    service, body = service_of(http), await read_body(http, TokenizeBody)
    served = service.models.language(body.model)
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
    service, body = service_of(http), await read_body(http, DetokenizeBody)
    served = service.models.language(body.model)
    with refusing("tokens"):
        text = served.bundle.tokenizer.decode(body.tokens)
    return JSONResponse({"prompt": text})


async def health(http: HttpRequest) -> Response:
    """`GET /health`."""
    return JSONResponse({"status": "ok"})


async def metrics(http: HttpRequest) -> Response:
    """`GET /metrics`, for Prometheus."""
    return Response(service_of(http).metrics.text(), media_type=CONTENT_TYPE_LATEST)


_MOST_TEXTS = 256
_TOKENS_TOGETHER = 4096
"""of texts whose vectors are computed together, padding included"""
_Text = TypeVar("_Text")


def _bounded(texts: list[_Text]) -> list[_Text]:
    if len(texts) > _MOST_TEXTS:
        what = f"input has {len(texts):,} texts; at most {_MOST_TEXTS} are allowed"
        raise invalid(what, "input")
    if not texts:
        raise invalid("input is an empty list", "input")
    return texts
