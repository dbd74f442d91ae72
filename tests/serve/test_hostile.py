"""What hostile or careless clients send: it costs them a refusal, and the others nothing."""

import asyncio
import json
import math
import threading
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import ValidationError
from starlette.testclient import TestClient
from tests.serve.contract import check_stream
from torch.nn.modules.module import register_module_forward_pre_hook

from trafo.checkpoint.bundle import Bundle
from trafo.data.pair_tokenizer import PairTokenizer
from trafo.generate.beam import beam_search_steps
from trafo.generate.beam_config import BeamConfig
from trafo.generate.translate import translate
from trafo.serve import guard, protocol
from trafo.serve.app import ROUTES, App
from trafo.serve.models import Models, ServedModel
from trafo.serve.protocol import encode_json

ORDINARY = {"prompt": "Hello", "max_tokens": 8, "seed": 3}
EXTREMES = [
    {"repetition_penalty": 1e-300},
    {"repetition_penalty": 1e300, "temperature": 5e-324},
    {"temperature": 1e-300, "logprobs": 5},
    {"temperature": 1e-38, "presence_penalty": 2, "frequency_penalty": -2},
    {"top_k": 10**30, "top_p": 5e-324, "min_p": 1, "seed": -(10**400), "logprobs": 100},
    {"logit_bias": {str(i): 100 for i in range(257)}, "n": 16},
]


def test_extreme_settings_end_nobodys_request(serve):
    """All at once, as streams too, beside ordinary requests whose text does not change."""
    client = serve()
    alone = client.post("/v1/completions", json=ORDINARY).json()["choices"]
    bodies = [ORDINARY | extreme | {"stream": i % 2 == 0} for i, extreme in enumerate(EXTREMES)]
    answers = post_together(client, [*bodies, ORDINARY, *bodies, ORDINARY])
    assert [answer.status_code for answer in answers] == [200] * len(answers)
    for body, answer in zip(bodies, answers, strict=False):
        if body["stream"]:
            check_stream(answer, chat=False, num_choices=body.get("n", 1))
    for answer in (answers[len(bodies)], answers[-1]):
        assert answer.json()["choices"] == alone


