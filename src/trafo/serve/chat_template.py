"""Messages -> the text of a prompt: by the model's own Jinja template, or by a plain one.

Special tokens come from the template alone. In what people write they stay text: while the template
runs, each is hidden behind a word that nobody could have guessed.
"""

from __future__ import annotations

from collections.abc import Sequence

from trafo.checkpoint.model_tokenizer import ModelTokenizer, markers_of
from trafo.serve.protocol import Message

_NAMES = {"system": "System", "developer": "System", "user": "User", "assistant": "Assistant"}

PLAIN_STOPS = ("\nUser:", "\nSystem:")
"""where the model would go on with somebody else's part"""


def plain_prompt(messages: Sequence[Message]) -> str:
    """A line for each message, then the assistant's turn."""
    lines = [f"{_NAMES[message.role]}: {message.text}" for message in messages]
    return "\n".join([*lines, "Assistant:"])


def encode_chat(tokenizer: ModelTokenizer, messages: Sequence[Message]) -> list[int]:
    """The ids of a chat, after the begin token if the model has one."""
    ids = tokenizer.encode(plain_prompt(messages), "ignore")
    begin = markers_of(tokenizer).begin
    return ids if begin is None else [begin, *ids]
