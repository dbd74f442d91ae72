"""BLEU and chrF: by hand, and equal to sacreBLEU."""

import math
import random
import re

import pytest
import sacrebleu
from hypothesis import given, settings
from hypothesis import strategies as st
from sacrebleu.significance import PairedTest
from tests.shared import shared

from trafo.errors import InputError
from trafo.evaluate.bleu import Bleu, words_13a
from trafo.evaluate.chrf import Chrf
from trafo.evaluate.corpus import corpus_score, paired_bootstrap

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


def assert_equal_to_sacrebleu(hypotheses, references, *, lowercase, tokenize):
    ours = Bleu(lowercase, tokenize)
    theirs = sacrebleu.BLEU(lowercase=lowercase, tokenize=tokenize, force=True)
    expected = theirs.corpus_score(hypotheses, references).score
    assert corpus_score(ours, hypotheses, references) == pytest.approx(expected, rel=1e-12)
    assert without_version(ours.signature(len(references))) == without_version(
        theirs.get_signature().format()
    )
    peer = sacrebleu.CHRF(lowercase=lowercase)
    expected = peer.corpus_score(hypotheses, references).score
    assert corpus_score(Chrf(lowercase), hypotheses, references) == pytest.approx(
        expected, rel=1e-12
    )
    assert without_version(Chrf(lowercase).signature(len(references))) == without_version(
        peer.get_signature().format()
    )


def without_version(signature):
    return re.sub(r"\|version:.*", "", signature)


def test_bleu_by_hand():
    # 5 of 6 words, 3 of 5 pairs, 2 of 4 triples, 1 of 3 quadruples; 6 words against 7.
    hypothesis, reference = "the cat sat on the mat", "the cat sat on a red mat"
    by_formula = math.exp(1 - 7 / 6) * (5 / 6 * 3 / 5 * 2 / 4 * 1 / 3) ** 0.25
    assert corpus_score(Bleu(), [hypothesis], [[reference]]) == pytest.approx(100 * by_formula)


def test_a_word_matches_as_often_as_a_reference_has_it():
    # The example of the paper: 2 of 7, not 7 of 7.
    matches = Bleu().statistics(
        "the the the the the the the", ["the cat is on the mat", "there is a cat on the mat"]
    )
    assert matches[2] == 2
    assert matches[6] == 7


def test_chrf_by_hand():
    # Without the space: abc against abd. 2 of 3 letters, 1 of 2 pairs, 0 of 1 triples.
    mean = (2 / 3 + 1 / 2 + 0) / 3
    assert corpus_score(Chrf(), ["a bc"], [["ab d"]]) == pytest.approx(100 * mean)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("It costs $1,000.50, or 3.5%!", "It costs $ 1,000.50 , or 3.5 % !"),
        ("pre-war 1914-18 don't", "pre-war 1914 - 18 don't"),
        ("a &quot;b&quot; &lt;c&gt;", 'a " b " < c >'),
    ],
)
def test_13a(text, words):
    assert words_13a(text) == words.split()


@given(
    st.lists(st.tuples(SENTENCES, SENTENCES, SENTENCES), min_size=1, max_size=5),
    st.integers(1, 2),
    st.booleans(),
    st.sampled_from(["13a", "none"]),
)
@settings(max_examples=300)
def test_generated_text(rows, num_references, lowercase, tokenize):
    hypotheses, *references = (list(column) for column in zip(*rows, strict=True))
    assert_equal_to_sacrebleu(
        hypotheses, references[:num_references], lowercase=lowercase, tokenize=tokenize
    )


@pytest.mark.parametrize("language", ["en", "de", "fr"])
def test_multi30k(language):
    references = lines(f"test_2016_flickr.{language}")
    hypotheses = perturbed(references, seed=1)
    assert_equal_to_sacrebleu(hypotheses, [references], lowercase=True, tokenize="13a")
    several = [references, perturbed(references, seed=2)]
    assert_equal_to_sacrebleu(hypotheses, several, lowercase=False, tokenize="none")


def test_paired_bootstrap_gives_sacrebleus_p_value():
    chance = random.Random(0)
    references = [" ".join(chance.choices("abcdefgh", k=12)) for _ in range(60)]
    ours, theirs = perturbed(references, seed=1), perturbed(references, seed=3)
    found = paired_bootstrap(Bleu(), ours, theirs, [references], resamples=200)
    _, scores = PairedTest(
        [("theirs", theirs), ("ours", ours)],
        {"BLEU": sacrebleu.BLEU()},
        references=[references],
        test_type="bs",
        n_samples=200,
    )()
    baseline, system = scores["BLEU"]
    assert found.scores == pytest.approx((system.score, baseline.score))
    assert found.means == pytest.approx((system.mean, baseline.mean), rel=1e-6)
    assert found.intervals == pytest.approx((system.ci, baseline.ci), rel=1e-4)
    assert found.p_value == system.p_value
    assert 0 < found.p_value < 1


def test_a_system_does_not_differ_from_itself():
    sentences = ["a b c d e", "f g h i j"]
    assert paired_bootstrap(Bleu(), sentences, sentences, [sentences]).p_value == 1 / 1001


def test_unequal_numbers_of_sentences_are_refused():
    with pytest.raises(InputError, match="2 hypotheses, but 1 reference sentences"):
        corpus_score(Bleu(), ["a", "b"], [["a"]])
