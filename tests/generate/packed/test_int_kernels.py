"""int8 products against the same formula in numpy's int64."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from trafo.generate.packed.int_kernels import parallel_int8_products
from trafo.generate.packed.pack import _padded, _paired_panels
from trafo.generate.packed.tiles import LANES


def expected(x, weight, scales):
    """Rows rounded to as many steps as int32 has room for; exact sums; both scales."""
    most = min(32767, (2**31 - 1) // (127 * x.shape[1]))
    highest = np.abs(x).max(1, keepdims=True)
    small = np.floor(x * (np.float32(most) / highest) + np.float32(0.5)).astype(np.int64)
    sums = small @ weight.astype(np.int64).T
    assert np.abs(sums).max() < 2**31
    return sums * (highest / most) * scales


def product(x, weight, scales):
    out = np.empty((len(x), -(-len(weight) // LANES) * LANES), np.float32)
    parallel_int8_products(x, _paired_panels(weight), _padded(scales), out)
    return out[:, : len(weight)]


@settings(max_examples=30)
@given(st.integers(1, 9), st.integers(1, 40), st.integers(1, 700), st.integers(0, 99))
def test_every_shape(num_rows, num_columns, depth, seed):
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((num_rows, depth), np.float32)
    weight = rng.integers(-127, 128, (num_columns, depth)).astype(np.int8)
    scales = rng.random(num_columns, np.float32)
    # One step more or less where a number lies on the border between two.
    step = 127 * np.abs(x).max() * scales.max() / 24_000
    got = product(x, weight, scales)
    np.testing.assert_allclose(got, expected(x, weight, scales), rtol=1e-5, atol=2 * step)


def test_the_largest_sums_do_not_overflow():
    for depth in (516, 517, 20_000):
        x, weight = np.ones((1, depth), np.float32), np.full((1, depth), 127, np.int8)
        got = product(x, weight, np.ones(1, np.float32))
        np.testing.assert_allclose(got, [[127.0 * depth]], rtol=1e-5)


def test_zeros_and_what_is_not_a_number():
    x = np.zeros((3, 20), np.float32)
    x[1, 3], x[2, 4] = np.nan, np.inf
    got = product(x, np.ones((2, 20), np.int8), np.ones(2, np.float32))
    assert got[0].tolist() == [0.0, 0.0]
    assert np.isnan(got[1:]).all()
