"""The engine against the slow reference: one row at a time, no cache, no batch."""

import math
import random
from dataclasses import replace

import pytest

from trafo.errors import InputError
from trafo.generate import GenerationConfig
from trafo.generate.engine import Engine, EngineConfig
from trafo.generate.engine import engine as engine_module
from trafo.generate.packed.step import PackedStep
from trafo.generate.reference import generate_tokens
from trafo.generate.request import Request
from trafo.generate.sampling import sample

STEPS = {"readable": lambda model: None, "packed": PackedStep}


def run(engine, arrivals, cancel=()):
    """Requests arrive at the step they are given with; returns the ids of each of their samples."""
    results = {}
    number = 0
    while engine.has_work or number <= max(arrivals.values(), default=0):
        for request, when in arrivals.items():
            if when == number:
                engine.add(request)
            if (request, number) in cancel:
                engine.cancel(request)
        for request, piece in engine.step():
            ids = results.setdefault((request, piece.row), [])
            if piece.token is not None:
                ids.append(piece.token.id)
        number += 1
    return results


def expected(model, request, sample):
    (end,) = request.ends or (None,)
    tokens = generate_tokens(model, request.prompt, request.config, sample_index=sample, end_id=end)
    return [token.id for token in tokens]


def crowd(rng, number):
    """Requests of all kinds; many begin alike, some are longer than the context."""
    start = [rng.randrange(256) for _ in range(40)]
    requests = []
    for i in range(number):
        prompt = start[: rng.randrange(40)] + [
            rng.randrange(256) for _ in range(rng.randrange(1, 9))
        ]
        config = GenerationConfig(
            max_new_tokens=rng.randrange(1, 9),
            temperature=rng.choice([0.0, 1.0, 0.7]),
            top_k=rng.choice([None, 5]),
            repetition_penalty=rng.choice([1.0, 1.0, 1.3]),
            presence_penalty=rng.choice([0.0, 0.0, 0.5]),
            num_samples=rng.choice([1, 1, 2]),
            seed=i,
        )
        requests.append(Request(prompt, config, frozenset([256])))
    return requests


@pytest.mark.parametrize("kind", ["readable", "packed"])
def test_requests_do_not_depend_on_each_other(tiny, kind):
    """Requests come and go, prompts in chunks, few blocks: each gets what it gets alone."""
    rng = random.Random(1)
    model = tiny(context_length=40)
    config = EngineConfig(max_running=5, chunk_tokens=11, cache_bytes=1)
    engine = Engine(model, config, STEPS[kind](model))
    requests = crowd(rng, 7)
    results = run(engine, {request: rng.randrange(12) for request in requests})
    for request in requests:
        for number in range(request.config.num_samples):
            assert results[request, number] == expected(model, request, number)
    assert engine.pool.num_free == engine.pool.num_blocks


EXTREMES = [
    {"temperature": 1e-300, "logprobs": 3},
    {"temperature": 5e-324, "repetition_penalty": 1e-38},
    {"repetition_penalty": 1e-300},
    {"repetition_penalty": 1.7e308, "temperature": 1e300},
    {"frequency_penalty": -1.7e308, "presence_penalty": 1.7e308},
    {"logit_bias": ((0, 1.7e308), (0, 1.7e308), (1, -1.7e308))},
    {"top_k": 10**30, "top_p": 5e-324, "min_p": 1.0, "kept_share": 1e-300, "logprobs": 10**9},
]


