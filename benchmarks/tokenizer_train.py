"""`train_bpe` on at least 100 MB of English, 10,000 tokens, against the trainers of others."""

import tempfile
from pathlib import Path

import gigatoken
import rustbpe
import tokenizers
from tokenizers import decoders, models, pre_tokenizers, trainers

import texts
from timing import Contenders, compare
from trafo.tokenizer.patterns import pattern_regex
from trafo.tokenizer.train import train_bpe

VOCAB_SIZE = 10_000
SPECIAL = "<|endoftext|>"


def contenders(path: Path) -> Contenders:
    def trafo() -> None:
        train_bpe(path, VOCAB_SIZE, [SPECIAL])

    def giga() -> None:
        source = gigatoken.TextFileSource([path], separator=SPECIAL.encode())
        gigatoken.train_bpe(source, VOCAB_SIZE, [SPECIAL], tie_breaking="assembled_bytes")

    def rust() -> None:
        documents = path.read_text().split(SPECIAL)
        trainer = rustbpe.Tokenizer()
        trainer.train_from_iterator(iter(documents), VOCAB_SIZE, pattern=pattern_regex("gpt2"))

    def hugging_face() -> None:
        tokenizer = tokenizers.Tokenizer(models.BPE())
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        tokenizer.decoder = decoders.ByteLevel()
        alphabet = pre_tokenizers.ByteLevel.alphabet()
        trainer = trainers.BpeTrainer(
            vocab_size=VOCAB_SIZE, special_tokens=[SPECIAL], initial_alphabet=alphabet
        )
        tokenizer.train([str(path)], trainer)

    return {
        "trafo": trafo,
        "gigatoken": giga,
        "rustbpe": rust,
        "Hugging Face tokenizers": hugging_face,
    }


def measure(text: bytes, rounds: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "text.txt"
        path.write_bytes(text)
        size = len(text) / 1e6
        everyone = contenders(path)
        fast = {name: everyone[name] for name in ("trafo", "gigatoken")}
        slow = {name: run for name, run in everyone.items() if name != "gigatoken"}
        what = f"train_bpe, {size:.0f} MB, {VOCAB_SIZE:,} tokens"
        compare(what, fast, amount=size, unit="MB", rounds=rounds)
        compare(what, slow, amount=size, unit="MB", rounds=max(1, rounds // 2), warm_up=False)


if __name__ == "__main__":
    options = texts.arguments(__doc__ or "", megabytes=108)
    measure(texts.text_bytes(options.text, options.megabytes), options.rounds)
