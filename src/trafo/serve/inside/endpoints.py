"""The page's own endpoints. Arrays go out as bytes, everything else as JSON.

What a model computes here runs in a thread, which also encodes the answer, and it ends before the
next layer if the client leaves.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from starlette.requests import Request as HttpRequest
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from torch import Tensor
from torch.nn import Module

from trafo.generate.translation_attention import translation_attention
from trafo.models import CausalLM, SequenceModel
from trafo.serve.errors import ApiError, invalid, refusing
from trafo.serve.inside import layers
from trafo.serve.inside.histories import beam_tree, byte_text, rank_merges, replay_merges
from trafo.serve.inside.runs import ROUTES as RUN_ROUTES
from trafo.serve.models import ServedModel
from trafo.serve.protocol import (
    AttentionBody,
    BeamBody,
    Ids,
    IdsBody,
    Json,
    MergesBody,
    TextBody,
    TranslationAttentionBody,
    TranslationLayersBody,
)
from trafo.serve.service import json_response, json_response_now, read_body, service_of
from trafo.tokenizer import Tokenizer

MAX_INSPECTED_TOKENS = 512
"""tokens of a text that is looked into: attention grows with their square"""
MAX_SCORED_TOKENS = 8192
"""tokens of a text that is scored, or continued"""

_IdsBody = TypeVar("_IdsBody", bound=IdsBody)
_Result = TypeVar("_Result")


class InspectionCache:
    """Models with hooks of their own, and the attention of the last text.

    The page asks for attention layer by layer, and all layers are computed at once. Not
    thread-safe: `Service.compute` runs one computation at a time.
    """

    def __init__(self) -> None:
        self._models: dict[str, tuple[CausalLM, CausalLM]] = {}
        self._attention: tuple[object, list[Tensor]] | None = None

    @classmethod
    def of(cls, http: HttpRequest) -> InspectionCache:
        """Return that of this application, which the first request makes."""
        state = http.app.state
        if not hasattr(state, "inspection_cache"):
            state.inspection_cache = cls()
        cache: InspectionCache = state.inspection_cache
        return cache

    def model(self, served: ServedModel) -> CausalLM:
        """Return the served model with hooks of its own."""
        known = self._models.get(served.name)
        if known is None or known[0] is not served.bundle.model:
            known = (served.bundle.model, layers.copy_modules(served.bundle.model))
            self._models[served.name] = known
        return known[1]

    def attention(self, key: object, compute: Callable[[], list[Tensor]]) -> list[Tensor]:
        """Return every layer's attention weights, computed if the last ones had another key."""
        if self._attention is None or self._attention[0] != key:
            self._attention = (key, compute())
        return self._attention[1]


async def vocabulary(http: HttpRequest) -> Response:
    """`GET /inside/vocabulary`: the bytes of every id, and which ids are special."""
    served = service_of(http).models.get(http.query_params.get("model"))
    tokenizer = _tokenizer(served, http.query_params.get("side") or "source")

    def content() -> Json:
        tokens: list[str | None] = [None] * (max(tokenizer.vocab) + 1)
        for i, token in tokenizer.vocab.items():
            tokens[i] = byte_text(token)
        special = sorted(tokenizer.special_tokens.values())
        return {"tokens": tokens, "special": special, "ends": sorted(tokenizer.ends)}

    return await json_response(content, len(tokenizer.vocab))


async def tokens(http: HttpRequest) -> Response:
    """`POST /inside/tokens`: the ids of a text, nothing added."""
    body = await read_body(http, TextBody)
    tokenizer = _tokenizer(service_of(http).models.get(body.model), "source")
    return await json_response(
        lambda: {"ids": tokenizer.encode(body.text, "ignore")}, len(body.text)
    )


async def merges(http: HttpRequest) -> Response:
    """`POST /inside/merges`: how a token came to be."""
    body = await read_body(http, MergesBody)
    tokenizer = _tokenizer(service_of(http).models.get(body.model), body.side)
    token = tokenizer.vocab.get(body.id)
    if token is None:
        raise invalid(f"there is no token {body.id}", "id")
    is_special = body.id in tokenizer.special_tokens.values()

    def content() -> Json:
        steps = [] if is_special else replay_merges(token, rank_merges(tokenizer))
        return {"steps": steps, "num_merges": len(tokenizer.merges)}

    return await json_response(content, len(tokenizer.merges))


async def logits(http: HttpRequest) -> Response:
    """`POST /inside/logits`: float32 logits of the next token, one for each id."""
    body, model = await _read_ids(http, IdsBody, MAX_SCORED_TOKENS)
    found = await _compute(http, model, lambda: layers.next_logits(model, body.ids))
    return _bytes(found.cpu().numpy().astype("<f4").tobytes())


async def scores(http: HttpRequest) -> Response:
    """`POST /inside/scores`: log-probability of each token of a text."""
    body, model = await _read_ids(http, IdsBody, MAX_SCORED_TOKENS)
    found = await _compute(http, model, lambda: layers.token_logprobs(model, body.ids))
    return JSONResponse({"logprobs": found})


async def states(http: HttpRequest) -> Response:
    """`POST /inside/layers`: logit lens and norms of a text."""
    body, model = await _read_ids(http, IdsBody)
    return await _compute(
        http, model, lambda: json_response_now(_lens(layers.inspect_layers(model, body.ids)))
    )


async def attention(http: HttpRequest) -> Response:
    """`POST /inside/attention`: a layer's weights (heads, query, key) as 16-bit integers."""
    body, model = await _read_ids(http, AttentionBody)
    cache = InspectionCache.of(http)

    def weights() -> Response:
        key = (model, body.ids)
        found = cache.attention(key, lambda: layers.attention_weights(model, body.ids))
        return _layer(found, body.layer)

    return await _compute(http, model, weights)


