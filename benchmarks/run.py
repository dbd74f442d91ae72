"""All speed claims of the README, one after the other.

For nanoGPT as a peer of the models: `model_step.py --nanogpt PATH`.
"""

import model_step
import texts
import tokenizer_encode
import tokenizer_first_use
import tokenizer_train

if __name__ == "__main__":
    options = texts.arguments(__doc__ or "", megabytes=108)
    text = texts.text_bytes(options.text, options.megabytes)
    tokenizer_train.measure(text, options.rounds)
    tokenizer_encode.measure(text, options.rounds)
    tokenizer_first_use.measure()
    model_step.measure(options.rounds)
