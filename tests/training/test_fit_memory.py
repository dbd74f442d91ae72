"""What fits into memory is decided by accounting, or, for small models, by a bound from above."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trafo.models import GPT2Config, TransformerLMConfig
from trafo.training.config import TrainConfig
from trafo.training.fit_memory import most_bytes, needed_bytes, require_memory

SHAPES = st.fixed_dictionaries(
    {
        "vocab_size": st.integers(2, 2000),
        "context_length": st.integers(1, 64),
        "d_model": st.sampled_from([8, 24, 64]),
        "num_layers": st.integers(1, 4),
        "num_heads": st.sampled_from([1, 2, 4]),
        "d_ff": st.integers(8, 300),
        "dropout": st.sampled_from([0.0, 0.1]),
    }
)


@settings(max_examples=10)
@given(shape=SHAPES, rows=st.integers(1, 16), is_gpt2=st.booleans())
def test_the_bound_is_above_what_is_counted(shape, rows: int, is_gpt2: bool) -> None:
    config = TrainConfig(batch_size=rows, model=TransformerLMConfig(**shape))
    if is_gpt2:
        config = replace(config, architecture="gpt2", gpt2=GPT2Config(**shape))
    assert needed_bytes(config) < most_bytes(config)


def test_what_fits_is_not_refused() -> None:
    require_memory(TrainConfig(), 10**12)
    require_memory(TrainConfig(), needed_bytes(TrainConfig()))
    with pytest.raises(ValueError, match=r"training needs .* MB, this machine has 1\.00 MB"):
        require_memory(TrainConfig(), 10**6)
