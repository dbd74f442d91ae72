"""Endpoints, through HTTP, against the generator called directly."""

import base64
import codecs
import math
import struct
from functools import partial
from threading import Event

import numpy as np
import pytest
import torch
from tests.serve.contract import check_stream

from trafo.generate import GenerationConfig, generate
from trafo.generate.chat_template import ChatTemplate
from trafo.generate.request import Request
from trafo.models.sentence import pool

HELLO = {"model": "tiny", "prompt": "Hello", "max_tokens": 12, "temperature": 0}


def test_greedy_completion_is_the_generators(client, bundle):
    answer = client.post("/v1/completions", json=HELLO).json()
    config = GenerationConfig(max_new_tokens=12, temperature=0.0)
    (expected,) = generate(bundle.model, bundle.tokenizer, ["Hello"], config)
    assert answer["choices"][0]["text"] == expected.text
    assert answer["usage"] == {"prompt_tokens": 5, "completion_tokens": 12, "total_tokens": 17}


def test_every_sampling_field_reaches_the_generator(client, bundle):
    fields = {
        "temperature": 0.9,
        "top_p": 0.9,
        "top_k": 20,
        "min_p": 0.01,
        "presence_penalty": 0.3,
        "frequency_penalty": 0.2,
        "repetition_penalty": 1.1,
    }
    body = {"prompt": [72, 105], "max_tokens": 10, "n": 2, "seed": 3, "user": "me"}
    bias = {"logit_bias": {"65": 5.0}, "stop": ["Z", "QQ"]}
    answer = client.post("/v1/completions", json=body | fields | bias).json()
    config = GenerationConfig(
        max_new_tokens=10,
        num_samples=2,
        seed=3,
        logit_bias=((65, 5.0),),
        stop=("Z", "QQ"),
        **fields,
    )
    expected = generate(bundle.model, bundle.tokenizer, ["Hi"], config)
    assert [choice["text"] for choice in answer["choices"]] == [done.text for done in expected]


@pytest.mark.parametrize("include_usage", [False, True])
def test_a_stream_says_what_the_whole_answer_says(client, include_usage):
    body = {"prompt": ["ab", "xyz"], "n": 2, "max_tokens": 9, "seed": 5, "logprobs": 1}
    whole = client.post("/v1/completions", json=body).json()
    options = {"stream": True}
    if include_usage:
        options["stream_options"] = {"include_usage": True}
    answer = client.post("/v1/completions", json=body | options)
    _, texts = check_stream(answer, chat=False, num_choices=4, include_usage=include_usage)
    assert texts == [choice["text"] for choice in whole["choices"]]


@pytest.mark.parametrize("logprobs", [False, True])
def test_chat(client, logprobs):
    body = {
        "messages": [
            {"role": "system", "content": "Be kind."},
            {"role": "user", "content": [{"type": "text", "text": "Hi"}]},
        ],
        "max_completion_tokens": 15,
        "seed": 1,
    }
    if logprobs:
        body |= {"logprobs": True, "top_logprobs": 2}
    whole = client.post("/v1/chat/completions", json=body).json()
    answer = client.post("/v1/chat/completions", json=body | {"stream": True})
    chunks, (text,) = check_stream(answer, chat=True)
    assert text == whole["choices"][0]["message"]["content"]
    if logprobs:
        parts = [chunk["choices"][0]["logprobs"] for chunk in chunks]
        entries = [entry for part in parts if part for entry in part["content"]]
        assert entries == whole["choices"][0]["logprobs"]["content"]
        for entry in entries:
            assert len(entry["top_logprobs"]) == 2
            assert entry["top_logprobs"][0]["logprob"] >= entry["logprob"] - 1e-6


def test_echo_gives_the_prompt_its_log_probabilities(client, bundle):
    body = {"prompt": "Hello", "max_tokens": 0, "echo": True, "logprobs": 0}
    (choice,) = client.post("/v1/completions", json=body).json()["choices"]
    assert choice["text"] == "Hello"
    assert choice["logprobs"]["tokens"] == list("Hello")
    assert choice["logprobs"]["text_offset"] == [0, 1, 2, 3, 4]
    ids = torch.tensor([list(b"Hello")])
    with torch.no_grad():
        logprobs = bundle.model(ids)[0].log_softmax(-1)
    expected = [logprobs[i, ids[0, i + 1]].item() for i in range(4)]
    assert choice["logprobs"]["token_logprobs"] == [None, *map(pytest.approx, expected)]


