"""Messages -> the ids of a prompt, by the model's own Jinja template or a plain one.

Only the template may write special tokens. In messages they stay text: while the template runs, a
random word stands in for each of them.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from secrets import token_hex
from typing import Any

from trafo.checkpoint.locate import find_kind
from trafo.checkpoint.model_tokenizer import ModelTokenizer
from trafo.errors import FormatError
from trafo.runtime.json_text import parse_json
from trafo.serve.errors import invalid
from trafo.serve.protocol import Message

TEMPLATE_FILE = "chat_template.jinja"
"""in the run's folder, as in Hugging Face's"""

PLAIN = """\
{%- set names = {"system": "System", "developer": "System", "user": "User",
                 "assistant": "Assistant"} -%}
{%- for message in messages -%}
{{ names[message.role] }}: {{ message.content }}
{% endfor -%}
Assistant:"""
"""one line per message, then the assistant's turn"""

_PLAIN_STOPS = ("\nUser:", "\nSystem:")
"""where a model would continue with the next person's message"""


@dataclass(frozen=True)
class ChatTemplate:
    """A template, and the strings that end an answer."""

    source: str = PLAIN
    stop: tuple[str, ...] = _PLAIN_STOPS

    def encode(self, tokenizer: ModelTokenizer, messages: Sequence[Message]) -> list[int]:
        """The ids of a chat, after the begin token if the model has one."""
        specials = sorted(tokenizer.special_tokens, key=len, reverse=True)
        words = {special: f"@{token_hex(16)}@" for special in specials}
        contents = [_replace(message.text, words) for message in messages]
        rendered = self._render(tokenizer, messages, contents)
        originals = {word: special for special, word in words.items()}
        pattern = "|".join(map(re.escape, specials))
        ids: list[int] = []
        for part in re.split(f"({pattern})", rendered) if specials else [rendered]:
            if part in tokenizer.special_tokens:
                ids.append(tokenizer.special_tokens[part])
            else:
                ids += tokenizer.encode(_replace(part, originals), "ignore")
        begin = tokenizer.markers.begin
        return ids if begin is None or ids[:1] == [begin] else [begin, *ids]

    def _render(
        self, tokenizer: ModelTokenizer, messages: Sequence[Message], contents: list[str]
    ) -> str:
        from jinja2 import TemplateError
        from jinja2.sandbox import ImmutableSandboxedEnvironment

        def refuse(message: str) -> None:
            raise invalid(message, "messages")

        dicts = [
            {"role": message.role, "content": content}
            for message, content in zip(messages, contents, strict=True)
        ]
        environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
        environment.globals["raise_exception"] = refuse
        try:
            return environment.from_string(self.source).render(
                messages=dicts, add_generation_prompt=True, **_markers(tokenizer)
            )
        except TemplateError as error:
            what = f"the model's chat template fails on these messages: {error}"
            raise invalid(what, "messages") from None


def read_template(path: Path) -> ChatTemplate:
    """The template in a model's folder; the plain one if there is none."""
    folder = path.parent.parent if find_kind(path) == "checkpoint" else path
    if not folder.is_dir():
        return ChatTemplate()
    file = folder / TEMPLATE_FILE
    if file.is_file():
        return ChatTemplate(file.read_text(encoding="utf-8"), ())
    settings = folder / "tokenizer_config.json"
    if not settings.is_file():
        return ChatTemplate()
    try:
        source = parse_json(settings.read_text(encoding="utf-8")).get("chat_template")
    except (ValueError, AttributeError):
        raise FormatError("is not a JSON object", where=str(settings)) from None
    return ChatTemplate(source, ()) if isinstance(source, str) else ChatTemplate()


def _markers(tokenizer: ModelTokenizer) -> dict[str, Any]:
    """The names that templates have for the begin and end tokens."""
    names = {i: name for name, i in tokenizer.special_tokens.items()}
    ends = sorted(tokenizer.markers.ends)
    begin = tokenizer.markers.begin
    return {
        "bos_token": "" if begin is None else names.get(begin, ""),
        "eos_token": names.get(ends[0], "") if ends else "",
    }


def _replace(text: str, words: dict[str, str]) -> str:
    for old, new in words.items():
        text = text.replace(old, new)
    return text
