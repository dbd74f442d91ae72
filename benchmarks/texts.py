"""The text to measure on: a file given, the shared books, or Python's own sources."""

import argparse
import tempfile
from pathlib import Path

SHARED = Path(__file__).resolve().parents[2] / "shared/data"
END = b"<|endoftext|>"


def arguments(description: str, megabytes: int) -> argparse.Namespace:
    return parser(description, megabytes).parse_args()


def parser(description: str, megabytes: int) -> argparse.ArgumentParser:
    """--text, --megabytes and --rounds, which every script takes."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--text", type=Path, help="a UTF-8 text file (default: the shared books)")
    parser.add_argument("--megabytes", type=int, default=megabytes, help="repeat the text to this")
    parser.add_argument("--rounds", type=int, default=5)
    return parser


def text_bytes(path: Path | None, megabytes: int) -> bytes:
    """About so many megabytes of text; a shorter file is repeated, and that is said."""
    if path is None:
        path = SHARED / "text/books.txt"
    if path.exists():
        text = path.read_bytes()
    else:
        from trafo.data.corpora import build_corpus

        text = build_corpus(Path(tempfile.mkdtemp())).read_bytes()
        path = Path("the built-in corpus")
    wanted = megabytes * 1_000_000
    times = -(-wanted // len(text))
    if times > 1:
        print(f"text: {path.name}, {len(text) / 1e6:.1f} MB, repeated {times} times")
    else:
        print(f"text: {path.name}, the first {megabytes} MB")
    whole = (text + END) * times if times > 1 else text
    cut = whole.rfind(b" ", 0, wanted) if len(whole) > wanted else len(whole)
    return whole[:cut]