def test_an_echoed_stream(client):
    body = {"prompt": "Hello", "max_tokens": 3, "echo": True, "seed": 0}
    whole = client.post("/v1/completions", json=body).json()
    answer = client.post("/v1/completions", json=body | {"stream": True})
    _, (text,) = check_stream(answer, chat=False)
    assert text == whole["choices"][0]["text"]
    assert text.startswith("Hello")


@pytest.mark.parametrize("seed", range(4))
def test_no_half_characters(client, seed):
    """A bias makes the model write the three bytes of a euro sign, one token each, in any order."""
    bias = {"226": 100, "130": 100, "172": 100}
    body = {"prompt": "a", "max_tokens": 30, "seed": seed, "logit_bias": bias, "logprobs": 0}
    answer = client.post("/v1/completions", json=body | {"stream": True})
    chunks, (text,) = check_stream(answer, chat=False)
    parts = [chunk["choices"][0]["logprobs"] for chunk in chunks]
    ids = [i for part in parts if part for i in part["token_ids"]]
    assert set(ids) <= {226, 130, 172}
    assert text == codecs.getincrementaldecoder("utf-8")("replace").decode(bytes(ids))


@pytest.mark.parametrize("pooling", ["mean", "max", "first"])
def test_embeddings(client, bundle, pooling):
    body = {"input": ["Hello", "Hi"], "pooling": pooling}
    answer = client.post("/v1/embeddings", json=body).json()
    for text, entry in zip(body["input"], answer["data"], strict=True):
        ids = torch.tensor([list(text.encode())])
        with torch.no_grad():
            states = bundle.model.hidden_states(ids)
        expected = pool(states, torch.ones_like(ids, dtype=torch.bool), pooling)[0]
        np.testing.assert_allclose(entry["embedding"], expected.numpy(), atol=1e-5)
    packed = client.post("/v1/embeddings", json=body | {"encoding_format": "base64"}).json()
    raw = base64.b64decode(packed["data"][0]["embedding"])
    numbers = struct.unpack(f"<{len(raw) // 4}f", raw)
    np.testing.assert_allclose(numbers, answer["data"][0]["embedding"], rtol=1e-6)


def test_many_texts_are_embedded_a_few_at_a_time(client, bundle, monkeypatch):
    """The memory that a request takes does not grow with its number of texts."""
    sizes = []
    hidden_states = bundle.model.hidden_states

    def counted(ids, *others):
        sizes.append(ids.numel())
        return hidden_states(ids, *others)

    texts = ["a" * (1 + i % 64) for i in range(256)]
    alone = client.post("/v1/embeddings", json={"input": texts[70]}).json()["data"][0]
    monkeypatch.setattr(bundle.model, "hidden_states", counted)
    found = client.post("/v1/embeddings", json={"input": texts}).json()["data"]
    assert len(found) == 256
    assert max(sizes) <= 4096
    np.testing.assert_allclose(found[70]["embedding"], alone["embedding"], atol=1e-5)


def test_special_tokens_of_strangers_stay_text(client, bundle):
    text = "a<|endoftext|>é"
    tokens = client.post("/tokenize", json={"prompt": text}).json()["tokens"]
    assert tokens == list(text.encode())
    assert client.post("/detokenize", json={"tokens": tokens}).json() == {"prompt": text}
    answer = client.post("/v1/completions", json={"prompt": text, "max_tokens": 1}).json()
    assert answer["usage"]["prompt_tokens"] == len(text.encode())
    answer = client.post("/v1/embeddings", json={"input": text}).json()
    assert answer["usage"]["prompt_tokens"] == len(text.encode())


def test_a_template_has_specials_and_its_users_do_not(bundle):
    source = "{% for m in messages %}{{ eos_token }}{{ m.role }}:{{ m.content }}{% endfor %}"
    message = {"role": "user", "content": "x<|endoftext|>y"}
    ids = ChatTemplate(source, ()).encode(bundle.tokenizer, [message])
    assert ids == [256, *b"user:x<|endoftext|>y"]


def test_what_a_template_refuses_is_a_400(serve):
    client = serve(template=ChatTemplate("{{ raise_exception('roles must\\nalternate') }}", ()))
    body = {"messages": [{"role": "user", "content": "a"}]}
    answer = client.post("/v1/chat/completions", json=body)
    assert answer.status_code == 400
    error = answer.json()["error"]
    assert error["param"] == "messages"
    assert error["message"].endswith("refuses these messages: roles must alternate")


