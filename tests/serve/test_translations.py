"""`/v1/translations` against `translate` called directly."""

from pathlib import Path

import pytest
import torch

pytest.importorskip("starlette")

from starlette.testclient import TestClient

from trafo.checkpoint.bundle import Bundle
from trafo.data.pair_tokenizer import PairTokenizer
from trafo.generate.beam_config import BeamConfig
from trafo.generate.translate import translate
from trafo.serve.app import App
from trafo.serve.models import Models, ServedModel


def test_translations(bundle, translator):
    model, tokenizer = translator, PairTokenizer(bundle.tokenizer, bundle.tokenizer)
    of_run = {"length_penalty": 0.2, "beam": 4}
    loaded = Bundle(model, tokenizer, Path("t"), 3, of_run)
    served = ServedModel("t", Path("t"), loaded)
    sentences = ["Hi", "", "a b"]
    expected = translate(
        model, tokenizer, sentences, BeamConfig(beam=3, n_best=2, length_penalty=0.2)
    )
    with TestClient(App(Models([served])), base_url="http://127.0.0.1") as client:
        assert client.get("/v1/models").json()["data"][0]["kind"] == "translation"
        assert client.get("/v1/models").json()["data"][0]["dtype"] == "float32"
        body = {"input": sentences, "beam": 3, "n_best": 2}
        answer = client.post("/v1/translations", json=body).json()
        assert [entry["text"] for entry in answer["data"]] == [best[0].text for best in expected]
        for entry, best in zip(answer["data"], expected, strict=True):
            scores = [found["score"] for found in entry["translations"]]
            assert scores == pytest.approx([each.score for each in best])
        answer = client.post("/v1/translations", json={"input": "Hi"}).json()["data"][0]
        (best,) = translate(model, tokenizer, ["Hi"], BeamConfig(**of_run))
        assert answer["translations"][0]["score"] == pytest.approx(best[0].score)
        for wrong in ({"beam": 1, "n_best": 2}, {"beams": 2}, {"input": "x" * 40}, {"input": []}):
            refused = client.post("/v1/translations", json=body | wrong)
            assert refused.status_code == 400
        check_layers(client, model, tokenizer.encode_source(["Hi"])[0].tolist(), tokenizer.end)
        refused = client.post("/v1/completions", json={"prompt": "a"})
        assert refused.json()["error"]["code"] == "wrong_kind_of_model"


@torch.no_grad()
def check_layers(client, model, source, end):
    """The page's logit lens: the last layer says what the model says; the encoder's norms."""
    target = [5, 9, end]
    body = {"sentence": "Hi", "target": target}
    answer = client.post("/inside/translation/layers", json=body).json()
    logits = model(torch.tensor([source]), torch.tensor([[end, *target[:-1]]]))[0]
    assert answer["ids"][-1] == logits.topk(5).indices.tolist()
    best = logits.softmax(-1).topk(5).values
    torch.testing.assert_close(torch.tensor(answer["probabilities"][-1]), best, atol=1e-4, rtol=0)
    encoded = model.encode(torch.tensor([source])).states[0]
    if model.encoder_norm is None:
        norms = torch.tensor(answer["encoder_norms"][-1])
        torch.testing.assert_close(norms, encoded.norm(dim=-1))
    assert len(answer["norms"]) == len(answer["encoder_norms"]) == 2
    assert [len(answer["norms"][0]), len(answer["encoder_norms"][0])] == [3, len(source)]
    too_long = client.post("/inside/translation/layers", json=body | {"target": [1] * 40})
    assert too_long.json()["error"]["param"] == "target"
