"""The page's endpoints for a model's inside, against the model called directly."""

import numpy as np
import pytest
import torch

from trafo.generate import GenerationConfig, generate

IDS = list(b"Hello world")


def test_logits_and_scores_are_the_models(client, bundle):
    logits = bundle.model(torch.tensor([IDS]))[0]
    answer = client.post("/inside/logits", json={"ids": IDS})
    np.testing.assert_allclose(
        np.frombuffer(answer.content, "<f4"), logits[-1].detach().numpy(), rtol=1e-4, atol=1e-5
    )
    losses = torch.nn.functional.cross_entropy(logits[:-1], torch.tensor(IDS[1:]), reduction="none")
    scores = client.post("/inside/scores", json={"ids": IDS}).json()["logprobs"]
    assert scores[0] is None
    np.testing.assert_allclose(scores[1:], -losses.detach().numpy(), rtol=1e-4)


def test_a_text_longer_than_the_context_is_seen_as_generation_sees_it(client, bundle):
    config = GenerationConfig(max_new_tokens=150, logprobs=0, ignore_end=True)
    (written,) = generate(bundle.model, bundle.tokenizer, ["Hello"], config)
    ids = [*b"Hello", *written.ids]
    scores = client.post("/inside/scores", json={"ids": ids}).json()["logprobs"]
    given = [token.logprob for token in written.tokens]
    np.testing.assert_allclose(scores[5:], given, rtol=1e-3, atol=1e-4)
    for place in (64, 65, 66, 98, 99, 150):
        answer = client.post("/inside/logits", json={"ids": ids[:place]})
        logits = torch.tensor(np.frombuffer(answer.content, "<f4"))
        logprob = logits.log_softmax(-1)[ids[place]].item()
        assert logprob == pytest.approx(given[place - 5], rel=1e-3, abs=1e-4)


def test_the_last_layer_of_the_lens_is_the_models_answer(client, bundle):
    answer = client.post("/inside/layers", json={"ids": IDS}).json()
    best = bundle.model(torch.tensor([IDS]))[0].softmax(-1).topk(5)
    assert answer["ids"][-1] == best.indices.tolist()
    np.testing.assert_allclose(answer["probabilities"][-1], best.values.detach(), atol=1e-4)
    assert np.shape(answer["ids"]) == (3, len(IDS), 5)  # the embedding and two layers
    embedded = bundle.model.token_embeddings(torch.tensor(IDS)).norm(dim=-1)
    np.testing.assert_allclose(answer["norms"][0], embedded.detach(), rtol=1e-4)


def test_a_layer_of_the_lens_is_what_a_model_cut_after_it_would_say(client, bundle):
    model = bundle.model
    answer = client.post("/inside/layers", json={"ids": IDS}).json()
    state = model.layers[0](model.token_embeddings(torch.tensor([IDS])))
    said = model.logits(model.ln_final(state))[0].argmax(-1)
    assert [best[0] for best in answer["ids"][1]] == said.tolist()


def test_attention_is_causal_and_sums_to_one(client):
    answer = client.post("/inside/attention", json={"ids": IDS, "layer": 1})
    shape = tuple(map(int, answer.headers["x-shape"].split(",")))
    assert shape == (4, len(IDS), len(IDS))
    assert answer.headers["x-layers"] == "2"
    weights = np.frombuffer(answer.content, "<u2").reshape(shape) / 65535
    np.testing.assert_allclose(weights.sum(-1), 1, atol=1e-3)
    assert (np.triu(weights, 1) == 0).all()


def test_looking_inside_leaves_no_hooks_on_the_served_model(client, bundle):
    client.post("/inside/attention", json={"ids": IDS, "layer": 0})
    assert not any(module._forward_hooks for module in bundle.model.modules())


@pytest.mark.parametrize(
    ("path", "body", "param"),
    [
        ("scores", {"ids": []}, "ids"),
        ("scores", {"ids": [257]}, "ids"),
        ("scores", {"ids": [-1]}, "ids"),
        ("logits", {"ids": [1] * 8193}, "ids"),
        ("layers", {"ids": [1] * 65}, "ids"),
        ("layers", {}, "ids"),
        ("attention", {"ids": [1], "layer": 2}, "layer"),
        ("attention", {"ids": [1], "layer": -1}, "layer"),
        ("merges", {"id": 999}, "id"),
        ("merges", {"id": "../etc"}, "id"),
    ],
)
def test_what_is_wrong_is_refused_by_name(client, path, body, param):
    answer = client.post(f"/inside/{path}", json=body)
    assert answer.status_code == 400
    assert answer.json()["error"]["param"] == param


def test_vocabulary_has_the_bytes_of_every_id(client, bundle):
    answer = client.get("/inside/vocabulary").json()
    tokens = {i: token.encode("latin-1") for i, token in enumerate(answer["tokens"])}
    assert tokens == bundle.tokenizer.vocab
    assert answer["special"] == answer["ends"] == [256]
