"""The page's own endpoints. Arrays go out as bytes, everything else as JSON."""

from __future__ import annotations

from functools import partial
from typing import Any, TypeVar

from starlette.requests import Request as HttpRequest
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from torch import Tensor

from trafo.checkpoint.bundle import TranslatorBundle
from trafo.checkpoint.model_tokenizer import markers_of
from trafo.errors import TrafoError
from trafo.generate.translation_attention import translation_attention
from trafo.models import CausalLM, EncoderDecoder
from trafo.serve.errors import ApiError, from_trafo
from trafo.serve.inside import layers
from trafo.serve.inside.beam import beam_tree
from trafo.serve.inside.merges import byte_text, ranks_of, replay
from trafo.serve.inside.protocol import (
    MAX_TOKENS,
    MAX_WRITTEN,
    AttentionBody,
    BeamBody,
    IdsBody,
    MergesBody,
    TextBody,
    TranslationAttentionBody,
    TranslationLayersBody,
    check_ids,
    check_places,
)
from trafo.serve.inside.runs import ROUTES as RUN_ROUTES
from trafo.serve.models import LanguageModel, Served, TranslationModel
from trafo.serve.reading import Service, read_body, service_of
from trafo.tokenizer import Tokenizer

_WithIds = TypeVar("_WithIds", bound=IdsBody)


class Insides:
    """Models to look into, and the attention of the last text: layers are asked for one by one.

    Used by one computation at a time, as `Service.compute` runs them.
    """

    def __init__(self) -> None:
        self._models: dict[str, tuple[CausalLM, CausalLM]] = {}
        self._attention: tuple[object, list[Tensor]] | None = None

    @classmethod
    def of(cls, http: HttpRequest) -> Insides:
        """Those of this application, made by the first request."""
        state = http.app.state
        if not hasattr(state, "insides"):
            state.insides = cls()
        insides: Insides = state.insides
        return insides

    def model(self, served: LanguageModel) -> CausalLM:
        """The model with hooks of its own; a newer checkpoint takes its place."""
        known = self._models.get(served.name)
        if known is None or known[0] is not served.bundle.model:
            known = (served.bundle.model, layers.own_hooks(served.bundle.model))
            self._models[served.name] = known
        return known[1]

    def attention(self, served: LanguageModel, ids: list[int]) -> list[Tensor]:
        """Every layer's attention weights on a text."""
        key = (self.model(served), ids)
        if self._attention is None or self._attention[0] != key:
            self._attention = (key, layers.attention_weights(self.model(served), ids))
        return self._attention[1]

    def translation(self, served: TranslationModel, body: TranslationAttentionBody) -> list[Tensor]:
        """Every layer's attention weights on a sentence and its translation."""
        bundle = served.bundle
        key = (bundle.model, body.sentence, body.target, body.kind)
        if self._attention is None or self._attention[0] != key:
            found = translation_attention(
                bundle.model, bundle.tokenizer, body.sentence, body.target, body.kind
            )
            self._attention = (key, list(found.weights))
        return self._attention[1]


async def vocabulary(http: HttpRequest) -> Response:
    """`GET /inside/vocabulary`: the bytes of every id, and which ids are special."""
    served = service_of(http).models.get(http.query_params.get("model"))
    tokenizer = _tokenizer(served, http.query_params.get("side") or "source")
    tokens: list[str | None] = [None] * (max(tokenizer.vocab) + 1)
    for i, token in tokenizer.vocab.items():
        tokens[i] = byte_text(token)
    special = sorted(tokenizer.special_tokens.values())
    ends = sorted(markers_of(tokenizer).ends)
    return JSONResponse({"tokens": tokens, "special": special, "ends": ends})


async def tokens(http: HttpRequest) -> Response:
    """`POST /inside/tokens`: the ids of a text, nothing added."""
    body = await read_body(http, TextBody)
    tokenizer = _tokenizer(service_of(http).models.get(body.model), "source")
    return JSONResponse({"ids": tokenizer.encode(body.text, "ignore")})


async def merges(http: HttpRequest) -> Response:
    """`POST /inside/merges`: how a token came to be."""
    body = await read_body(http, MergesBody)
    tokenizer = _tokenizer(service_of(http).models.get(body.model), body.side)
    token = tokenizer.vocab.get(body.id)
    if token is None:
        raise ApiError(400, f"there is no token {body.id}", param="id", code="invalid_value")
    is_special = body.id in tokenizer.special_tokens.values()
    steps = [] if is_special else replay(token, ranks_of(tokenizer))
    return JSONResponse({"steps": steps, "num_merges": len(tokenizer.merges)})


async def logits(http: HttpRequest) -> Response:
    """`POST /inside/logits`: float32 logits of the next token, one for each id."""
    body, served = await _read_ids(http, IdsBody, MAX_WRITTEN)
    insides = Insides.of(http)
    job = partial(layers.next_logits, insides.model(served), body.ids)
    found = await service_of(http).compute(job)
    return _bytes(found.cpu().numpy().astype("<f4").tobytes())


