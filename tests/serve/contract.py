"""A strict checker of the stream contract: what OpenAI's clients rely on, to the last chunk."""

import json
import re

CHUNK_KEYS = {"id", "object", "created", "model", "choices"}


def check_stream(answer, *, chat, num_choices=1, include_usage=False):
    """Check a whole stream; returns its chunks and the text of each choice."""
    assert answer.status_code == 200
    assert answer.headers["content-type"].startswith("text/event-stream")
    events = answer.content.decode("utf-8", errors="strict").split("\n\n")
    assert events.pop() == "", "the last event must be complete"
    assert all(re.fullmatch(r"data: [^\n]+", event) for event in events)
    assert events.pop() == "data: [DONE]"
    chunks = [json.loads(event.removeprefix("data: ")) for event in events]
    _check_envelopes(chunks, chat, include_usage)
    if include_usage:
        _check_usage(chunks.pop())
    texts = ["" for _ in range(num_choices)]
    finished = [None] * num_choices
    opened = set()
    for chunk in chunks:
        (choice,) = chunk["choices"]
        index = choice["index"]
        assert finished[index] is None, "nothing comes after the finish_reason"
        finished[index] = choice["finish_reason"]
        texts[index] += _text(choice, index not in opened, chat)
        opened.add(index)
        if finished[index]:
            assert not _text(choice, False, chat), "the final chunk carries no text"
    assert all(reason in ("stop", "length") for reason in finished)
    return chunks, texts


def _check_envelopes(chunks, chat, include_usage):
    kind = "chat.completion.chunk" if chat else "text_completion"
    keys = CHUNK_KEYS | {"usage"} if include_usage else CHUNK_KEYS
    assert all(set(chunk) == keys for chunk in chunks)
    assert {chunk["object"] for chunk in chunks} == {kind}
    assert len({(chunk["id"], chunk["created"], chunk["model"]) for chunk in chunks}) == 1
    assert all(chunk.get("usage") is None for chunk in chunks[:-1])


def _check_usage(chunk):
    assert chunk["choices"] == []
    usage = chunk["usage"]
    assert usage["total_tokens"] == usage["prompt_tokens"] + usage["completion_tokens"]


def _text(choice, is_first, chat):
    if not chat:
        return choice["text"]
    delta = choice["delta"]
    if is_first:
        assert delta == {"role": "assistant", "content": ""}
    else:
        assert set(delta) <= {"content"}
    return delta.get("content", "")
