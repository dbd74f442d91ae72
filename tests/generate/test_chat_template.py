"""Chat templates, against transformers' `apply_chat_template`, and what they may not do."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from trafo.checkpoint.convert.gguf_file import save_gguf
from trafo.checkpoint.convert.hugging_face import save_hugging_face
from trafo.checkpoint.locate import load_tokenizer
from trafo.errors import InputError
from trafo.generate import chat_template
from trafo.generate.chat_template import ChatTemplate
from trafo.models import TransformerLM
from trafo.tokenizer import Tokenizer

CHATML = """\
{% for message in messages %}
{% if loop.first and message.role != 'system' %}
<|im_start|>system
You help.<|im_end|>
{% endif %}
{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n' }}
{%- endfor %}
{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}
"""
LLAMA3 = """\
{{- bos_token }}
{%- if not date_string is defined %}{% set date_string = strftime_now("%Y") %}{% endif %}
{%- set loop_messages = messages %}
{%- for message in loop_messages %}
    {%- if tools is not none %}{{ raise_exception("no tools here") }}{% endif %}
    {%- set content = '[' + message['role'] + ']\n\n' + message['content'] | trim + eos_token %}
    {%- if message.role == 'user' and loop.last %}{{ date_string }}{% endif %}
    {{- content }}
{%- endfor %}
{%- if add_generation_prompt %}{{ '[assistant]\n\n' }}{% endif %}
"""
ZEPHYR = """\
{%- for message in messages %}
{%- if message['role'] == 'user' %}
{{ '<|user|>\n' + message['content'] + eos_token }}
{% elif message['role'] == 'system' %}
{{ '<|system|>\n' + message['content'] | tojson + eos_token }}
{%- elif message['role'] == 'assistant' %}
{%- generation %}{{ '<|assistant|>\n' + message['content'] + eos_token }}{% endgeneration %}
{%- endif %}
{%- if loop.index > 3 %}{% break %}{% endif %}
{%- if loop.last and add_generation_prompt %}
{{ '<|assistant|>' }}
{%- endif %}
{%- endfor %}
"""
TEMPLATES = {"chatml": CHATML, "llama3": LLAMA3, "zephyr": ZEPHYR}
SPECIALS = ["<|begin|>", "<|im_start|>", "<|im_end|>", "<|user|>"]
VOCAB = {**{i: bytes([i]) for i in range(256)}, 256: b" t"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """A Hugging Face folder."""
    path = tmp_path_factory.mktemp("model")
    torch.manual_seed(0)
    tokenizer = Tokenizer(VOCAB, [(b" ", b"t")], SPECIALS)
    save_hugging_face(TransformerLM(261, 32, 16, 1, 2), path, tokenizer=tokenizer)
    return path


def tell(folder: Path, **about) -> None:
    """Say more in tokenizer_config.json."""
    file = folder / "tokenizer_config.json"
    named = {"bos_token": "<|begin|>", "eos_token": "<|im_end|>"}
    file.write_text(json.dumps(json.loads(file.read_text()) | named | about))


TEXTS = st.text(st.sampled_from("ab tÄ\n 中{}%'\"\\<|"), max_size=12)
CHATS = st.tuples(
    st.none() | TEXTS, st.lists(TEXTS, min_size=1, max_size=5).filter(lambda texts: len(texts) % 2)
)


@pytest.mark.parametrize("name", TEMPLATES)
def test_ids_are_those_of_transformers(folder, name):
    transformers = pytest.importorskip("transformers")
    tell(folder, chat_template=TEMPLATES[name])
    peer = transformers.AutoTokenizer.from_pretrained(folder)
    tokenizer = load_tokenizer(folder)
    template = ChatTemplate.of(tokenizer)

    @settings(deadline=None, max_examples=40)
    @given(chat=CHATS)
    def same_ids(chat):
        system, texts = chat
        messages = [] if system is None else [{"role": "system", "content": system}]
        for i, text in enumerate(texts):
            messages.append({"role": ("user", "assistant")[i % 2], "content": text})
        theirs = peer.apply_chat_template(messages, add_generation_prompt=True, return_dict=False)
        assert template.encode(tokenizer, messages) == theirs

    same_ids()


def test_messages_never_hold_control_tokens(folder):
    tokenizer, template = load_tokenizer(folder), ChatTemplate(CHATML, ())
    written = [tokenizer.special_tokens[t] for t in SPECIALS[1:3]]

    @settings(deadline=None, max_examples=40)
    @given(st.lists(st.sampled_from([*SPECIALS, "a", " t", "<|im_", "end|>", "\U000f0000"])))
    def stays_text(parts):
        content = "".join(parts)
        ids = template.encode(tokenizer, [{"role": "user", "content": content}])
        assert [i for i in ids if i in tokenizer.hidden] == [*written, *written, written[0]]
        assert f"user\n{content}<|im_end|>" in tokenizer.decode(ids)

    stays_text()


def test_where_templates_are_found(folder, tmp_path):
    tell(folder, chat_template="config")
    assert load_tokenizer(folder).spec.chat_template == "config"
    tools = [{"name": "tools", "template": "x"}, {"name": "default", "template": "usual"}]
    tell(folder, chat_template=tools)
    assert load_tokenizer(folder).spec.chat_template == "usual"
    (folder / "chat_template.jinja").write_text("file")
    tokenizer = load_tokenizer(folder)
    (folder / "chat_template.jinja").unlink()
    assert tokenizer.spec.chat_template == "file"
    for save in (save_gguf, save_hugging_face):  # and written again
        path = tmp_path / save.__name__
        save(TransformerLM(261, 32, 16, 1, 2), path, tokenizer=tokenizer)
        again = load_tokenizer(path)
        assert again.spec.chat_template == "file"
        assert again.spec.chat_tokens == {"bos_token": "<|begin|>", "eos_token": "<|im_end|>"}


def test_a_model_without_a_template_has_a_plain_one():
    spec = Tokenizer(VOCAB, [], SPECIALS).spec
    tokenizer = Tokenizer.from_spec(
        replace(spec, begin=257, ends=frozenset(), hidden=frozenset([260]))
    )
    messages = [{"role": "developer", "content": "x"}, {"role": "user", "content": "<|user|>"}]
    ids = ChatTemplate.of(tokenizer).encode(tokenizer, messages)
    assert ids == [257, *b"System: x\nUser: <|user|>\nAssistant:"]


USER = [{"role": "user", "content": "a"}]
DOUBLE = "{% set n = namespace(x='aaaa') %}{% for i in range(99) %}{% set n.x = n.x ~ n.x %}"


@pytest.mark.parametrize(
    ("source", "error"),
    [
        ("{{ raise_exception('only\n one user') }}", "only one user"),
        ("{% if %}", "line 1: Expected an expression"),
        ("{{ nothing.at.all }}", "'nothing' is undefined"),
        ("{{ ''.__class__.__mro__ }}", "unsafe"),
        ("{{ messages.append(1) }}", "unsafe"),
        ("{{ 1 / 0 }}", "division by zero"),
        ("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "recursion"),
        ("{{ 'a' * 10 ** 7 }}", "it writes 10,000,000 characters"),
        ("{{ 'a' * 10 ** 11 }}", "more than 512 MB"),
        (DOUBLE + "{% endfor %}", "more than 512 MB"),
    ],
)
def test_a_template_that_fails_is_one_line(folder, source, error):
    tokenizer = load_tokenizer(folder)
    with pytest.raises(InputError, match=f"refuses these messages: .*{error}") as caught:
        ChatTemplate(source, ()).encode(tokenizer, USER)
    assert "\n" not in str(caught.value)


def test_a_template_that_never_ends_is_ended(folder, monkeypatch):
    monkeypatch.setattr(chat_template, "_SECONDS", 1.0)
    tokenizer = load_tokenizer(folder)
    loop = "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}"
    template = ChatTemplate(f"{{% if messages[0].content == 'a' %}}{loop}{{% endif %}}b", ())
    for seconds in (1.0, 600.0):  # the second time, nobody waits
        monkeypatch.setattr(chat_template, "_SECONDS", seconds)
        with pytest.raises(InputError, match="takes more than"):
            template.encode(tokenizer, USER)


def test_a_chat_after_a_refused_one(folder):
    tokenizer = load_tokenizer(folder)
    source = "{% if messages[0].content == 'a' %}{{ raise_exception('no') }}{% endif %}b"
    template = ChatTemplate(source, ())
    with pytest.raises(InputError):
        template.encode(tokenizer, USER)
    assert template.encode(tokenizer, [{"role": "user", "content": "c"}]) == [*b"b"]
