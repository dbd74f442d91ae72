"""Files become exactly the ids that their texts have, with their documents, in constant memory."""

import gzip
import json
import os
import random
import resource
import subprocess
import sys
from itertools import accumulate
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trafo.errors import InputError, StorageError
from trafo.tokenizer import encode_corpus as corpus_module
from trafo.tokenizer.encode_corpus import encode_files
from trafo.tokenizer.reference import encode_reference, split_specials, train_bpe_reference
from trafo.tokenizer.token_file import TokenFile, documents_path, manifest_path
from trafo.tokenizer.token_writer import TokenWriter
from trafo.tokenizer.tokenizer import Tokenizer

END = "<|endoftext|>"
PAD = "<|pad|>"
TEXTS = ["Hello there, you're low.", "newest 中文 😀 wider\n\n  lower", "", "a", "it's 12345  éé "]
TRAINED_ON = " ".join(TEXTS * 3) + " low lower newest widest" * 5
VOCAB, MERGES = train_bpe_reference(TRAINED_ON, 300, [])
END_ID, PAD_ID = 300, 301


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return Tokenizer(VOCAB, MERGES, [END, PAD])


def reference(text: str, special_tokens: list[str]) -> list[int]:
    """Ids by the plain algorithm; special tokens that are not looked for keep their ids."""
    vocab = VOCAB | {END_ID: END.encode(), PAD_ID: PAD.encode()}
    return encode_reference(text, vocab, MERGES, special_tokens)


def write(path: Path, data: str | bytes) -> Path:
    path.write_bytes(data.encode() if isinstance(data, str) else data)
    return path


def jsonl(texts: list[str]) -> bytes:
    return b"".join(json.dumps({"text": text}).encode() + b"\n" for text in texts)


def ends_of(documents: list[list[int]]) -> list[int]:
    """Where documents end; empty ones do not count."""
    return list(accumulate(len(ids) for ids in documents if ids))


def check(tokens: TokenFile, documents: list[list[int]]) -> None:
    assert tokens.ids.tolist() == [token_id for ids in documents for token_id in ids]
    assert tokens.document_ends.tolist() == ends_of(documents)
    assert tokens.manifest.num_documents == len(tokens.document_ends)


PIECES = st.one_of(st.sampled_from([*TEXTS, END, END, PAD, " ", "\n"]), st.text(max_size=10))


