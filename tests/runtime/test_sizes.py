"""Sizes and durations as people write them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trafo.errors import ConfigError
from trafo.runtime.sizes import (
    format_duration,
    format_rate,
    format_size,
    parse_duration,
    parse_size,
)


@pytest.mark.parametrize(
    ("text", "num_bytes"),
    [
        ("80GB", 80_000_000_000),
        ("80 gb", 80_000_000_000),
        ("512MiB", 512 * 2**20),
        ("2Ki", 2048),
        ("1.5k", 1500),
        ("1e9", 10**9),
        ("0", 0),
        ("7B", 7),
        (4096, 4096),
        (1e9, 10**9),
        ("9007199254740993", 2**53 + 1),
    ],
)
def test_parse_size(text, num_bytes):
    assert parse_size(text) == num_bytes


@pytest.mark.parametrize("text", ["", "GB", "-1", "12 apples", "1..2", "3iB", "nan", "1e", "5 5"])
def test_what_is_not_a_size_is_refused(text):
    with pytest.raises(ConfigError, match="is not a size; write it like"):
        parse_size(text)


@pytest.mark.parametrize(
    ("num_bytes", "text"),
    [
        (0, "0 B"),
        (999, "999 B"),
        (1000, "1.00 kB"),
        (15_000, "15.0 kB"),
        (999_499, "999 kB"),
        (999_500, "1.00 MB"),
        (80_000_000_000, "80.0 GB"),
        (3 * 10**18, "3000 PB"),
    ],
)
def test_format_size(num_bytes, text):
    assert format_size(num_bytes) == text


@given(st.integers(0, 10**16))
def test_a_formatted_size_reads_back_within_its_three_figures(num_bytes):
    assert abs(parse_size(format_size(num_bytes)) - num_bytes) <= 0.005 * num_bytes


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("10m", 600),
        ("1h30m", 5400),
        ("1h 30m 5s", 5405),
        ("1.5h", 5400),
        ("250ms", 0.25),
        ("30us", 3e-5),
        ("2d", 172800),
        ("90", 90),
        (90, 90),
        (0.5, 0.5),
    ],
)
def test_parse_duration(text, seconds):
    assert parse_duration(text) == pytest.approx(seconds)


@pytest.mark.parametrize("text", ["", "m", "-5s", "10 minutes", "1h30", "5x"])
def test_what_is_not_a_duration_is_refused(text):
    with pytest.raises(ConfigError, match="is not a duration; write it like"):
        parse_duration(text)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.0, "0 ms"),
        (2.5e-9, "2.5 ns"),
        (31.2e-6, "31 us"),
        (0.99951e-3, "1.0 ms"),
        (4.24e-3, "4.2 ms"),
        (0.3501, "350 ms"),
        (0.9999, "1.0 s"),
        (4.24, "4.2 s"),
        (59.96, "1m 00s"),
        (185, "3m 05s"),
        (3599.7, "1h 00m"),
        (3720, "1h 02m"),
        (2 * 86400 + 3 * 3600, "2d 03h"),
    ],
)
def test_format_duration(seconds, text):
    assert format_duration(seconds) == text


@given(st.floats(1e-9, 1e7))
def test_a_formatted_duration_reads_back(seconds):
    # The coarsest steps are an hour in more than a day, and one of ten units.
    assert parse_duration(format_duration(seconds)) == pytest.approx(seconds, rel=0.051)


@pytest.mark.parametrize(
    ("rate", "shown"),
    [
        (12_345.6, "12,346 steps/s"),
        (9.96, "10 steps/s"),
        (2.54, "2.5 steps/s"),
        (1, "1.0 steps/s"),
        (0.25, "4.0 s per step"),
        (1 / 150, "2m 30s per step"),
        (0, "0 steps/s"),
    ],
)
def test_rates_of_slow_work_are_what_one_takes(rate, shown):
    assert format_rate(rate, "steps") == shown
