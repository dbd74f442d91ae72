"""The models that translate: `encode` reads a source, `hidden_states` and `logits` write a target.

Both also `decode` with a cache from `make_cache`, whose `reorder` beam search needs.
"""

from trafo.models.encoder_decoder import EncoderDecoder
from trafo.models.recurrent import RecurrentEncoderDecoder

Translator = EncoderDecoder | RecurrentEncoderDecoder
