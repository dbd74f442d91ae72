"""Time from FLOPs: the arithmetic of the learner's questions."""

import pytest

from trafo.account import Workload, account, predict_speed
from trafo.account.memory import ADAMW_FLOPS, predict_update
from trafo.errors import ConfigError
from trafo.models import TransformerLMConfig

XL = TransformerLMConfig(
    vocab_size=50_257, context_length=1024, d_model=1600, num_layers=48, num_heads=25, d_ff=6400
)


def test_days_for_four_hundred_thousand_steps_on_one_a100():
    result = account(XL, Workload(seq=1024, batch_size=1024))
    own = predict_update("adamw", result).flops
    answer = predict_speed(
        result, peak_flops=19.5e12, utilisation=0.5, steps=400_000, update_flops=own
    )
    # One forward pass and twice as much backward, for each of 1,024 rows, and AdamW's FLOPs.
    d, layers, seq = 1600, 48, 1024
    row = 2 * seq * d * (layers * (4 * d + 2 * seq + 3 * 6400) + 50_257)
    seconds = (3 * 1024 * row + ADAMW_FLOPS * 2_127_057_600) / (0.5 * 19.5e12)
    assert answer.seconds_per_step == pytest.approx(seconds, rel=1e-12)
    assert answer.total_seconds == pytest.approx(400_000 * seconds, rel=1e-12)
    assert answer.tokens_per_second == pytest.approx(1024 * 1024 / seconds, rel=1e-12)


def test_micro_batches_add_up_to_one_step():
    whole = account(XL, Workload(seq=64, batch_size=8))
    part = account(XL, Workload(seq=64, batch_size=2))
    assert predict_speed(
        part, peak_flops=1e12, accumulation_steps=4, update_flops=7
    ) == predict_speed(whole, peak_flops=1e12, update_flops=7)


@pytest.mark.parametrize(
    ("settings", "what"),
    [
        ({"peak_flops": 0.0}, "peak_flops is 0"),
        ({"peak_flops": -1.0}, "peak_flops is -1"),
        ({"peak_flops": 1e12, "utilisation": 0.0}, "utilisation is 0"),
        ({"peak_flops": 1e12, "utilisation": 50.0}, "utilisation is 50"),
    ],
)
def test_nonsense_is_refused(settings, what):
    with pytest.raises(ConfigError, match=what):
        predict_speed(account(XL, Workload(seq=8)), **settings)


@pytest.mark.parametrize("field", ["seq", "source_seq", "batch_size"])
def test_a_workload_without_tokens_is_refused(field):
    with pytest.raises(ConfigError, match=f"{field} is 0"):
        Workload(**{"seq": 8} | {field: 0})
