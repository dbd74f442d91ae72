"""The room Inside in a real browser."""

import numpy as np
from playwright.sync_api import expect

from trafo.generate.attention_weights import attention
from trafo.serve.inside.histories import beam_tree


def test_attention_of_every_head_and_where_a_token_looks(visit, language_bundle):
    text = "The cat sat on the mat"
    page = visit(f"#inside?text={text.replace(' ', '%20')}").page
    expect(page.locator(".head")).to_have_count(8)  # two layers of four heads
    expect(page.locator(".head canvas[data-painted]")).to_have_count(8)
    page.get_by_role("button", name="layer 2, head 3").click()
    expect(page.locator(".attention h3")).to_have_text("Layer 2, head 3")
    page.locator(".attention .sentence button").nth(4).hover()
    expect(page.locator(".attention .readout")).to_contain_text("(token 5) attends to")
    shown = page.evaluate(
        "[...document.querySelectorAll('.attention .sentence button')]"
        ".map(token => Number(token.style.getPropertyValue('--w')) ** 2)"
    )
    weights = attention(language_bundle.model, language_bundle.tokenizer, text).weights
    np.testing.assert_allclose(shown, weights[1, 2, 4].detach(), atol=1.1e-2)


def test_logit_lens_has_a_cell_for_every_layer_and_token(visit, language_bundle):
    page = visit("#inside?text=The%20cat%20sat").page
    number = len(language_bundle.tokenizer.encode("The cat sat"))
    expect(page.locator(".lens td")).to_have_count(3 * number)
    expect(page.locator(".lens tbody tr").first.locator("td.wins")).to_have_count(number)
    page.locator(".lens td").first.focus()
    page.keyboard.press("ArrowDown")
    expect(page.locator(".lens-scroll").locator("..").locator(".readout")).to_contain_text(
        "Layer 1 after"
    )
    expect(page.locator(".norm-here")).to_have_attribute("d", page.evaluate(NORM_PATH))


NORM_PATH = "document.querySelector('.norm-here').getAttribute('d')"


def test_encoder_decoder_and_cross_attention(visit, translator_bundle):
    page = visit("#inside?model=translator&text=The%20cat").page
    expect(page.locator(".head canvas[data-painted]")).to_have_count(4)
    expect(page.locator(".attention .sentence").nth(1)).to_be_visible()  # the keys
    page.get_by_label("Which attention").select_option("encoder")
    expect(page.locator(".attention .sentence").nth(1)).to_be_hidden()
    ids = beam_tree(translator_bundle, "The cat", 5, lambda: None)["translations"][0]["ids"]
    expect(page.locator(".lens td")).to_have_count(3 * len(ids))
    expect(page.locator(".lens th").nth(1)).to_have_text("(start)")
    expect(page.locator(".norms").nth(1)).to_be_visible()  # the encoder's


def test_text_that_is_too_long_is_answered_with_what_is_wrong(visit):
    made = visit(f"#inside?text={'cat%20' * 80}")
    expect(made.page.locator(".room .problem")).to_contain_text("it must have 1 to 64")
    made.problems.clear()  # the browser logs the refusal