WRONG = [
    ({"prompt": "a", "best_of": 3}, "best_of"),
    ({"prompt": "a", "suffix": "b"}, "suffix"),
    ({"prompt": "a", "temperature": "hot"}, "temperature"),
    ({"prompt": "a", "top_p": 0}, "top_p"),
    ({"prompt": "a", "logit_bias": {"900": 1}}, "logit_bias"),
    ({"prompt": "a", "stop": [""]}, "stop"),
    ({"prompt": "a", "max_tokens": 10**9}, "max_tokens"),
    ({"prompt": "a", "n": 65}, "n"),
    ({"prompt": "a" * 65}, "prompt"),
    ({"prompt": [257]}, "prompt"),
    ({"prompt": []}, "prompt"),
    ({"max_tokens": 3}, "prompt"),
    ({"prompt": "a", "stream_options": {"include_usage": True}}, "stream_options"),
]


@pytest.mark.parametrize(("body", "param"), WRONG)
def test_what_is_wrong_is_refused_by_name(client, body, param):
    answer = client.post("/v1/completions", json=body)
    assert answer.status_code == 400
    error = answer.json()["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert error["param"] == param
    assert param in error["message"]


def test_ids_without_a_token_are_refused_by_name(client):
    answer = client.post("/detokenize", json={"tokens": [97, 257]})
    assert answer.status_code == 400
    assert answer.json()["error"]["param"] == "tokens"


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"tools": []}, "tools"),
        ({"response_format": {"type": "json_object"}}, "response_format"),
        ({"top_logprobs": 2}, "top_logprobs"),
        ({"messages": [{"role": "tool", "content": "a"}]}, "messages.0.role"),
        ({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, "messages.0"),
    ],
)
def test_chats_refuse_by_name_too(client, body, param):
    message = {"messages": [{"role": "user", "content": "a"}]}
    answer = client.post("/v1/chat/completions", json=message | body)
    assert answer.status_code == 400
    assert answer.json()["error"]["param"].startswith(param)


def test_unknown_models_paths_and_bodies(client):
    assert client.post("/v1/completions", json={"model": "x", "prompt": "a"}).status_code == 404
    assert client.get("/v1/models/tiny").json()["step"] == 7
    assert client.get("/v1/models/../../etc/passwd").status_code == 404
    assert client.get("/page/index.html").status_code == 404
    assert client.get("/v1/completions").status_code == 405
    answer = client.post("/v1/completions", content=b"{not json")
    assert answer.json()["error"]["code"] == "invalid_json"
    answer = client.post("/v1/translations", json={"input": "a"})
    assert answer.json()["error"]["code"] == "wrong_kind_of_model"


def test_the_page_is_strict(client):
    answer = client.get("/")
    assert answer.headers["content-type"].startswith("text/html")
    assert "default-src 'none'" in answer.headers["content-security-policy"]


def test_metrics_count(client):
    client.post("/v1/completions", json=HELLO)
    text = client.get("/metrics").text
    assert 'trafo_requests_total{path="/v1/completions",status="200"} 1.0' in text
    assert 'trafo_tokens_total{kind="completion"} 12.0' in text
    assert "trafo_first_token_seconds_count 1.0" in text
    assert 'trafo_running_sequences{model="tiny"} 0.0' in text
    blocks = [line for line in text.split("\n") if line.startswith("trafo_free_cache_blocks")]
    assert math.isfinite(float(blocks[0].split()[-1]))


def test_a_request_with_a_name_can_ask_for_its_place(serve, monkeypatch):
    client = serve(max_tokens=100_000)
    assert client.get("/inside/place?id=mine").json() == {"place": None}
    worker = next(iter(client.app.service.models)).worker
    submitted, seen, step = Event(), Event(), worker.engine.step

    def step_and_wait():
        submitted.wait(60)
        pieces = step()
        if worker.engine.num_waiting:
            seen.wait(60)  # no request ends while places are read
        return pieces

    monkeypatch.setattr(worker.engine, "step", step_and_wait)
    config = GenerationConfig(max_new_tokens=100_000)
    requests = [Request([1], config) for _ in range(66)]  # two more than run at once
    names = [f"number {i}" for i in range(66)]
    subscriptions = [
        client.portal.call(partial(worker.submit, [request], name=name))
        for request, name in zip(requests, names, strict=True)
    ]
    submitted.set()
    try:
        while client.get(f"/inside/place?id={names[-1]}").json()["place"] != 2:
            pass
        places = [client.get(f"/inside/place?id={name}").json()["place"] for name in names]
        assert places == [0] * 64 + [1, 2]
    finally:
        seen.set()
        for subscription in subscriptions:
            client.portal.call(subscription.close)
    # The engine, which all tests share, hears of it before its next step.
    body = {"prompt": "a", "max_tokens": 1}
    assert client.post("/v1/completions", json=body).status_code == 200