async def scores(http: HttpRequest) -> Response:
    """`POST /inside/scores`: log-probability of each token of a text."""
    body, served = await _read_ids(http, IdsBody, MAX_WRITTEN)
    insides = Insides.of(http)
    job = partial(layers.token_logprobs, insides.model(served), body.ids)
    return JSONResponse({"logprobs": await service_of(http).compute(job)})


async def states(http: HttpRequest) -> Response:
    """`POST /inside/layers`: logit lens and norms of a text."""
    body, served = await _read_ids(http, IdsBody)
    insides = Insides.of(http)
    job = partial(layers.through_layers, insides.model(served), body.ids)
    return JSONResponse(_lens(await service_of(http).compute(job)))


async def attention(http: HttpRequest) -> Response:
    """`POST /inside/attention`: a layer's weights (heads, query, key) as 16-bit integers."""
    body, served = await _read_ids(http, AttentionBody)
    insides = Insides.of(http)
    found = await service_of(http).compute(partial(insides.attention, served, body.ids))
    return _layer(found, body.layer)


async def translation(http: HttpRequest) -> Response:
    """`POST /inside/translation`: the best translations, and the beam search as a tree."""
    body = await read_body(http, BeamBody)
    service = service_of(http)
    bundle = service.models.translation(body.model).bundle
    try:
        return JSONResponse(
            await service.compute(partial(beam_tree, bundle, body.sentence, body.beam))
        )
    except TrafoError as error:
        raise from_trafo(error, "sentence") from None


async def attention_of_translation(http: HttpRequest) -> Response:
    """`POST /inside/translation/attention`: as `/inside/attention`, of a translation model."""
    body = await read_body(http, TranslationAttentionBody)
    service = service_of(http)
    _translator(service, body)
    served = service.models.translation(body.model)
    try:
        found = await service.compute(partial(Insides.of(http).translation, served, body))
    except TrafoError as error:
        raise from_trafo(error, "sentence") from None
    return _layer(found, body.layer)


async def layers_of_translation(http: HttpRequest) -> Response:
    """`POST /inside/translation/layers`: as `/inside/layers`, of the decoder; encoder's norms."""
    body = await read_body(http, TranslationLayersBody)
    service = service_of(http)
    bundle = _translator(service, body)
    model = bundle.model
    if not isinstance(model, EncoderDecoder):
        what = "a recurrent model has no layers to look into"
        raise ApiError(400, what, param="model", code="wrong_kind_of_model")
    end = bundle.tokenizer.end
    source = bundle.tokenizer.encode_source([body.sentence])[0].tolist()
    job = partial(layers.through_translation, model, source, body.target, end)
    try:
        found, norms = await service.compute(job)
    except TrafoError as error:
        raise from_trafo(error, "sentence") from None
    encoder = [layers.finite(each) for each in norms.tolist()]
    return JSONResponse(_lens(found) | {"encoder_norms": encoder})


def _translator(service: Service, body: TranslationLayersBody) -> TranslatorBundle:
    """The model of a body whose target fits it."""
    bundle = service.models.translation(body.model).bundle
    most = getattr(bundle.model.config, "context_length", 1024)
    check_places(body.target, most, bundle.model.head_weight.shape[0], "target")
    return bundle


def _lens(found: layers.Layers) -> dict[str, Any]:
    return {
        "ids": found.ids.tolist(),
        "probabilities": [
            [[round(p, 5) for p in best] for best in layer]
            for layer in found.probabilities.tolist()
        ],
        "norms": [layers.finite(norms) for norms in found.norms.tolist()],
    }


async def place(http: HttpRequest) -> Response:
    """`GET /inside/place?id=NAME`: the place in the queue of the request of that name.

    0 if it runs, null if there is none.
    """
    name = http.query_params.get("id", "")
    models = service_of(http).models.language_models
    workers = [worker for served in models for worker in served.workers]
    places = [found for worker in workers if (found := worker.place(name)) is not None]
    return JSONResponse({"place": min(places, default=None)})


async def _read_ids(
    http: HttpRequest, kind: type[_WithIds], most: int | None = None
) -> tuple[_WithIds, LanguageModel]:
    """A body with at most so many ids; None: as many as can be looked into."""
    body = await read_body(http, kind)
    served = service_of(http).models.language(body.model)
    check_ids(body.ids, served, most or min(MAX_TOKENS, served.bundle.model.context_length))
    return body, served


def _tokenizer(served: Served, side: str) -> Tokenizer:
    if isinstance(served, LanguageModel):
        return served.bundle.tokenizer
    pair = served.bundle.tokenizer
    return pair.target if side == "target" else pair.source


def _layer(found: list[Tensor], layer: int) -> Response:
    if layer >= len(found):
        what = f"the model has {len(found)} layers"
        raise ApiError(400, what, param="layer", code="invalid_value")
    shape = ",".join(map(str, found[layer].shape))
    return _bytes(layers.as_bytes(found[layer]), {"X-Layers": str(len(found)), "X-Shape": shape})


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
