"""Translation models: `encode` the source, `decode` the target.

`make_cache` gives `decode` a cache, whose `reorder` beam search needs.
"""

from trafo.models.encoder_decoder import EncoderDecoder
from trafo.models.recurrent import RecurrentEncoderDecoder

Translator = EncoderDecoder | RecurrentEncoderDecoder