async def translation(http: HttpRequest) -> Response:
    """`POST /inside/translation`: the best translations, and the beam search as a tree."""
    service, body = service_of(http), await read_body(http, BeamBody)
    bundle = service.models.get(body.model, "translation").bundle
    with refusing("sentence"):
        return await service.compute(
            lambda check: json_response_now(beam_tree(bundle, body.sentence, body.beam, check))
        )


async def attention_of_translation(http: HttpRequest) -> Response:
    """`POST /inside/translation/attention`: as `/inside/attention`, of a translation model."""
    body = await read_body(http, TranslationAttentionBody)
    bundle, cache = _translator(http, body).bundle, InspectionCache.of(http)
    model, what = bundle.model, (body.sentence, body.target, body.kind)

    def weights() -> Response:
        found = cache.attention(
            (model, *what),
            lambda: list(translation_attention(model, bundle.tokenizer, *what).weights),
        )
        return _layer(found, body.layer)

    with refusing("sentence"):
        return await _compute(http, model, weights)


async def layers_of_translation(http: HttpRequest) -> Response:
    """`POST /inside/translation/layers`: as `/inside/layers`, with the encoder's norms."""
    body = await read_body(http, TranslationLayersBody)
    bundle = _translator(http, body).bundle
    model, tokenizer = bundle.model, bundle.tokenizer
    if not model.blocks():
        what = "a recurrent model has no layers to look into"
        raise ApiError(400, what, param="model", code="wrong_kind_of_model")

    def lens() -> Response:
        source = tokenizer.encode_source([body.sentence])[0].tolist()
        found, norms = layers.inspect_translation(model, source, body.target, tokenizer.end)
        return json_response_now(
            _lens(found) | {"encoder_norms": [layers.replace_nonfinite(n) for n in norms.tolist()]}
        )

    with refusing("sentence"):
        return await _compute(http, model, lens)


async def place(http: HttpRequest) -> Response:
    """`GET /inside/place?id=NAME`: the place in the queue of the request of that name.

    0 if it runs, null if there is none.
    """
    name = http.query_params.get("id", "")
    places = [worker.place(name) for worker in service_of(http).models.workers]
    return JSONResponse({"place": min((p for p in places if p is not None), default=None)})


async def _compute(http: HttpRequest, model: Module, job: Callable[[], _Result]) -> _Result:
    """Run a job that calls the model, and end it before the next layer if the client leaves."""

    def checked(check: Callable[[], None]) -> _Result:
        with layers.before_each_layer(model, check):
            return job()

    return await service_of(http).compute(checked)


async def _read_ids(
    http: HttpRequest, kind: type[_IdsBody], most: int | None = None
) -> tuple[_IdsBody, CausalLM]:
    """Read a body with at most so many ids, by default the most that can be looked into."""
    body = await read_body(http, kind)
    served = service_of(http).models.get(body.model, "language")
    model = served.bundle.model
    _check_ids(body.ids, model, most or min(MAX_INSPECTED_TOKENS, model.context_length), "ids")
    return body, InspectionCache.of(http).model(served)


def _translator(http: HttpRequest, body: TranslationLayersBody) -> ServedModel:
    """Find the model of a body, whose target must fit the model."""
    served = service_of(http).models.get(body.model, "translation")
    model = served.bundle.model
    _check_ids(body.target, model, model.config.context_length or 1024, "target")
    return served


def _check_ids(ids: Ids, model: SequenceModel, most: int, name: str) -> None:
    """Refuse no ids, more than `most`, and those outside the vocabulary."""
    if not 0 < len(ids) <= most:
        raise invalid(f"{name} has {len(ids):,} tokens; it must have 1 to {most:,}", name)
    vocab = model.head_weight.shape[0]
    if not all(0 <= i < vocab for i in ids):
        raise invalid(f"an id is outside the vocabulary of {vocab:,}", name)


def _tokenizer(served: ServedModel, side: str) -> Tokenizer:
    found = served.bundle.tokenizer
    if served.bundle.model.has_source:
        found = found.target if side == "target" else found.source
    tokenizer: Tokenizer = found
    return tokenizer


def _lens(found: layers.LogitLens) -> Json:
    return {
        "ids": found.ids.tolist(),
        "probabilities": [
            [[round(p, 5) for p in best] for best in layer]
            for layer in found.probabilities.tolist()
        ],
        "norms": [layers.replace_nonfinite(norms) for norms in found.norms.tolist()],
    }


def _layer(found: list[Tensor], layer: int) -> Response:
    if layer >= len(found):
        raise invalid(f"the model has {len(found)} layers", "layer")
    shape = ",".join(map(str, found[layer].shape))
    return _bytes(
        layers.encode_weights(found[layer]), {"X-Layers": str(len(found)), "X-Shape": shape}
    )


def _bytes(content: bytes, headers: dict[str, str] | None = None) -> Response:
    return Response(content, media_type="application/octet-stream", headers=headers)


ROUTES = [
    Route("/inside/vocabulary", vocabulary),
    Route("/inside/tokens", tokens, methods=["POST"]),
    Route("/inside/merges", merges, methods=["POST"]),
    Route("/inside/logits", logits, methods=["POST"]),
    Route("/inside/scores", scores, methods=["POST"]),
    Route("/inside/layers", states, methods=["POST"]),
    Route("/inside/attention", attention, methods=["POST"]),
    Route("/inside/place", place),
    Route("/inside/translation", translation, methods=["POST"]),
    Route("/inside/translation/attention", attention_of_translation, methods=["POST"]),
    Route("/inside/translation/layers", layers_of_translation, methods=["POST"]),
    *RUN_ROUTES,
]
