"""Messages -> the ids of a prompt, by the model's own Jinja template or in a plain form.

Only the template may write control tokens. In messages they stay text: while the template runs, a
character that occurs nowhere else stands in for each of them.

A template is a program by whoever made the model. Jinja's sandbox keeps it away from everything
else, but lets it run for ever or fill the memory, so it runs in a process with limits
(`chat_sandbox.py`), which waits for the next chat.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import weakref
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock, Timer
from typing import Any

from trafo.errors import InputError, MissingPackageError
from trafo.generate import chat_sandbox
from trafo.tokenizer.tokenizer import Tokenizer

_PLAIN_NAMES = {"system": "System", "developer": "System", "user": "User", "assistant": "Assistant"}
_PLAIN_STOPS = ("\nUser:", "\nSystem:")
"""where a model would continue with the next person's message"""
_SECONDS = 10.0
_STAND_INS = range(0xF0000, 0x10FFFE)  # for private use: no filter of a template changes them

Chat = Sequence[Mapping[str, str]]
"""messages, each with a `role` and its `content`"""


@dataclass(frozen=True)
class ChatTemplate:
    """How a chat is written: one line per message, or as a template says."""

    source: str | None = None
    """Jinja; None is the plain form"""
    stop: tuple[str, ...] = _PLAIN_STOPS
    """strings that end an answer"""
    tokens: Mapping[str, str] = field(default_factory=dict)
    """`bos_token` and others, by the names that templates have for them"""
    _sandbox: _Sandbox = field(default_factory=lambda: _Sandbox(), repr=False, compare=False)

    @classmethod
    def of(cls, tokenizer: Tokenizer) -> ChatTemplate:
        """The template of a model; the plain form if it has none."""
        if tokenizer.spec.chat_template is None:
            return cls()
        return cls(tokenizer.spec.chat_template, (), tokenizer.spec.chat_tokens)

    def encode(self, tokenizer: Tokenizer, messages: Chat) -> list[int]:
        """The ids of a chat, up to where the assistant answers.

        As in transformers, a template itself writes the begin token, or wants none.
        """
        hidden = tokenizer.hidden
        controls = {token: i for token, i in tokenizer.special_tokens.items() if i in hidden}
        longest_first = sorted(controls, key=len, reverse=True)
        text = "".join(message["content"] for message in messages)
        known = {*text, *(self.source or "")}
        free = (chr(code) for code in _STAND_INS if chr(code) not in known)
        stand_ins = {token: next(free) for token in longest_first if token in text}
        chat = [{**each, "content": _replace(each["content"], stand_ins)} for each in messages]
        rendered = self._write(chat, {**_token_names(tokenizer), **self.tokens})
        originals = {character: token for token, character in stand_ins.items()}
        any_control = "|".join(map(re.escape, longest_first))
        ids: list[int] = []
        for part in re.split(f"({any_control})", rendered) if controls else [rendered]:
            if part in controls:
                ids.append(controls[part])
            elif part:
                ids += tokenizer.encode(_replace(part, originals), "ignore")
        begin = tokenizer.begin
        return [begin, *ids] if self.source is None and begin is not None else ids

    def _write(self, messages: Chat, tokens: Mapping[str, str]) -> str:
        if self.source is None:
            lines = [f"{_PLAIN_NAMES[each['role']]}: {each['content']}\n" for each in messages]
            return "".join([*lines, "Assistant:"])
        if "developer" not in self.source:  # OpenAI's newer name for it
            messages = [
                {**each, "role": "system" if each["role"] == "developer" else each["role"]}
                for each in messages
            ]
        variables = {"tools": None, "documents": None, "add_generation_prompt": True}
        return self._sandbox.render(self.source, {"messages": messages, **variables, **tokens})


def _token_names(tokenizer: Tokenizer) -> dict[str, str]:
    """For models whose files do not name them."""
    names = {i: name for name, i in tokenizer.special_tokens.items()}
    begin, end = tokenizer.begin, min(tokenizer.ends, default=-1)
    return {
        "bos_token": "" if begin is None else names.get(begin, ""),
        "eos_token": names.get(end, ""),
    }


def _replace(text: str, words: Mapping[str, str]) -> str:
    for old, new in words.items():
        text = text.replace(old, new)
    return text


class _Sandbox:
    """The process that renders, from the first chat on."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._is_over_limit = False

    def render(self, source: str, variables: Mapping[str, Any]) -> str:
        """The text that the template makes of the variables."""
        request = json.dumps({"source": source, "variables": variables}).encode() + b"\n"
        with self._lock:
            answer = b"" if self._is_over_limit else self._ask(request)
            if not answer:  # once is enough: nobody else shall wait for this template
                self._is_over_limit = True
                what = f"the model's chat template takes more than {_SECONDS:g} s"
                raise InputError(what, hint="give a plain prompt instead of messages")
        found = json.loads(answer)
        if "missing" in found:
            hint = "pip install 'trafo[train]'"
            raise MissingPackageError("chat templates need the package jinja2", hint=hint)
        if "text" not in found:
            what = " ".join(str(found["error"]).split())[:300]
            raise InputError(f"the model's chat template refuses these messages: {what}")
        return str(found["text"])

    def _ask(self, request: bytes) -> bytes:
        """One line for another; nothing if the process had to be ended or died."""
        process = self._process
        if process is None or process.poll() is not None:
            process = self._process = subprocess.Popen(
                [sys.executable, "-P", str(Path(chat_sandbox.__file__))],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
            )
            weakref.finalize(self, _end, process)
        assert process.stdin is not None
        assert process.stdout is not None
        timer = Timer(_SECONDS, process.kill)
        timer.start()
        try:
            with suppress(BrokenPipeError):
                process.stdin.write(request)
                process.stdin.flush()
            return process.stdout.readline()
        finally:
            timer.cancel()


def _end(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    with suppress(OSError), process:
        pass
