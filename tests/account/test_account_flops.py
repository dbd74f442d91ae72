"""FLOPs against torch's counter, on the same passes of the same models."""

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from trafo.account import Workload, account, training_flops
from trafo.fast import accelerate, chunked_cross_entropy
from trafo.models import TransformerLMConfig, build_model
from trafo.optim import cross_entropy

BATCH, SEQ, SOURCE = 3, 40, 22


def counted(run: Any) -> int:
    # The loss in chunks adds products up in place, an operation that the counter does not know.
    in_place = {torch.ops.aten.addmm_: lambda _, a, b, **kwargs: 2 * a[0] * a[1] * b[1]}
    with FlopCounterMode(display=False, custom_mapping=in_place) as counter:
        run()
    return int(counter.get_total_flops())


def build_for_counting(config: Any) -> Any:
    """The counter misses the fused kernel, but not a window in blocks, which only `fast` has."""
    model = build_model(config)
    return accelerate(model) if (getattr(config, "window", None) or SEQ) < SEQ else model


def has_source(config: Any) -> bool:
    return hasattr(config, "source_vocab_size")


def some_ids(seq: int) -> Tensor:
    return torch.randint(1, 70, (BATCH, seq))


def forward(model: Any, config: Any) -> Tensor:
    if has_source(config):
        return model(some_ids(SOURCE), some_ids(SEQ))
    return model(some_ids(SEQ))


def test_forward_and_backward_equal_torchs_count(config):
    model = build_for_counting(config)
    logits: list[Tensor] = []
    work = Workload(batch_size=BATCH, seq=SEQ, source_seq=SOURCE)
    expected = account(config, work)
    assert expected.forward_flops == counted(lambda: logits.append(forward(model, config)))
    loss = cross_entropy(logits[0], some_ids(SEQ))
    assert expected.backward_flops == counted(loss.backward)


def test_a_step_with_the_loss_in_chunks_takes_as_many():
    config = TransformerLMConfig(
        vocab_size=97, context_length=SEQ, d_model=32, num_layers=2, num_heads=4
    )
    model: Any = build_model(config)
    ids = some_ids(SEQ)

    def step() -> None:
        states = model.hidden_states(ids)
        chunked_cross_entropy(states, model.head_weight, ids, chunk_rows=7).backward()

    # The last chunk is a short one: the rows of all chunks together are what is counted.
    assert counted(step) == account(config, Workload(batch_size=BATCH, seq=SEQ)).flops


def test_prefill_equals_torchs_count(config):
    model: Any = build_model(config).eval()
    work = Workload(batch_size=BATCH, seq=SEQ, source_seq=SOURCE, phase="prefill")

    def prefill() -> None:
        cache = model.make_cache(BATCH, SEQ)
        if has_source(config):
            model.decode(some_ids(1), model.encode(some_ids(SOURCE)), cache=cache)
        else:
            model.logits(model.hidden_states(some_ids(SEQ), cache=cache)[:, -1:])

    expected = account(config, work)
    with torch.no_grad():
        assert expected.forward_flops == counted(prefill)
    assert expected.backward_flops == 0


def test_decoding_one_token_equals_torchs_count(config):
    model: Any = build_model(config).eval()
    work = Workload(batch_size=BATCH, seq=SEQ, source_seq=SOURCE, phase="decode")
    with torch.no_grad():
        cache = model.make_cache(BATCH, SEQ)
        if has_source(config):
            memory = model.encode(some_ids(SOURCE))
            model.decode(some_ids(SEQ - 1), memory, cache=cache)
            flops = counted(lambda: model.decode(some_ids(1), memory, cache=cache))
        else:
            model(some_ids(SEQ - 1), cache=cache)
            flops = counted(lambda: model(some_ids(1), cache=cache))
    assert account(config, work).forward_flops == flops


@pytest.mark.parametrize(("seq", "teraflops"), [(1024, 4.513), (16_384, 149.5)])
def test_the_known_answers_for_gpt2_xls_shape(seq, teraflops):
    config = TransformerLMConfig(
        vocab_size=50_257,
        context_length=seq,
        d_model=1600,
        num_layers=48,
        num_heads=25,
        d_ff=6400,
    )
    result = account(config, Workload(seq=seq))
    assert f"{result.forward_flops / 1e12:.4g}" == f"{teraflops:.4g}"
    # The formula of every part, written out: 2 m n p for each product.
    d, ff, vocab, layers = 1600, 6400, 50_257, 48
    parts = {part.name: part.forward_flops for part in result.parts}
    assert parts["head"] == 2 * seq * d * vocab
    assert parts["projections"] == layers * 8 * seq * d**2
    assert parts["attention"] == layers * 4 * seq**2 * d
    assert parts["feed-forward"] == layers * 6 * seq * d * ff
    largest = max(("attention", "projections", "feed-forward"), key=parts.__getitem__)
    if seq == 1024:
        assert f"{parts['head'] / 1e12:.4f}" == "0.1647"
        assert largest == "feed-forward"
    else:
        assert largest == "attention"
        assert parts["attention"] > result.forward_flops / 2


@pytest.mark.parametrize("seq", [8, 40])
def test_the_formula_for_language_models_gives_what_the_dry_run_counts(language_model, seq):
    flops = account(language_model, Workload(seq=seq, batch_size=BATCH)).flops
    assert training_flops(language_model, seq, BATCH) == flops