def post_together(client, bodies):
    answers = [None] * len(bodies)

    def post(number):
        answers[number] = client.post("/v1/completions", json=bodies[number])

    threads = [threading.Thread(target=post, args=[number]) for number in range(len(bodies))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return answers


def test_a_request_that_fails_fails_alone(serve, engine, monkeypatch):
    """The model computes NaN after the byte Z: those requests get an error, the others a text."""
    client, step = serve(), engine._step

    def damaged(batch, cache):
        logits = step(batch, cache)
        logits[batch.ids[batch.wanted] == ord("Z")] = math.nan
        return logits

    alone = client.post("/v1/completions", json=ORDINARY).json()["choices"]
    monkeypatch.setattr(engine, "_step", damaged)
    wrong = ORDINARY | {"prompt": "Z"}
    bodies = [ORDINARY, wrong, wrong | {"stream": True}, wrong | {"n": 3}, ORDINARY]
    answers = post_together(client, bodies)
    for place in (0, 4):
        assert answers[place].json()["choices"] == alone
    for place in (1, 3):
        assert "NaN" in answers[place].json()["error"]["message"]
    assert answers[2].text.startswith('data: {"error":{')
    assert client.app.num_active == 0


# Sizes


@pytest.mark.parametrize("stream", [False, True])
def test_answers_are_bounded_before_the_work(serve, engine, monkeypatch, stream):
    client = serve()
    monkeypatch.setattr(engine, "add", lambda request: pytest.fail("it works"))
    monkeypatch.setattr(client.app.service, "compute", lambda job: pytest.fail("it works"))
    body = {"prompt": "Hi", "n": 64, "max_tokens": 1000, "logprobs": 100, "stream": stream}
    error = client.post("/v1/completions", json=body).json()["error"]
    assert error["param"] == "logprobs"
    assert all(name in error["message"] for name in ("n", "max_tokens", "logprobs", "6,464,000"))
    chat = {"messages": [{"role": "user", "content": "Hi"}], "logprobs": True, "top_logprobs": 100}
    chat |= {"n": 64, "max_tokens": 1000, "stream": stream}
    assert client.post("/v1/chat/completions", json=chat).json()["error"]["param"] == "logprobs"
    echo = {"prompt": ["ab" * 30] * 64, "echo": True, "logprobs": 100, "max_tokens": 20}
    assert client.post("/v1/completions", json=echo).json()["error"]["param"] == "logprobs"
    many = {"prompt": ["Hello"] * 3000, "echo": True, "logprobs": 5}
    assert client.post("/v1/completions", json=many).json()["error"]["param"] == "prompt"


def test_open_answers_are_bounded_together(serve, engine, monkeypatch):
    """Each is allowed, but not all at once: the rest is told to come back."""
    client = serve(max_logprobs=1000)
    go_on, step = threading.Event(), engine.step
    monkeypatch.setattr(engine, "step", lambda: go_on.wait(60) and step())
    body = ORDINARY | {"max_tokens": 90, "logprobs": 10}
    threads = [
        threading.Thread(target=client.post, args=["/v1/completions"], kwargs={"json": body})
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    while client.app.num_active < 4:
        pass
    answer = client.post("/v1/completions", json=body)
    go_on.set()
    for thread in threads:
        thread.join()
    assert answer.status_code == 429
    assert client.post("/v1/completions", json=body).status_code == 200


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=25,
)  # fmt: skip


@given(st.dictionaries(st.text(max_size=5), JSON, max_size=5))
@settings(max_examples=50)
def test_an_answer_in_pieces_is_the_same_json(content):
    assert json.loads(encode_json(content)) == content


def test_long_lists_in_pieces_are_the_same_json():
    content = {"a": list(range(2500)), "b": [{"c": [{"d": [0.5] * 1001}]}] * 3, "e": [], "f": {}}
    assert json.loads(encode_json(content)) == content
    for number in (0, 1, 3):
        entries = [{"g": [1, {}]}] * number
        assert json.loads(encode_json({"h": iter(entries)})) == {"h": entries}


# Clients that leave


@pytest.fixture
def translation_model(bundle, translator):
    tokenizer = PairTokenizer(bundle.tokenizer, bundle.tokenizer)
    return ServedModel("t", Path("t"), Bundle(translator, tokenizer, Path("t"), 3, {}))


@pytest.fixture
def translating(translation_model):
    app = App(Models([translation_model]))
    with TestClient(app, base_url="http://127.0.0.1") as client:
        yield client


@pytest.fixture
def both(serve, translation_model):
    """A language model and a translation model."""
    return serve(translation_model)


def test_a_search_ends_with_the_error_of_its_check(bundle, translator):
    tokenizer, calls = PairTokenizer(bundle.tokenizer, bundle.tokenizer), []

    def check():
        calls.append(1)
        if len(calls) == 3:
            raise InterruptedError

    with pytest.raises(InterruptedError):
        translate(translator, tokenizer, ["a b c"], BeamConfig(beam=2), check=check)
    assert len(calls) == 3
    calls.clear()
    with pytest.raises(InterruptedError):
        beam_search_steps(translator, [5, 6], tokenizer.end, BeamConfig(beam=2), check)
    assert len(calls) == 3


@pytest.mark.parametrize(
    ("path", "body", "search"),
    [
        ("/v1/translations", {"input": ["a"] * 30, "beam": 60}, "endpoints.translate"),
        ("/inside/translation", {"sentence": "a"}, "inside.endpoints.beam_tree"),
    ],
)
def test_a_client_that_leaves_ends_its_search(both, monkeypatch, path, body, search):
    """It ends at the next step, so the next search does not wait for it."""
    begun, ended = threading.Event(), threading.Event()

    def endless(*args, check=None):
        begun.set()
        try:
            while not ended.wait(0.01):
                (check or args[-1])()
        finally:
            ended.set()

    monkeypatch.setattr(f"trafo.serve.{search}", endless)
    post_and_leave(both, path, body, begun)
    assert ended.wait(60)
    monkeypatch.undo()
    assert both.post(path, json=body).status_code == 200


TARGET = {"sentence": "a b", "target": [5, 9]}


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/embeddings", {"input": ["a" * 60] * 128}),
        ("/v1/completions", {"prompt": ["ab"] * 2, "echo": True, "logprobs": 1, "max_tokens": 0}),
        ("/inside/logits", {"ids": [1, 2]}),
        ("/inside/scores", {"ids": [1, 2]}),
        ("/inside/layers", {"ids": [1, 2]}),
        ("/inside/attention", {"ids": [1, 2], "layer": 0}),
        ("/inside/translation/attention", TARGET | {"layer": 0}),
        ("/inside/translation/layers", TARGET),
    ],
)
def test_a_client_that_leaves_ends_its_computation(both, path, body):
    """At the next text or layer: fewer parts of the model compute than for a whole answer."""
    begun, has_left, calls = threading.Event(), threading.Event(), []

    def record_and_wait(*_):
        calls.append(path)
        begun.set()
        has_left.wait(60)

    async def until_idle():
        has_left.set()
        while both.app.num_active:
            await asyncio.sleep(0.01)

    hook = register_module_forward_pre_hook(record_and_wait)
    try:
        post_and_leave(both, path, body, begun)
        both.portal.call(until_idle)
        num_calls = len(calls)
        assert both.post(path, json=body).status_code == 200
    finally:
        hook.remove()
    assert num_calls < len(calls) - num_calls


