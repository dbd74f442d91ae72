"""A token's replayed merges against the reference encoder."""

import itertools

from hypothesis import given
from hypothesis import strategies as st

from trafo.serve.inside.histories import rank_merges, replay_merges
from trafo.tokenizer.reference import encode_reference


def test_every_token_is_made_by_its_merges(tokenizer):
    ranks = rank_merges(tokenizer)
    special = set(tokenizer.special_tokens.values())
    for token_id, token in tokenizer.vocab.items():
        if token_id in special:
            continue
        steps = replay_merges(token, ranks)
        assert len(steps) == len(token)  # each step joins two
        assert steps[-1]["parts"] == [token.decode("latin-1")]
        for before, after in itertools.pairwise(steps):
            left, right = tokenizer.merges[after["rank"]]
            at = after["at"]
            joined = [left.decode("latin-1"), right.decode("latin-1")]
            assert before["parts"][at : at + 2] == joined


@given(word=st.text("thecatsamonei", min_size=1, max_size=14))
def test_a_words_last_step_is_what_the_encoder_gives(tokenizer, word):
    parts = replay_merges(word.encode(), rank_merges(tokenizer))[-1]["parts"]
    ids = encode_reference(word, tokenizer.vocab, tokenizer.merges)
    assert parts == [tokenizer.vocab[i].decode("latin-1") for i in ids]
