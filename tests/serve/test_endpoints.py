"""Endpoints, through HTTP, against the generator called directly."""

import json

import pytest

from trafo.generate import GenerationConfig, generate


def test_greedy_completion_is_the_generators(client, bundle):
    body = {"model": "tiny", "prompt": "Hello", "max_tokens": 12, "temperature": 0}
    answer = client.post("/v1/completions", json=body).json()
    config = GenerationConfig(max_new_tokens=12, temperature=0.0)
    (expected,) = generate(bundle.model, bundle.tokenizer, ["Hello"], config)
    assert answer["choices"][0]["text"] == expected.text
    assert answer["usage"] == {"prompt_tokens": 5, "completion_tokens": 12, "total_tokens": 17}


def test_a_stream_says_what_the_whole_answer_says(client):
    body = {"prompt": ["ab", "xyz"], "n": 2, "max_tokens": 9, "seed": 5}
    whole = client.post("/v1/completions", json=body).json()
    texts = ["", "", "", ""]
    for chunk in events(client.post("/v1/completions", json=body | {"stream": True})):
        for choice in chunk["choices"]:
            texts[choice["index"]] += choice["text"]
    assert texts == [choice["text"] for choice in whole["choices"]]


def test_chat(client):
    body = {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 5, "seed": 1}
    whole = client.post("/v1/chat/completions", json=body).json()
    chunks = events(client.post("/v1/chat/completions", json=body | {"stream": True}))
    assert chunks[0]["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    text = "".join(chunk["choices"][0]["delta"].get("content", "") for chunk in chunks)
    assert text == whole["choices"][0]["message"]["content"]


def test_tokenize_and_back(client):
    tokens = client.post("/tokenize", json={"prompt": "a<|endoftext|>é"}).json()["tokens"]
    assert tokens == list("a<|endoftext|>é".encode())
    assert client.post("/detokenize", json={"tokens": tokens}).json() == {
        "prompt": "a<|endoftext|>é"
    }


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"prompt": "a", "best_of": 3}, "best_of"),
        ({"prompt": "a", "temperature": "hot"}, "temperature"),
        ({"prompt": "a", "top_p": 0}, "top_p"),
        ({"max_tokens": 3}, "prompt"),
        ({"prompt": "a", "stream_options": {"include_usage": True}}, "stream_options"),
    ],
)
def test_what_is_wrong_is_refused_by_name(client, body, param):
    answer = client.post("/v1/completions", json=body)
    assert answer.status_code == 400
    assert answer.json()["error"]["param"] == param


def test_the_page_is_strict(client):
    answer = client.get("/")
    assert answer.headers["content-type"].startswith("text/html")
    assert "default-src 'none'" in answer.headers["content-security-policy"]


def events(answer):
    lines = [line for line in answer.text.split("\n") if line]
    assert lines[-1] == "data: [DONE]"
    return [json.loads(line.removeprefix("data: ")) for line in lines[:-1]]
