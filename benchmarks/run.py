"""All speed claims of docs/benchmarks.md, one after the other.

nanoGPT is a peer of the models and of learning: `--nanogpt PATH` names a checkout of it.
"""

from pathlib import Path

import generation
import learning
import model_step
import texts
import tokenizer_encode
import tokenizer_first_use
import tokenizer_train
import training
import translation_ctranslate2
import translation_marian
import translation_step

if __name__ == "__main__":
    parser = texts.parser(__doc__ or "", megabytes=108)
    parser.add_argument("--nanogpt", type=Path, help="a checkout of karpathy/nanoGPT")
    options = parser.parse_args()
    text = texts.text_bytes(options.text, options.megabytes)
    tokenizer_train.measure(text, options.rounds)
    tokenizer_encode.measure(text, options.rounds)
    tokenizer_first_use.measure()
    model_step.measure(options.rounds, options.nanogpt)
    training.measure(options.rounds)
    generation.measure(options.rounds)
    translation_step.measure(options.rounds)
    translation_ctranslate2.measure(options.rounds)
    translation_marian.measure(options.rounds)
    learning.measure(options.nanogpt, rounds=1)