def post_and_leave(client, path, body, begun):
    messages = [{"type": "http.request", "body": json.dumps(body).encode()}]

    async def receive():
        if messages:
            return messages.pop()
        while not begun.is_set():
            await asyncio.sleep(0.01)
        return {"type": "http.disconnect"}

    async def send(message):
        pass

    client.portal.call(client.app, scope(path), receive, send)


def scope(path, method="POST"):
    return {
        "type": "http",
        "method": method,
        "path": path,
        "raw_path": path.encode(),
        "query_string": b"",
        "root_path": "",
        "scheme": "http",
        "headers": [(b"host", b"localhost")],
        "client": ("127.0.0.1", 1),
        "server": ("127.0.0.1", 2),
    }


def test_beams_are_bounded(translating):
    body = {"input": ["a"] * 256, "beam": 64}
    error = translating.post("/v1/translations", json=body).json()["error"]
    assert error["param"] == "beam"
    assert "16,384" in error["message"]


def test_a_body_that_trickles_in_has_a_time_for_all_of_it(client, monkeypatch):
    monkeypatch.setattr(guard, "BODY_SECONDS", 0.2)
    sent = []

    async def receive():
        await asyncio.sleep(0.05)  # each part comes in time
        return {"type": "http.request", "body": b" ", "more_body": True}

    async def send(message):
        sent.append(message)

    client.portal.call(client.app, scope("/v1/completions"), receive, send)
    assert sent[0]["status"] == 408


def test_headers_are_bounded(client):
    answer = client.get("/health", headers={"X-Long": "x" * 70_000})
    assert answer.status_code == 431
    assert answer.json()["error"]["code"] == "header_too_large"
    assert client.get("/health?" + "9" * 60_000, headers={"X": "x" * 9000}).status_code == 431


# Values


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        (protocol.CompletionBody, {"prompt": [None] * 1000}),
        (protocol.CompletionBody, {"prompt": ["a"] * 1000 + [1] * 1000}),
        (protocol.ChatBody, {"messages": [{"role": "x"}] * 1000}),
        (protocol.TranslationBody, {"input": [1] * 1000}),
        (protocol.IdsBody, {"ids": ["x"] * 1000}),
        (protocol.CompletionBody, {"prompt": "a", "logit_bias": {str(i): "" for i in range(9999)}}),
        (protocol.ChatBody, {"messages": [], "metadata": {str(i): 1 for i in range(9999)}}),
        (protocol.TokenizeBody, {"prompt": "a"} | {str(i): i for i in range(1000)}),
    ],
)
def test_much_that_is_wrong_is_refused_for_its_first_mistake(kind, body):
    """100,000 mistakes, each described, would take seconds on the event loop."""
    with pytest.raises(ValidationError) as refused:
        kind.model_validate_json(json.dumps(body))
    assert refused.value.error_count() <= 101


