"""The Write room in a real browser: streaming, alternatives, sliders, links."""

from urllib.parse import parse_qs

import numpy as np
import torch
from playwright.sync_api import expect

from trafo.generate import GenerationConfig, generate
from trafo.generate.sampling import reshape_logits


def write(page, prompt="The cat", **settings):
    page.fill("#prompt", prompt)
    for name, value in settings.items():
        page.fill(f"#{name}", str(value))
    page.get_by_role("button", name="Write", exact=True).click()
    expect(page.locator(".status")).to_contain_text("seed")
    expect(page.get_by_role("button", name="Stop")).to_be_disabled()


def shown(page):
    return page.evaluate("[...document.querySelectorAll('.token')].map(t => t.title)")


def ids_in_address(page):
    text = parse_qs(page.evaluate("location.hash").split("?")[1])["text"][0]
    return [int(part, 36) for part in text.split(".")]


def test_streams_what_the_generator_writes(visit, language_bundle):
    page = visit("#write?t=0&p=1&n=10").page
    expect(page.locator(".tokens-text")).to_contain_text("Press Write")
    write(page)
    config = GenerationConfig(max_new_tokens=10, temperature=0.0)
    tokenizer = language_bundle.tokenizer
    (expected,) = generate(language_bundle.model, tokenizer, ["The cat"], config)
    assert ids_in_address(page) == [*tokenizer.encode("The cat"), *expected.ids]
    assert len(shown(page)) == len(ids_in_address(page))
    assert "10 tokens" in page.inner_text(".status")


def test_an_alternative_makes_a_branch_and_the_old_one_stays(visit, language_bundle):
    page = visit("#write?n=6&seed=3").page
    write(page)
    first = ids_in_address(page)
    given = len(language_bundle.tokenizer.encode("The cat"))
    page.locator(".token").nth(given + 1).click()
    expect(page.locator(".bar-row.chosen")).to_have_attribute("data-id", str(first[given + 1]))
    other = page.locator(".bars .bar-row:not(.chosen):not(.rest)").first
    chosen = int(other.get_attribute("data-id"))
    other.click()
    expect(page.locator(".tree .branch")).not_to_have_count(0)
    expect(page.get_by_role("button", name="Stop")).to_be_disabled()
    second = ids_in_address(page)
    assert second[: given + 2] == [*first[: given + 1], chosen]
    page.locator('.tree .branch[aria-pressed="false"]').first.click()
    page.wait_for_function("ids => location.hash.includes(ids)", arg=packed(first))
    assert ids_in_address(page) == first


def test_a_text_grows_beyond_the_context(visit, language_bundle):
    """The context has 64 tokens; a link to the text, and the alternatives of a late token, too."""
    page = visit("#write?t=0&p=1&n=60").page
    write(page)
    page.get_by_role("button", name="Go on").click()
    config = GenerationConfig(max_new_tokens=120, temperature=0.0, ignore_end=True)
    tokenizer = language_bundle.tokenizer
    (expected,) = generate(language_bundle.model, tokenizer, ["The cat"], config)
    whole = [*tokenizer.encode("The cat"), *expected.ids]
    page.wait_for_function("ids => location.hash.includes(ids)", arg=packed(whole))
    assert ids_in_address(page) == whole
    page.locator(".token").last.click()
    expect(page.locator(".bar-row.chosen")).to_have_attribute("data-id", str(whole[-1]))
    second = visit(page.evaluate("location.hash")).page
    expect(second.locator(".token")).to_have_count(len(whole))
    assert shown(second) == shown(page)


def packed(ids):
    digits = "0123456789abcdefghijklmnopqrstuvwxyz"

    def base36(number):
        return digits[number] if number < 36 else base36(number // 36) + digits[number % 36]

    return ".".join(map(base36, ids))


def test_sliders_reshape_as_the_sampler_does(visit):
    made = visit("#write")
    rng = np.random.default_rng(5)
    for settings in (
        {"temperature": 0.7, "top_k": 9, "top_p": 0.8, "min_p": 0.02},
        {"temperature": 1.6, "top_k": None, "top_p": 0.5, "min_p": 0.0},
        {"temperature": 1.0, "top_k": None, "top_p": 1.0, "min_p": 0.3},
        {"temperature": 0.4, "top_k": 3, "top_p": 1.0, "min_p": 0.0},
    ):
        logits = rng.normal(size=60).round(1) * 2  # with ties
        ours = made.page.evaluate(
            """async ([logits, s]) => {
              const { ranking, reshaped } = await import("/js/sampling.js");
              const values = { temperature: s.temperature, topK: s.top_k ?? 0,
                               topP: s.top_p, minP: s.min_p };
              return [...reshaped(logits, ranking(logits), values)];
            }""",
            [logits.tolist(), settings],
        )
        config = GenerationConfig(**settings)
        theirs = reshape_logits(torch.tensor(logits)[None], config).softmax(-1)[0]
        np.testing.assert_allclose(ours, theirs.numpy(), atol=1e-9)


def test_moving_a_slider_asks_nothing(visit):
    made = visit("#write?n=3")
    write(made.page)
    expect(made.page.locator(".bars .bar-row").first).to_be_visible()
    before = len(made.requests)
    figure = made.page.locator(".bars .figure").first.inner_text()
    made.page.fill("#slider-temperature", "2")
    expect(made.page.locator(".bars .figure").first).not_to_have_text(figure)
    assert len(made.requests) == before


def test_a_link_shows_the_same_text(visit):
    first = visit("#write?n=5&seed=11").page
    write(first)
    second = visit(first.evaluate("location.hash")).page
    expect(second.locator(".token")).to_have_count(len(shown(first)))
    assert shown(second) == shown(first)


def test_the_step_of_a_model_that_is_followed(visit):
    """The head of the page says which checkpoint has written, not which one was there before."""
    page = visit("#write?n=4").page
    expect(page.locator("#facts")).to_contain_text("step 7 ")
    card = page.evaluate("fetch('/v1/models').then((answer) => answer.json())")
    for each in card["data"]:
        each["step"] = 8
    page.route("**/v1/models", lambda route: route.fulfill(json=card))
    write(page)
    expect(page.locator("#facts")).to_contain_text("step 8 ")


def test_the_place_in_the_queue(visit):
    page = visit("#write?n=4").page
    page.route("**/inside/place?*", lambda route: route.fulfill(json={"place": 3}))
    page.route("**/v1/completions", lambda route: None)  # never answered
    page.get_by_role("button", name="Write", exact=True).click()
    expect(page.locator(".status").first).to_contain_text("place 3 in the queue")


def test_keyboard_and_phone_width(visit):
    page = visit("#write?n=4", viewport={"width": 360, "height": 700}).page
    write(page)
    page.keyboard.press("Escape")
    page.locator(".token").last.focus()
    page.keyboard.press("ArrowLeft")
    page.keyboard.press("Enter")
    expect(page.locator(".distribution h3")).to_contain_text("alternatives")
    page.evaluate("document.activeElement.blur()")
    page.keyboard.press("/")
    assert page.evaluate("document.activeElement.id") == "prompt"
    assert page.evaluate("document.documentElement.scrollWidth") <= 360