def test_extreme_settings_do_not_change_the_neighbours(tiny):
    """All of them in one batch, beside ordinary requests, which get what they get alone."""
    model = tiny(context_length=40)
    engine = Engine(model, EngineConfig(max_running=32), PackedStep(model))
    extremes = [Request([1, 2, 3], GenerationConfig(max_new_tokens=8, **each)) for each in EXTREMES]
    ordinary = crowd(random.Random(2), 5)
    results = run(engine, dict.fromkeys([*extremes, *ordinary], 0))
    for request in ordinary:
        for number in range(request.config.num_samples):
            assert results[request, number] == expected(model, request, number)
    assert all(len(results[request, 0]) == 8 for request in extremes)
    greedy = Request([1, 2, 3], GenerationConfig(max_new_tokens=8, temperature=0.0))
    assert results[extremes[0], 0] == expected(model, greedy, 0), "a tiny temperature is greedy"


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_an_error_in_one_sequence_ends_that_one_alone(tiny, temperature):
    """The model computes NaN for one row; the others, sampled with it, get what they get alone."""
    model = tiny(context_length=40)
    step = PackedStep(model)

    def damaged(batch, cache):
        logits = step(batch, cache)
        for row in range(len(logits)):
            if batch.ids[batch.wanted[row]] == 77 and batch.positions[batch.wanted[row]] == 2:
                logits[row, 5] = math.nan
        return logits

    engine = Engine(model, EngineConfig(), damaged)
    config = GenerationConfig(max_new_tokens=6, temperature=temperature)
    good, bad, other = requests = [Request(ids, config) for ids in ([1, 2], [3, 4, 77], [5])]
    for request in requests:
        engine.add(request)
    found = {request: [] for request in requests}
    while engine.has_work:
        for request, piece in engine.step():
            found[request].append(piece)
    (error,) = found[bad]
    assert isinstance(error, InputError)
    for request in (good, other):
        assert [piece.token.id for piece in found[request]] == expected(model, request, 0)
    assert engine.pool.num_free == engine.pool.num_blocks


def test_many_biases_are_not_hashed_at_every_step(tiny, monkeypatch):
    """Settings are compared once: 2,048 biases of 16 samples would hold the neighbours up."""
    engine = Engine(tiny(context_length=64))
    bias = tuple((i % 257, -1.0) for i in range(2048))
    config = GenerationConfig(max_new_tokens=9, num_samples=4, logit_bias=bias)
    for _ in range(2):
        engine.add(Request([1], replace(config)))
    monkeypatch.setattr(GenerationConfig, "__hash__", lambda self: pytest.fail("hashed"))
    calls = []
    monkeypatch.setattr(engine_module, "sample", lambda *args: calls.append(1) or sample(*args))
    while engine.has_work:
        engine.step()
    assert len(calls) <= 9 + 2, "equal settings are sampled together"


def test_cancelling_frees_at_once(tiny):
    model = tiny(context_length=64)
    engine = Engine(model, EngineConfig(max_running=1))
    first, second = (
        Request([1, 2, 3], GenerationConfig(max_new_tokens=40, num_samples=2)) for _ in range(2)
    )
    engine.add(first)
    engine.add(second)
    engine.step()
    assert (engine.num_running, engine.num_waiting) == (1, 3)
    engine.cancel(first)
    assert engine.pool.num_free == engine.pool.num_blocks
    assert {request for request, _ in engine.step()} == {second}


def test_places_in_the_queue(tiny):
    engine = Engine(tiny(context_length=64), EngineConfig(max_running=1))
    config = GenerationConfig(max_new_tokens=3, num_samples=2)
    first, second, third = requests = [Request([i], config) for i in range(3)]
    for request in requests:
        engine.add(request)
    engine.step()
    assert [engine.place(request) for request in requests] == [1, 2, 3], "its second sample waits"
    engine.cancel(second)
    engine.step()
    assert [engine.place(request) for request in requests] == [1, 0, 2]
    while engine.has_work:
        engine.step()
    assert engine.place(first) == engine.place(third) == 0


def test_equal_beginnings_are_read_once(tiny):
    model = tiny(context_length=64)
    read = []
    step = PackedStep(model)

    def counting(batch, cache):
        read.append(len(batch.ids))
        return step(batch, cache)

    engine = Engine(model, step=counting)
    prompt = list(range(50))
    config = GenerationConfig(max_new_tokens=2, num_samples=4)
    results = run(engine, {Request(prompt, config): 0})
    # 50 ids once, then 2 more beyond the 3 shared blocks of 16 for the other three samples, and
    # one token for each sample's second step
    assert sum(read) == 50 + 3 * 2 + 4
    again = run(engine, {Request(prompt, config): 0})
    assert sum(read) == 50 + 3 * 2 + 4 + 4 * 2 + 4
    assert list(results.values()) == list(again.values())


def test_a_long_prompt_does_not_stop_the_others(tiny):
    """While a prompt is read in chunks of 8, the other request gets a token at every step."""
    model = tiny(context_length=64)
    engine = Engine(model, EngineConfig(chunk_tokens=8))
    quick = Request([1], GenerationConfig(max_new_tokens=20))
    engine.add(quick)
    engine.step()
    engine.add(Request(list(range(60)), GenerationConfig(max_new_tokens=1)))
    for _ in range(8):
        assert [request for request, _ in engine.step()] == [quick]