@pytest.mark.parametrize("path", ["/v1/completions", "/v1/embeddings"])
def test_many_small_lists_are_refused_before_they_are_made(client, monkeypatch, path):
    """A megabyte of them would hold the event loop for half a second."""
    name = {"/v1/completions": "prompt", "/v1/embeddings": "input"}[path]
    brackets = json.dumps({name: '["' * 20_000 + "]" * 50, "user": '{\\"' * 10})
    assert client.post(path, content=brackets).json()["error"]["code"] == "context_length_exceeded"
    monkeypatch.setattr(
        protocol.Body, "model_validate_json", lambda _: pytest.fail("it is made into objects")
    )
    answer = client.post(path, content=json.dumps({name: [[1]] * 190_000}))
    assert answer.status_code == 413
    assert "190,002 lists and objects" in answer.json()["error"]["message"]
    unclosed = b'{"prompt": "' + b'\\"[' * 200_000  # must not be searched again from every quote
    assert client.post(path, content=b"[" * 10_001 + unclosed).status_code == 413


WRONG = [
    ("/v1/completions", {"prompt": "a", "logit_bias": {"9" * 5000: 1}}, "logit_bias"),
    ("/v1/completions", {"prompt": "a", "logit_bias": {"²": 1}}, "logit_bias"),
    ("/v1/completions", {"prompt": "a", "logit_bias": {"٣": 1}}, "logit_bias"),
    ("/v1/completions", {"prompt": "a", "n": 10**30}, "n"),
    ("/v1/completions", {"prompt": "a", "n": 1e30}, "n"),
    ("/v1/completions", {"prompt": "a", "max_tokens": 10**30}, "max_tokens"),
    ("/v1/completions", {"prompt": [10**30]}, "prompt"),
    ("/v1/completions", {"prompt": ["a"] * 65}, "prompt"),
    ("/v1/embeddings", {"input": ["a"] * 257}, "input"),
    ("/detokenize", {"tokens": [10**30]}, "tokens"),
    ("/inside/merges", {"id": 10**30}, "id"),
]


@pytest.mark.parametrize(("path", "body", "param"), WRONG)
def test_what_is_too_large_is_refused_by_its_name(client, path, body, param):
    answer = client.post(path, json=body)
    assert answer.status_code == 400
    assert answer.json()["error"]["param"] == param


@pytest.mark.parametrize("penalty", [2.0**31, 1e300, 21.0])
def test_length_penalties_that_overflow_are_refused(translating, penalty):
    body = {"input": "a b", "length_penalty": penalty}
    error = translating.post("/v1/translations", json=body).json()["error"]
    assert error["param"] == "length_penalty"


@pytest.mark.parametrize("wrong", ["9" * 5000, "²", "-1", ""])
def test_lengths_that_are_no_numbers(client, wrong):
    answer = client.post(
        "/v1/completions", content=b"{}", headers={"Content-Length": wrong.encode()}
    )
    assert answer.status_code in (400, 413)
    assert answer.json()["error"]["code"]


def test_a_bug_is_json_too(serve, monkeypatch, capsys):
    client = serve()
    monkeypatch.setattr("trafo.serve.endpoints.token_text", lambda *_: 1 / 0)
    answer = client.post("/tokenize", json={"prompt": "a"})
    assert answer.status_code == 500
    assert answer.json()["error"]["type"] == "server_error"
    assert "ZeroDivisionError" in capsys.readouterr().err


# Neutral fields

NEUTRAL = {
    "/v1/completions": {
        "prompt": "a", "max_tokens": 1, "suffix": None, "best_of": 1, "echo": None, "store": True,
        "metadata": {"a": "b"}, "logit_bias": None, "stop": None, "stream_options": None, "n": None,
    },
    "/v1/chat/completions": {
        "messages": [
            {"role": "user", "content": "Hi", "name": "Ann"},
            {"role": "assistant", "content": None, "tool_calls": None, "refusal": None},
            {"role": "user", "content": "Hi"},
        ],
        "max_tokens": 1, "tools": None, "tool_choice": None, "response_format": {"type": "text"},
        "store": False, "metadata": None, "service_tier": None,
    },
    "/v1/embeddings": {"input": "a", "encoding_format": None, "dimensions": None, "pooling": None},
    "/tokenize": {"prompt": "a", "add_special_tokens": None},
}  # fmt: skip


