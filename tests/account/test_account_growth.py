"""Growth with length: the fit, the layers, and that measuring gives the right order."""

import pytest
import torch

from trafo.account.complexity import (
    Growth,
    attend_to_all,
    convolve,
    fit_power_law,
    measure_growth,
    recur,
)
from trafo.errors import ConfigError


@pytest.mark.parametrize("power", [0.5, 1.0, 2.0, 3.0])
def test_an_exact_power_law_is_found(power):
    lengths = [16, 64, 128, 1024]
    found, factor = fit_power_law(lengths, [7.0 * n**power for n in lengths])
    assert found == pytest.approx(power)
    assert factor == pytest.approx(7.0)


def test_the_layers_compute_what_they_are_called():
    x = torch.randn(12, 6)
    torch.testing.assert_close(attend_to_all(x)[0, 0], (x @ x.T / 6**0.5).softmax(-1) @ x)
    matrix = torch.randn(6, 6)
    states = recur(x, matrix)
    torch.testing.assert_close(states[5], torch.tanh(matrix @ states[4] + x[5]))
    weight = torch.randn(6, 6, 5)  # (out, in, k), as torch's convolution has it
    expected = torch.nn.functional.conv1d(x.T[None], weight)[0].T
    torch.testing.assert_close(convolve(x, weight.flatten(1).T), expected, atol=1e-5, rtol=1e-5)


def test_every_layer_is_timed_at_every_length():
    growths = measure_growth((64, 128), d_model=8, window=8, rounds=1)
    assert [growth.expected for growth in growths] == [2, 1, 1, 1]
    assert all(second > 0 for growth in growths for second in growth.seconds)


@pytest.mark.slow
def test_measured_exponents_are_near_the_theory():
    for growth in measure_growth((256, 512, 1024, 2048, 4096)):
        assert growth.exponent == pytest.approx(growth.expected, abs=0.4), growth.layer


def test_the_short_half_does_not_count():
    lengths = (1, 2, 4, 8, 16)
    growth = Growth("a layer", "O(n)", 1, lengths, (9.0, 9.0, 4.0, 8.0, 16.0))
    assert growth.exponent == pytest.approx(1.0)


@pytest.mark.parametrize("lengths", [(), (64,), (128, 64), (64, 64), (2, 64)])
def test_lengths_that_cannot_be_fitted_are_refused(lengths):
    with pytest.raises(ConfigError, match="lengths are"):
        measure_growth(lengths)
