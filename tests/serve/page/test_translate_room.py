"""The room Translate in a real browser."""

from playwright.sync_api import expect

from trafo.generate.beam_config import BeamConfig
from trafo.generate.translate import translate


def test_translation_cross_attention_and_the_beam(visit, translator_bundle):
    page = visit("#translate?text=The%20cat%20sat&beam=3").page
    model, tokenizer = translator_bundle.model, translator_bundle.tokenizer
    config = BeamConfig(beam=3, n_best=3)
    found = translate(model, tokenizer, ["The cat sat"], config)[0]
    expect(page.locator(".others li")).to_have_count(3)
    expect(page.locator(".translation")).to_have_text(found[0].text or "(nothing)")
    expect(page.locator(".beam-node.wins")).to_have_count(len(found[0].ids))
    targets = page.get_by_role("group", name="Translation tokens").locator("button")
    expect(targets).to_have_count(len(found[0].ids))
    targets.first.hover()
    expect(page.locator(".alignment .readout")).to_contain_text("attends to")
    page.get_by_role("group", name="Source tokens").locator("button").first.hover()
    expect(page.locator(".alignment .readout")).to_contain_text("is attended to by")