@pytest.mark.parametrize("path", NEUTRAL)
def test_null_and_neutral_fields_are_accepted(client, path):
    answer = client.post(path, json=NEUTRAL[path])
    assert answer.status_code == 200, answer.text


def test_best_of_may_be_n(client):
    body = {"prompt": "a", "max_tokens": 1, "n": 3}
    for best_of in (1, 3, None):
        answer = client.post("/v1/completions", json=body | {"best_of": best_of}).json()
        assert len(answer["choices"]) == 3
    error = client.post("/v1/completions", json=body | {"best_of": 4}).json()["error"]
    assert error["param"] == "best_of"
    assert "4 is not supported" in error["message"]


@pytest.mark.parametrize(
    ("role", "param"),
    [("user", "messages.0"), ("system", "messages.0"), ("tool", "messages.0.role")],
)
def test_only_an_assistant_may_have_said_nothing(client, role, param):
    body = {"messages": [{"role": role, "content": None}]}
    error = client.post("/v1/chat/completions", json=body).json()["error"]
    assert error["param"] == param


# Any JSON

CHAT = [{"role": "user", "content": "a"}]
BODIES = {
    "/v1/completions": (protocol.CompletionBody, {"prompt": "a", "max_tokens": 2}),
    "/v1/chat/completions": (protocol.ChatBody, {"messages": CHAT, "max_tokens": 2}),
    "/v1/embeddings": (protocol.EmbeddingBody, {"input": "a"}),
    "/v1/translations": (protocol.TranslationBody, {"input": "a"}),
    "/tokenize": (protocol.TokenizeBody, {"prompt": "a"}),
    "/detokenize": (protocol.DetokenizeBody, {"tokens": [4]}),
    "/inside/tokens": (protocol.TextBody, {"text": "a"}),
    "/inside/merges": (protocol.MergesBody, {"id": 5}),
    "/inside/logits": (protocol.IdsBody, {"ids": [1, 2]}),
    "/inside/scores": (protocol.IdsBody, {"ids": [1, 2]}),
    "/inside/layers": (protocol.IdsBody, {"ids": [1, 2]}),
    "/inside/attention": (protocol.AttentionBody, {"ids": [1, 2], "layer": 0}),
    "/inside/translation": (protocol.BeamBody, {"sentence": "a"}),
    "/inside/translation/layers": (
        protocol.TranslationLayersBody,
        {"sentence": "a", "target": [3]},
    ),
    "/inside/translation/attention": (
        protocol.TranslationAttentionBody,
        {"sentence": "a", "target": [3], "layer": 0},
    ),
}
VALUES = st.one_of(
    JSON,
    st.sampled_from([0, 1, -1, 64, 10**30, 1e300, -1e300, 5e-324, 2.0**31, "a", "", "²", [], {}]),
    st.lists(st.integers(-1, 300), max_size=70),
    st.dictionaries(st.sampled_from(["0", "256", "257", "²", "9" * 5000]), st.floats(-101, 101)),
    st.just([{"role": "user", "content": "Hi"}]),
)


def test_every_endpoint_that_takes_a_body_is_tried():
    assert set(BODIES) == {route.path for route in ROUTES if "POST" in route.methods}


@pytest.mark.parametrize("path", BODIES)
@given(data=st.data())
@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_json_gets_an_answer_in_json(both, path, data):
    """A usual body with random values in some of its fields, or anything else."""
    kind, usual = BODIES[path]
    fields = st.sampled_from(sorted(kind.model_fields))
    changes = data.draw(st.dictionaries(fields, VALUES, max_size=3) | JSON)
    body = usual | changes if isinstance(changes, dict) else changes
    answer = both.post(path, content=json.dumps(body).encode())
    assert answer.status_code < 500, (body, answer.text)
    if answer.headers["content-type"].startswith("text/event-stream"):
        events = answer.text.split("\n\n")[:-1]
        assert all(event.startswith("data: ") for event in events)
        assert events[-1] == "data: [DONE]"
    elif answer.headers["content-type"] != "application/octet-stream":
        answer.json()