@settings(deadline=None, max_examples=60)
@given(
    text=st.lists(PIECES, max_size=20).map("".join),
    chunk=st.sampled_from([1, 7, 50, 1 << 20]),
    num_workers=st.integers(1, 3),
)
def test_ids_and_documents_of_one_text(
    text: str,
    chunk: int,
    num_workers: int,
    tokenizer: Tokenizer,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    folder = tmp_path_factory.mktemp("one")
    path = write(folder / "a.txt", text)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(corpus_module, "_CHUNK", chunk)
        tokens = encode_files(tokenizer, path, folder / "out", num_workers=num_workers)
    documents, rest = [], text
    while rest:  # a document goes up to and with its end token
        document, end, rest = rest.partition(END)
        documents.append(reference(document + end, [END, PAD]))
    check(tokens, documents)
    assert tokens.manifest.num_bytes == len(text.encode())


@pytest.mark.parametrize("num_workers", [1, 3])
@pytest.mark.parametrize("chunk", [13, 200, 2 << 20])
@pytest.mark.parametrize("form", ["txt", "txt.gz", "jsonl"])
def test_several_files(
    tmp_path: Path,
    tokenizer: Tokenizer,
    monkeypatch: pytest.MonkeyPatch,
    form: str,
    chunk: int,
    num_workers: int,
) -> None:
    monkeypatch.setattr(corpus_module, "_CHUNK", chunk)
    folder = tmp_path / "in"
    folder.mkdir()
    documents = []
    for i in range(5):
        texts = [text * i for text in TEXTS]
        data = jsonl(texts) if form == "jsonl" else "".join(texts).encode()
        write(folder / f"{i}.{form}", gzip.compress(data) if form == "txt.gz" else data)
        documents += texts if form == "jsonl" else ["".join(texts)]
    tokens = encode_files(tokenizer, folder, tmp_path / "out", num_workers=num_workers)
    check(tokens, [reference(document, []) for document in documents])


@pytest.mark.parametrize("chunk", [13, 2 << 20])
@pytest.mark.parametrize("end", [END, PAD])
def test_an_end_token_behind_each_file_and_record(
    tmp_path: Path, tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch, chunk: int, end: str
) -> None:
    monkeypatch.setattr(corpus_module, "_CHUNK", chunk)
    records = [*TEXTS, "", f"x{END}y", ""]
    paths = [
        write(tmp_path / "a.jsonl", jsonl(records)),
        write(tmp_path / "b.txt", "plain text"),
        write(tmp_path / "c.txt", f"two{END}in one"),
    ]
    tokens = encode_files(tokenizer, paths, tmp_path / "out", end_of_document=end)
    end_id = tokenizer.special_tokens[end]
    texts = [*records, "plain text", f"two{END}in one"]
    ids = [i for text in texts for i in [*reference(text, [END, PAD]), end_id]]
    assert tokens.ids.tolist() == ids
    # Each end token ends a document; so does `<|endoftext|>` in a text.
    enders = {end_id, tokenizer.special_tokens[END]}
    places = [i + 1 for i, token_id in enumerate(ids) if token_id in enders]
    assert tokens.document_ends.tolist() == places


def test_records_do_not_join_to_a_special_token(tmp_path: Path, tokenizer: Tokenizer) -> None:
    """Nor to a word: each is encoded as if it stood alone."""
    texts = ["<|endof", "text|>", "lo", "wer", f"a{END}", "b"]
    path = write(tmp_path / "a.jsonl", jsonl(texts))
    tokens = encode_files(tokenizer, path, tmp_path / "out")
    check(tokens, [reference(text, [END]) for text in texts])


def test_an_end_token_that_the_tokenizer_lacks(tmp_path: Path, tokenizer: Tokenizer) -> None:
    path = write(tmp_path / "a.txt", "x")
    with pytest.raises(InputError, match=r"no special token '<\|x\|>'.*it has '<\|endoftext\|>'"):
        encode_files(tokenizer, path, tmp_path / "out", end_of_document="<|x|>")


def test_special_tokens_in_untrusted_text(tmp_path: Path, tokenizer: Tokenizer) -> None:
    text = f"one{END}two{PAD}"
    path = write(tmp_path / "in.txt", text)
    ignored = encode_files(tokenizer, path, tmp_path / "out", special="ignore")
    check(ignored, [reference(text, [])])
    with pytest.raises(InputError, match=r"in\.txt: .*special token '<\|endoftext\|>'"):
        encode_files(tokenizer, path, tmp_path / "out", special="refuse")
    assert TokenFile.open(tmp_path / "out").ids.tolist() == reference(text, [])
    write(path, "quite harmless")
    refused = encode_files(tokenizer, path, tmp_path / "out", special="refuse")
    check(refused, [reference("quite harmless", [])])
    marked = encode_files(tokenizer, path, tmp_path / "out", special="refuse", end_of_document=END)
    check(marked, [[*reference("quite harmless", []), END_ID]])


def test_ids_beyond_16_bits(tmp_path: Path) -> None:
    vocab = VOCAB | {70_000: END.encode()}
    tokenizer = Tokenizer(vocab, MERGES, [END])
    path = write(tmp_path / "a.txt", f"lower{END}newest")
    tokens = encode_files(tokenizer, path, tmp_path / "out")
    assert tokens.manifest.dtype == tokens.ids.dtype.name == "uint32"
    assert tokens.ids.tolist() == encode_reference(path.read_text(), vocab, MERGES, [END])
    assert 70_000 in tokens.ids


def test_the_manifest(tmp_path: Path, tokenizer: Tokenizer) -> None:
    path = write(tmp_path / "a.txt", "é low" + END + "x")
    tokens = encode_files(tokenizer, path, tmp_path / "out")
    manifest = tokens.manifest
    assert manifest.tokenizer_hash == tokenizer.hash
    assert manifest.vocab_size == 302
    assert manifest.dtype == "uint16"
    assert manifest.num_tokens == len(reference("é low" + END + "x", [END]))
    assert manifest.num_bytes == path.stat().st_size
    assert manifest.num_documents == 2
    other = Tokenizer(VOCAB, MERGES[:-1], [END, PAD])
    with pytest.raises(InputError, match="another tokenizer"):
        TokenFile.open(tmp_path / "out", other.hash)


def test_text_that_is_not_utf8(tmp_path: Path, tokenizer: Tokenizer) -> None:
    data = b"good text " * 30 + b"caf\xe9 \xe4\xb8 end\xf0\x9f"
    path = write(tmp_path / "bad.txt", data)
    with pytest.raises(InputError, match=r"bad\.txt: not UTF-8: byte 0xe9 at offset 303"):
        encode_files(tokenizer, path, tmp_path / "out")
    assert not (tmp_path / "out").exists()
    tokens = encode_files(tokenizer, path, tmp_path / "out", errors="replace")
    check(tokens, [reference(data.decode(errors="replace"), [])])


def test_no_text_at_all(tmp_path: Path, tokenizer: Tokenizer) -> None:
    tokens = encode_files(tokenizer, write(tmp_path / "a.txt", ""), tmp_path / "out")
    check(tokens, [])


def test_a_finished_file_is_left_alone(
    tmp_path: Path, tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write(tmp_path / "a.txt", "some text")
    out = tmp_path / "out"
    encode_files(tokenizer, path, out)
    before = {each: each.stat() for each in (out, documents_path(out), manifest_path(out))}
    with monkeypatch.context() as patch:
        patch.setattr("trafo.tokenizer.inputs.read_file", None)
        patch.setattr("trafo.tokenizer.chunks.read_range", None)
        tokens = encode_files(tokenizer, path, out)
    assert tokens.ids.tolist() == reference("some text", [])
    assert {each: each.stat().st_mtime_ns for each in before} == {
        each: stat.st_mtime_ns for each, stat in before.items()
    }
    assert {each: each.stat().st_ino for each in before} == {
        each: stat.st_ino for each, stat in before.items()
    }


@pytest.mark.parametrize("change", ["text", "tokenizer", "special", "damage", "documents"])
def test_another_or_a_damaged_file_is_made_again(
    tmp_path: Path, tokenizer: Tokenizer, change: str
) -> None:
    text = f"some text{END}more"
    path, out = write(tmp_path / "a.txt", text), tmp_path / "out"
    encode_files(tokenizer, path, out)
    special = [END]
    if change == "text":
        text = "lower text, and longer than it was"
        path.write_text(text)
    elif change == "damage":
        out.write_bytes(out.read_bytes()[:-2])
    elif change == "documents":
        documents_path(out).unlink()
    if change == "special":
        special = []
    if change == "tokenizer":
        tokenizer = Tokenizer(VOCAB, MERGES[:-1], [END, PAD])
    tokens = encode_files(tokenizer, path, out, special="allow" if special else "ignore")
    if change == "tokenizer":
        assert tokens.manifest.tokenizer_hash == tokenizer.hash
    else:
        documents = [piece for piece in split_specials(text, special) if piece != END]
        assert tokens.ids.tolist() == reference(text, special)
        assert len(tokens.document_ends) == len(documents)


# What the system may refuse


@pytest.mark.parametrize("out", ["a.txt/out", "folder"])
def test_a_place_that_cannot_be_written(tmp_path: Path, tokenizer: Tokenizer, out: str) -> None:
    path = write(tmp_path / "a.txt", "text")
    (tmp_path / "folder").mkdir()
    with pytest.raises(StorageError, match=out):
        encode_files(tokenizer, path, tmp_path / out)
    assert not list((tmp_path / "folder").iterdir())
    assert not list(tmp_path.glob(".*"))
    assert path.read_text() == "text"


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_without_permission(tmp_path: Path, tokenizer: Tokenizer) -> None:
    path = write(tmp_path / "a.txt", "text")
    (tmp_path / "closed").mkdir(mode=0o500)
    with pytest.raises(StorageError, match="permission denied"):
        encode_files(tokenizer, path, tmp_path / "closed" / "out")


def test_a_permission_denied_is_a_storage_error(
    tmp_path: Path, tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As root sees it: no folder is closed to it, so the system's answer is made up."""

    def denied(path: Path, *_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied", str(path))

    path = write(tmp_path / "a.txt", "text")
    monkeypatch.setattr(Path, "touch", denied)
    with pytest.raises(StorageError, match=r"out: permission denied.*check the permissions"):
        encode_files(tokenizer, path, tmp_path / "out")


def test_a_full_disk_keeps_the_old_file(tmp_path: Path, tokenizer: Tokenizer) -> None:
    small = write(tmp_path / "small.txt", "some old text")
    large = write(tmp_path / "large.txt", "abcdefghijklmnop qrstuvwxyz " * 20_000)
    out = tmp_path / "out"
    encode_files(tokenizer, small, out)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, limits[1]))
    try:
        with pytest.raises(StorageError, match=r"out: file too large while writing.*run again"):
            encode_files(tokenizer, large, out)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    check(TokenFile.open(out), [reference("some old text", [])])
    tokens = encode_files(tokenizer, large, out)
    assert tokens.ids.tolist() == tokenizer.encode(large.read_text())
    assert sorted(each.name for each in tmp_path.glob("*out*")) == [
        "out",
        "out.documents",
        "out.json",
    ]


def test_a_disk_that_is_really_full(tmp_path: Path, small_disk: Path, tokenizer: Tokenizer) -> None:
    text = "abcdefghijklmnop qrstuvwxyz " * 15_000
    path = write(tmp_path / "a.txt", text)
    (small_disk / "rubbish").write_bytes(bytes(700_000))
    with pytest.raises(StorageError, match=r"no space left on device while writing.*run again"):
        encode_files(tokenizer, path, small_disk / "out")
    assert not (small_disk / "out").exists()
    assert not manifest_path(small_disk / "out").exists()
    (small_disk / "rubbish").unlink()
    tokens = encode_files(tokenizer, path, small_disk / "out")
    assert tokens.ids.tolist() == tokenizer.encode(text)


def test_two_runs_at_once_do_not_mix(tmp_path: Path, tokenizer: Tokenizer) -> None:
    path = write(tmp_path / "a.txt", "some text")
    other = TokenWriter(tmp_path / "out", "0" * 64, 300, {})
    with other, pytest.raises(StorageError, match="another process"):
        encode_files(tokenizer, path, tmp_path / "out")
    check(encode_files(tokenizer, path, tmp_path / "out"), [reference("some text", [])])


# Memory

MEASURE = """
import sys
from pathlib import Path
from trafo.runtime.machine import peak_memory
from trafo.tokenizer import encode_corpus as corpus
from trafo.tokenizer.tokenizer import Tokenizer

folder = Path(sys.argv[1])
tokenizer = Tokenizer.load(folder / "tokenizer")
corpus._CHUNK = 1 << 18  # so that even the small text has many
peaks = []
for name in ("warm", "small", "large"):
    corpus.encode_files(tokenizer, folder / f"{name}.txt", folder / f"{name}.tokens", num_workers=2)
    peaks.append(peak_memory())
print(*peaks)
"""


def test_memory_does_not_grow_with_the_text(tmp_path: Path, tokenizer: Tokenizer) -> None:
    rng = random.Random(0)
    words = ["".join(rng.choices("etaoinshrdlu", k=rng.randint(2, 9))) for _ in range(20_000)]
    text = " ".join(rng.choices(words, k=2_400_000))  # some 16 MB
    for name, size in (("warm", 1 << 20), ("small", len(text) // 4), ("large", len(text))):
        write(tmp_path / f"{name}.txt", text[:size])
    tokenizer.save(tmp_path / "tokenizer")
    run = subprocess.run(
        [sys.executable, "-c", MEASURE, str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    _, small, large = map(int, run.stdout.split())
    ids = np.memmap(tmp_path / "large.tokens", "<u2")
    assert ids.nbytes > 12 << 20  # holding all ids would be seen
    assert large - small < 6 << 20
