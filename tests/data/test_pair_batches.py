"""Sentence pairs as ids, and their batches."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trafo.data.pair_batches import EncodedPairs, PairSampler
from trafo.data.pair_tokenizer import PairTokenizer, Sentences, end_id
from trafo.data.prepare import DataConfig
from trafo.data.prepare_pairs import TranslationConfig, prepare_pairs
from trafo.errors import ConfigError

WORDS = ["ein", "hund", "rennt", "über", "die", "wiese", "und", "zwei", "männer", "lachen"]


def pairs_of(lengths, seed=0):
    chance = np.random.default_rng(seed)
    sides = zip(*lengths, strict=True)
    return EncodedPairs(*(Sentences.of([chance.integers(1, 9, n) for n in s]) for s in sides), 0)


LENGTHS = st.lists(st.tuples(st.integers(1, 9), st.integers(1, 9)), min_size=1, max_size=60)


@given(LENGTHS, st.integers(9, 40), st.integers(0, 5), st.integers(0, 3))
def test_an_epoch_has_every_pair_once(lengths, batch_tokens, seed, epoch):
    sampler = PairSampler(pairs_of(lengths), batch_tokens)
    steps = range(epoch * sampler.num_batches, (epoch + 1) * sampler.num_batches)
    rows = [sampler.rows(seed, step) for step in steps]
    assert sorted(np.concatenate(rows)) == list(range(len(lengths)))
    assert all(map(len, rows))
    tokens = [sum(lengths[row][1] for row in batch) for batch in rows]
    share = sum(tokens) / len(tokens)
    longest = max(target for _, target in lengths)
    assert all(abs(each - share) <= longest for each in tokens)


@given(LENGTHS, st.lists(st.integers(0, 20), min_size=1, max_size=8))
def test_a_batch_follows_from_seed_and_step_alone(lengths, steps):
    pairs = pairs_of(lengths)
    used = PairSampler(pairs, 12)
    for step in steps:
        fresh = PairSampler(pairs, 12)
        assert used.rows(step % 2, step).tolist() == fresh.rows(step % 2, step).tolist()


def test_seeds_and_epochs_differ():
    sampler = PairSampler(pairs_of([(5, 5)] * 40), 20)
    batches = [sampler.rows(seed, step).tolist() for seed in (0, 1) for step in (0, 10)]
    assert len(set(map(tuple, batches))) == 4


@given(LENGTHS, st.integers(0, 30), st.integers(1, 5))
@settings(max_examples=50)
def test_parts_make_up_the_batch(lengths, step, num_parts):
    sampler = PairSampler(pairs_of(lengths), 20)
    whole, num_targets = sampler.batch(0, step)
    parts = [sampler.batch(0, step, part, num_parts) for part in range(num_parts)]
    assert all(number == num_targets for _, number in parts)
    rows = [row for part, _ in parts for row in part.expected.tolist() if any(row)]
    assert sorted(stripped(row) for row in rows) == sorted(map(stripped, whole.expected.tolist()))
    assert sum(map(len, map(stripped, rows))) == num_targets


def stripped(row):
    return [i for i in row if i]


def test_targets_are_shifted_right_and_padded():
    pairs = EncodedPairs(Sentences.of([[1, 9], [2, 3, 9]]), Sentences.of([[4, 5, 8], [6, 8]]), 0)
    source, target, expected = pairs.batch(np.array([0, 1]))
    assert source.tolist() == [[1, 9, 0], [2, 3, 9]]
    assert target.tolist() == [[8, 4, 5], [8, 6, 0]]
    assert expected.tolist() == [[4, 5, 8], [6, 8, 0]]


def test_a_batch_holds_the_longest_sentence():
    with pytest.raises(ConfigError, match="batch_tokens is 8, the longest target has 9 tokens"):
        PairSampler(pairs_of([(1, 9)]), 8)


@pytest.fixture
def files(tmp_path):
    chance = np.random.default_rng(0)
    sentences = [" ".join(chance.choice(WORDS, chance.integers(2, 9))) for _ in range(40)]
    one, other = tmp_path / "t.en", tmp_path / "t.de"
    one.write_text("".join(f"{s.title()}\n" for s in sentences))
    other.write_text("".join(f"{s[::-1]}\n" for s in sentences))
    return [str(one), str(other)]


def prepared(files, tmp_path, config, sizes=(300, 300)):
    data = DataConfig(cache=tmp_path / "cache")
    return prepare_pairs(files, [], config, data, vocab_sizes=sizes, padding_id=0)


@pytest.mark.parametrize("joint", [True, False])
@pytest.mark.parametrize("lowercase", [True, False])
def test_text_to_ids_and_back(files, tmp_path, joint, lowercase):
    config = TranslationConfig(joint=joint, lowercase=lowercase)
    data = prepared(files, tmp_path, config, (300, 300 if joint else 290))
    assert len(data.training) == 36
    assert len(data.validation) == len(data.validation_pairs) == 4
    for side, encoded in (("source", data.validation.source), ("target", data.validation.target)):
        tokenizer = getattr(data.tokenizer, side)
        expected = [getattr(pair, side) for pair in data.validation_pairs]
        expected = [text.lower() if lowercase else text for text in expected]
        found = [tokenizer.decode(encoded[i]) for i in range(4)]
        assert found == [f" {text}<|endoftext|>" for text in expected]
    sentence = data.tokenizer.decode_target(data.validation.target[0].tolist())
    assert sentence == data.validation_pairs[0].target.lower()
    data.tokenizer.save(tmp_path / "saved")
    again = PairTokenizer.load(tmp_path / "saved")
    assert (again.is_joint, again.lowercase) == (joint, lowercase)
    assert again.source.hash == data.tokenizer.source.hash
    assert again.target.hash == data.tokenizer.target.hash
    assert again.target.vocab_size == (300 if joint else 290)


def test_special_tokens_in_a_sentence_are_text(files, tmp_path):
    tokenizer = prepared(files, tmp_path, TranslationConfig()).tokenizer
    ids = tokenizer.encode_source(["a <|endoftext|> b"])[0].tolist()
    assert ids.count(end_id(tokenizer.source)) == 1


def test_long_pairs_are_left_out_and_counted(files, tmp_path, capsys):
    whole = prepared(files, tmp_path, TranslationConfig())
    longest = np.maximum(whole.training.source.lengths, whole.training.target.lengths)
    limit = int(np.median(longest))
    data = prepared(files, tmp_path, TranslationConfig(max_tokens=limit))
    kept = longest <= limit
    assert len(data.training) == kept.sum() < 36
    first = np.flatnonzero(~kept)[0] + 1
    said = " ".join(capsys.readouterr().err.split())
    assert f"left out {(~kept).sum()} of 36 pairs to train on" in said
    assert f"the first is {files[0]} line {first}" in said


def test_a_joint_vocabulary_has_one_size(files, tmp_path):
    with pytest.raises(ConfigError, match="vocabularies have 300 and 301"):
        prepared(files, tmp_path, TranslationConfig(), (300, 301))
