"""BLEU and chrF: by hand, and the readable BLEU is equal to sacreBLEU's."""

import math
import random

import numpy as np
import pytest
import sacrebleu
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.shared import shared

from trafo.errors import InputError
from trafo.evaluate.bleu import corpus_bleu, split_13a
from trafo.evaluate.scores import compare_systems, score_bleu, score_chrf

SENTENCES = st.text(
    st.sampled_from("abAB 019.,-–!?'\"&;:<>()[]{}/@|~_äßÉ…。\t\u00a0")
    | st.characters(codec="utf-8"),
    max_size=30,
).map(lambda text: text.replace("\n", " "))


def lines(name):
    return shared(f"multi30k/{name}").read_text(encoding="utf-8").splitlines()


def perturbed(sentences, seed):
    """Words dropped, swapped and replaced, as a translation gone wrong."""
    chance = random.Random(seed)
    pool = " ".join(sentences).split()
    out = []
    for sentence in sentences:
        words = [w if chance.random() < 0.8 else chance.choice(pool) for w in sentence.split()]
        out.append(" ".join(w for w in words if chance.random() < 0.9))
    return out


def assert_equal_to_sacrebleu(hypotheses, references):
    expected = sacrebleu.BLEU(force=True).corpus_score(hypotheses, references).score
    assert corpus_bleu(hypotheses, references) == pytest.approx(expected, rel=1e-12)


def test_bleu_by_hand():
    # 5 of 6 words, 3 of 5 pairs, 2 of 4 triples, 1 of 3 quadruples; 6 words against 7.
    hypothesis, reference = "the cat sat on the mat", "the cat sat on a red mat"
    by_formula = math.exp(1 - 7 / 6) * (5 / 6 * 3 / 5 * 2 / 4 * 1 / 3) ** 0.25
    assert corpus_bleu([hypothesis], [[reference]]) == pytest.approx(100 * by_formula)
    assert score_bleu([hypothesis], [[reference]]).value == pytest.approx(100 * by_formula)


def test_a_word_matches_as_often_as_a_reference_has_it():
    # The example of the paper: 2 of 7 words, not 7 of 7; smoothed, 1/2, 1/4 and 1/8 of the others.
    references = [["the cat is on the mat"], ["there is a cat on the mat"]]
    by_formula = (2 / 7 * 1 / 2 / 6 * 1 / 4 / 5 * 1 / 8 / 4) ** 0.25
    found = corpus_bleu(["the the the the the the the"], references)
    assert found == pytest.approx(100 * by_formula)


def test_chrf_by_hand():
    # Without the space: abc against abd. 2 of 3 letters, 1 of 2 pairs, 0 of 1 triples.
    mean = (2 / 3 + 1 / 2 + 0) / 3
    assert score_chrf(["a bc"], [["ab d"]]).value == pytest.approx(100 * mean)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("It costs $1,000.50, or 3.5%!", "It costs $ 1,000.50 , or 3.5 % !"),
        ("pre-war 1914-18 don't", "pre-war 1914 - 18 don't"),
        ("a &quot;b&quot; &lt;c&gt;", 'a " b " < c >'),
    ],
)
def test_13a(text, words):
    assert split_13a(text) == words.split()


@given(
    st.lists(st.tuples(SENTENCES, SENTENCES, SENTENCES), min_size=1, max_size=5), st.integers(1, 2)
)
@settings(max_examples=300)
def test_generated_text(rows, num_references):
    hypotheses, *references = (list(column) for column in zip(*rows, strict=True))
    assert_equal_to_sacrebleu(hypotheses, references[:num_references])


@pytest.mark.parametrize("language", ["en", "de", "fr"])
def test_multi30k(language):
    references = lines(f"test_2016_flickr.{language}")
    hypotheses = perturbed(references, seed=1)
    assert_equal_to_sacrebleu(hypotheses, [references])
    assert_equal_to_sacrebleu(hypotheses, [references, perturbed(references, seed=2)])


def test_signatures_are_those_of_sacrebleu():
    texts = ["A b c d.", "E f"], [["a b c d.", "E f g"]]
    version = f"version:{sacrebleu.__version__}"
    found = score_bleu(*texts, lowercase=True, tokenize="none")
    assert found.signature == f"nrefs:1|case:lc|eff:no|tok:none|smooth:exp|{version}"
    assert found.value > score_bleu(*texts, tokenize="none").value
    chrf = score_chrf(*texts, lowercase=True)
    assert chrf.signature == f"nrefs:1|case:lc|eff:yes|nc:6|nw:0|space:no|{version}"


def test_the_p_value_is_the_share_of_resampled_corpora_that_differ_more():
    """Against a bootstrap of our own, on the corpora that sacreBLEU draws, with our BLEU."""
    chance = random.Random(0)
    references = [" ".join(chance.choices("abcdefgh", k=12)) for _ in range(60)]
    ours, theirs = perturbed(references, seed=1), perturbed(references, seed=3)
    rows = np.random.default_rng(12345).choice(60, size=(100, 60), replace=True)
    differences = []
    for drawn in rows:
        again = [[system[i] for i in drawn] for system in (ours, theirs, references)]
        differences.append(abs(corpus_bleu(again[0], again[2:]) - corpus_bleu(again[1], again[2:])))
    real = abs(corpus_bleu(ours, [references]) - corpus_bleu(theirs, [references]))
    larger = sum(each - np.mean(differences) > real for each in differences)
    found, other = compare_systems(ours, theirs, [references], resamples=100)["BLEU"]
    assert found.p_value == (larger + 1) / 101
    assert found.score == pytest.approx(corpus_bleu(ours, [references]))
    assert other.score == pytest.approx(corpus_bleu(theirs, [references]))


def test_a_system_does_not_differ_from_itself():
    sentences = ["a b c d e", "f g h i j"]
    for found, _ in compare_systems(sentences, sentences, [sentences]).values():
        assert found.p_value == 1 / 1001


def test_unequal_numbers_of_sentences_are_refused():
    for score in (score_bleu, score_chrf, lambda ours, refs: compare_systems(ours, ours, refs)):
        with pytest.raises(InputError, match="2 hypotheses, but 1 reference sentences"):
            score(["a", "b"], [["a"]])
