"""The adapters of the tokenizer, each called as the public suite calls it."""

from pathlib import Path

from trafo.tokenizer.reference import encode_reference, train_bpe_reference

TEXT = "low low low low low lower lower widest widest widest newest newest\n\n<|endoftext|> 日本 🙃"
SPECIALS = ["<|endoftext|>", "<|endoftext|><|endoftext|>"]


def test_train(adapters, tmp_path: Path) -> None:
    path = tmp_path / "corpus.txt"
    path.write_text(TEXT, encoding="utf-8")
    vocab, merges = adapters.run_train_bpe(
        input_path=path, vocab_size=270, special_tokens=["<|endoftext|>"]
    )
    expected_vocab, expected_merges = train_bpe_reference(TEXT, 270, ["<|endoftext|>"])
    assert merges == expected_merges
    assert vocab == expected_vocab
    # The suite compares vocabularies as sets, and looks for special tokens inside others.
    assert set(vocab.values()) == set(expected_vocab.values())
    assert not any(b"<|" in token for token in vocab.values() if token != b"<|endoftext|>")


def test_tokenizer(adapters, tmp_path: Path) -> None:
    vocab, merges = train_bpe_reference(TEXT, 280, SPECIALS)
    tokenizer = adapters.get_tokenizer(vocab=vocab, merges=merges, special_tokens=SPECIALS)
    text = "newest 🙃<|endoftext|><|endoftext|> wider<|endoftext|>\n\n日本語"
    ids = encode_reference(text, vocab, merges, SPECIALS)
    assert tokenizer.encode(text) == ids
    assert tokenizer.decode(ids) == text
    path = tmp_path / "text.txt"
    path.write_text(text, encoding="utf-8")
    with path.open(encoding="utf-8") as file:
        assert list(tokenizer.encode_iterable(file)) == ids


def test_without_special_tokens(adapters) -> None:
    vocab, merges = train_bpe_reference(TEXT, 280, [])
    tokenizer = adapters.get_tokenizer(vocab, merges)
    assert tokenizer.encode("") == []
    ids = tokenizer.encode("<|endoftext|>🙃")
    assert ids == encode_reference("<|endoftext|>🙃", vocab, merges)
    assert b"".join(vocab[i] for i in ids) == "<|endoftext|>🙃".encode()
