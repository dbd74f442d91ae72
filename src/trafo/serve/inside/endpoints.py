"""The page's own endpoints. Arrays go out as bytes, everything else as JSON."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from starlette.requests import Request as HttpRequest
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from torch import Tensor

from trafo.checkpoint.model_tokenizer import markers_of
from trafo.generate.translation_attention import translation_attention
from trafo.models import CausalLM, EncoderDecoder
from trafo.serve.errors import ApiError, invalid, refusing
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
)
from trafo.serve.inside.runs import ROUTES as RUN_ROUTES
from trafo.serve.models import LanguageModel, Served, TranslationModel
from trafo.serve.service import Service, read_body, service_of
from trafo.tokenizer import Tokenizer

_WithIds = TypeVar("_WithIds", bound=IdsBody)


class Insides:
    """Models to look into, and the attention of the last text: the page asks layer by layer.

    Not thread-safe: `Service.compute` runs one computation at a time.
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
        model = self.model(served)
        return self._last((model, ids), lambda: layers.attention_weights(model, ids))

    def translation(self, served: TranslationModel, body: TranslationAttentionBody) -> list[Tensor]:
        """Every layer's attention weights on a sentence and its translation."""
        model, tokenizer = served.bundle.model, served.bundle.tokenizer
        what = (body.sentence, body.target, body.kind)
        return self._last(
            (model, *what), lambda: list(translation_attention(model, tokenizer, *what).weights)
        )

    def _last(self, key: object, compute: Callable[[], list[Tensor]]) -> list[Tensor]:
        if self._attention is None or self._attention[0] != key:
            self._attention = (key, compute())
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
        raise invalid(f"there is no token {body.id}", "id")
    is_special = body.id in tokenizer.special_tokens.values()
    steps = [] if is_special else replay(token, ranks_of(tokenizer))
    return JSONResponse({"steps": steps, "num_merges": len(tokenizer.merges)})


async def logits(http: HttpRequest) -> Response:
    """`POST /inside/logits`: float32 logits of the next token, one for each id."""
    body, served = await _read_ids(http, IdsBody, MAX_WRITTEN)
    model = Insides.of(http).model(served)
    found = await service_of(http).compute(lambda: layers.next_logits(model, body.ids))
    return _bytes(found.cpu().numpy().astype("<f4").tobytes())


async def scores(http: HttpRequest) -> Response:
    """`POST /inside/scores`: log-probability of each token of a text."""
    body, served = await _read_ids(http, IdsBody, MAX_WRITTEN)
    model = Insides.of(http).model(served)
    found = await service_of(http).compute(lambda: layers.token_logprobs(model, body.ids))
    return JSONResponse({"logprobs": found})


async def states(http: HttpRequest) -> Response:
    """`POST /inside/layers`: logit lens and norms of a text."""
    body, served = await _read_ids(http, IdsBody)
    model = Insides.of(http).model(served)
    found = await service_of(http).compute(lambda: layers.through_layers(model, body.ids))
    return JSONResponse(_lens(found))


async def attention(http: HttpRequest) -> Response:
    """`POST /inside/attention`: a layer's weights (heads, query, key) as 16-bit integers."""
    body, served = await _read_ids(http, AttentionBody)
    insides = Insides.of(http)
    found = await service_of(http).compute(lambda: insides.attention(served, body.ids))
    return _layer(found, body.layer)


async def translation(http: HttpRequest) -> Response:
    """`POST /inside/translation`: the best translations, and the beam search as a tree."""
    service, body = service_of(http), await read_body(http, BeamBody)
    bundle = service.models.translation(body.model).bundle
    with refusing("sentence"):
        tree = await service.compute(lambda: beam_tree(bundle, body.sentence, body.beam))
    return JSONResponse(tree)


async def attention_of_translation(http: HttpRequest) -> Response:
    """`POST /inside/translation/attention`: as `/inside/attention`, of a translation model."""
    service, body = service_of(http), await read_body(http, TranslationAttentionBody)
    served, insides = _translator(service, body), Insides.of(http)
    with refusing("sentence"):
        found = await service.compute(lambda: insides.translation(served, body))
    return _layer(found, body.layer)


async def layers_of_translation(http: HttpRequest) -> Response:
    """`POST /inside/translation/layers`: as `/inside/layers`, of the decoder; encoder's norms."""
    service, body = service_of(http), await read_body(http, TranslationLayersBody)
    bundle = _translator(service, body).bundle
    model = bundle.model
    if not isinstance(model, EncoderDecoder):
        what = "a recurrent model has no layers to look into"
        raise ApiError(400, what, param="model", code="wrong_kind_of_model")
    end = bundle.tokenizer.end
    source = bundle.tokenizer.encode_source([body.sentence])[0].tolist()
    with refusing("sentence"):
        found, norms = await service.compute(
            lambda: layers.through_translation(model, source, body.target, end)
        )
    encoder = [layers.finite(each) for each in norms.tolist()]
    return JSONResponse(_lens(found) | {"encoder_norms": encoder})


def _translator(service: Service, body: TranslationLayersBody) -> TranslationModel:
    """The model of a body; its target must fit the model."""
    served = service.models.translation(body.model)
    model = served.bundle.model
    check_ids(body.target, model, getattr(model.config, "context_length", 1024), "target")
    return served


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
    places = [worker.place(name) for worker in service_of(http).models.workers]
    return JSONResponse({"place": min((p for p in places if p is not None), default=None)})


async def _read_ids(
    http: HttpRequest, kind: type[_WithIds], most: int | None = None
) -> tuple[_WithIds, LanguageModel]:
    """A body with at most so many ids; None: the most that can be looked into."""
    body = await read_body(http, kind)
    served = service_of(http).models.language(body.model)
    model = served.bundle.model
    check_ids(body.ids, model, most or min(MAX_TOKENS, model.context_length), "ids")
    return body, served


def _tokenizer(served: Served, side: str) -> Tokenizer:
    if isinstance(served, LanguageModel):
        return served.bundle.tokenizer
    pair = served.bundle.tokenizer
    return pair.target if side == "target" else pair.source


def _layer(found: list[Tensor], layer: int) -> Response:
    if layer >= len(found):
        raise invalid(f"the model has {len(found)} layers", "layer")
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
