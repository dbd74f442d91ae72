"""`trafo score` on small files."""

import gzip
import json

import pytest
import sacrebleu
import zstandard

from trafo.cli.main import main

HYPOTHESES = ["Ein Hund rennt.", "Zwei Männer, die lachen", "", "Eine Frau singt laut ein Lied."]
REFERENCES = ["Ein Hund läuft.", "Zwei Männer lachen.", "leer", "Eine Frau singt ein Lied."]


@pytest.fixture
def files(tmp_path):
    hypothesis, reference = tmp_path / "out.de.gz", tmp_path / "ref.de.zst"
    hypothesis.write_bytes(gzip.compress(as_bytes(HYPOTHESES)))
    reference.write_bytes(zstandard.compress(as_bytes(REFERENCES)))
    return hypothesis, reference


@pytest.fixture
def score(capfd):
    def run(*arguments):
        code = main(["score", *map(str, arguments)])
        out, err = capfd.readouterr()
        return code, out, err

    return run


def as_bytes(lines):
    return "".join(f"{line}\r\n" for line in lines).encode()


def test_json_has_what_sacrebleu_says(score, files):
    code, out, _ = score(*files, "--json", "--lowercase")
    facts = json.loads(out)
    assert code == 0
    bleu = sacrebleu.BLEU(lowercase=True).corpus_score(HYPOTHESES, [REFERENCES])
    chrf = sacrebleu.CHRF(lowercase=True).corpus_score(HYPOTHESES, [REFERENCES])
    assert facts["bleu"] == pytest.approx(bleu.score)
    assert facts["chrf"] == pytest.approx(chrf.score)
    assert facts["signature"].startswith("nrefs:1|case:lc|eff:no|tok:13a|smooth:exp|version:")


def test_the_table_has_the_same_digits(score, files):
    code, out, _ = score(*files, files[1], "--tokenize", "none")
    bleu = sacrebleu.BLEU(tokenize="none", force=True)
    expected = bleu.corpus_score(HYPOTHESES, [REFERENCES, REFERENCES])
    assert code == 0
    assert out.split()[:2] == ["BLEU", f"{expected.score:.2f}"]
    assert "nrefs:2|case:mixed|eff:no|tok:none" in out


def test_compare_tells_systems_apart(score, files, tmp_path):
    code, out, _ = score(*files, "--compare", files[1], "--json", "--resamples", 50)
    assert code == 0
    assert json.loads(out)["compared"]["bleu"] == pytest.approx(100)
    code, out, _ = score(*files, "--compare", files[1], "--resamples", 50)
    assert "100.00" in out


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "other.de: is empty; give a file with a sentence per line"),
        (b"one\ntwo\n", "other.de: has 2 lines, "),
        (b"one\ntw\xff\n", "other.de: line 2 is not UTF-8: byte 0xff"),
    ],
)
def test_what_is_wrong_and_where(score, files, tmp_path, content, message):
    other = tmp_path / "other.de"
    other.write_bytes(content)
    code, _, err = score(files[0], other)
    assert code == 2
    assert message in err
    assert err.count("\n") == 1


def test_a_reference_is_needed(score, files):
    code, _, err = score(files[0])
    assert code == 2
    assert "no reference translation; write trafo score HYP REF" in err
