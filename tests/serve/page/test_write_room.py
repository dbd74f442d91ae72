"""The Write room in a real browser: streaming, alternatives, sliders, links."""

import re
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
    return [int(part, 36) for part in text.split("_")[0].split(".")]  # branches follow


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
    expect(second.locator(".token.tinted")).to_have_count(len(whole) - 1)
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
        np.testing.assert_allclose(ours, theirs.numpy(), rtol=1e-5)  # it computes in float32


def test_moving_a_slider_asks_nothing(visit):
    made = visit("#write?n=3")
    write(made.page)
    expect(made.page.locator(".bars .bar-row").first).to_be_visible()
    made.page.wait_for_load_state("networkidle")
    before = asked(made)
    figure = made.page.locator(".bars .figure").first.inner_text()
    made.page.fill("#slider-temperature", "2")
    expect(made.page.locator(".bars .figure").first).not_to_have_text(figure)
    assert asked(made) == before


def asked(made):
    """All requests but those for the newest step."""
    return [url for url in made.requests if not url.endswith("/v1/models")]


def test_a_link_shows_the_same_text(visit):
    first = visit("#write?n=5&seed=11").page
    write(first)
    second = visit(first.evaluate("location.hash")).page
    expect(second.locator(".token.tinted")).to_have_count(len(shown(first)) - 1)
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


def finish(page):
    expect(page.get_by_role("button", name="Stop")).to_be_disabled()


def sampled(page, prompt, length, seed):
    """The ids that a single request to the service gets."""
    body = {"model": "tiny", "prompt": prompt, "max_tokens": length, "seed": seed}
    body |= {"temperature": 0.8, "top_p": 0.95, "logprobs": 0}
    return page.evaluate(
        """body => fetch("/v1/completions", { method: "POST", body: JSON.stringify(body),
             headers: { "Content-Type": "application/json" } })
           .then((answer) => answer.json()).then(({ choices }) => choices[0].logprobs.token_ids)""",
        body,
    )


def test_another_model_has_its_own_ids_of_the_same_text(visit, language_bundle):
    page = visit("#write?n=6&seed=3&t=0").page
    write(page)
    ids = ids_in_address(page)
    text = language_bundle.tokenizer.decode(ids)
    given = page.locator(".token.given").count()
    page.locator("#model").select_option("bytes")
    expect(page.locator(".token")).to_have_count(len(text.encode()))
    finish(page)
    assert bytes(ids_in_address(page)) == text.encode()  # each id of this model is a byte
    expect(page.locator(".token.given")).to_have_count(len("The cat"))
    link = page.evaluate("location.hash")
    page.locator("#model").select_option("tiny")
    expect(page.locator(".token")).to_have_count(len(ids))
    finish(page)
    assert ids_in_address(page) == ids
    expect(page.locator(".token.given")).to_have_count(given)
    # A link whose model is not here any more must not show its ids as other words.
    page.evaluate("hash => { location.hash = hash }", link.replace("model=bytes", "model=tiny"))
    expect(page.locator(".tokens-text")).to_contain_text("another vocabulary")


def test_a_double_click_writes_what_one_click_writes(visit):
    page = visit("#write?n=8&seed=5").page
    page.fill("#prompt", "The cat")
    page.route("**/inside/scores", slowly())  # the first click is still at work at the second one
    page.get_by_role("button", name="Write", exact=True).dblclick()
    expect(page.locator(".status").first).to_contain_text("maximum length")
    finish(page)
    ids = ids_in_address(page)
    given = page.locator(".token.given").count()
    assert ids[given:] == sampled(page, "The cat", 8, 5)
    page.locator(".token").nth(given).click()
    expect(page.locator(".bar-row.chosen")).to_have_attribute("data-id", str(ids[given]))
    other = page.locator(".bars .bar-row:not(.chosen):not(.rest)").first
    chosen = int(other.get_attribute("data-id"))
    other.dblclick()
    page.wait_for_function("id => location.hash.includes(id)", arg=packed([*ids[:given], chosen]))
    finish(page)
    prompt = [*ids[:given], chosen]
    assert ids_in_address(page) == [*prompt, *sampled(page, prompt, 8, 5)]


def slowly():
    """Answer the first request late, the others at once."""
    first = []

    def handle(route):
        if first:
            return route.continue_()
        first.append(route)
        return route.request.frame.page.wait_for_timeout(150) or route.continue_()

    return handle


def test_branches_stay(visit):
    """After an alternative of the prompt, after Write was pressed again, and after a reload."""
    page = visit("#write?n=5&seed=1").page
    write(page)
    first = ids_in_address(page)
    page.locator(".token.given").last.click()
    expect(page.locator(".distribution h3")).to_contain_text("alternatives")
    page.locator(".bars .bar-row:not(.chosen):not(.rest)").first.click()
    expect(page.locator(".tree .branch")).to_have_count(2)
    finish(page)
    second = ids_in_address(page)
    assert second != first
    write(page, "The cat", seed=2)
    third = ids_in_address(page)
    assert third not in (first, second)
    titles = shown(page)
    tree = page.locator(".tree").inner_text()
    page.reload()
    expect(page.locator(".token.tinted")).to_have_count(len(third) - 1)
    finish(page)
    assert shown(page) == titles
    assert sorted(page.locator(".tree").inner_text().split()) == sorted(tree.split())
    for ids in (second, first):
        buttons = page.locator('.tree .branch[aria-pressed="false"]')
        for index in range(buttons.count()):
            if ids_in_address(page) == ids:
                break
            buttons.nth(index).click()
            finish(page)
        assert ids_in_address(page) == ids
        expect(page.locator(".token.tinted")).to_have_count(len(ids) - 1)


def test_reading_the_prompt_can_be_seen_and_stopped(visit):
    page = visit("#write").page
    page.route("**/tokenize", lambda route: None)  # never answered
    expect(page.locator(".tokens-text")).to_contain_text("Press Write")
    page.get_by_role("button", name="Write", exact=True).click()
    expect(page.locator(".status")).to_have_text("Reading the prompt…")
    page.get_by_role("button", name="Stop").click()
    expect(page.locator(".status")).to_have_text("Stopped.")
    finish(page)
    for room, url in (("Tokens", "inside/tokens"), ("Translate", "inside/translation")):
        page.route(f"**/{url}", lambda route: None)
        page.get_by_role("link", name=room, exact=True).click()
        page.get_by_role("button", name="Stop").click()  # waits until it is enabled
        expect(page.locator(".status")).to_have_text("Stopped.")


def test_a_text_that_is_stopped_by_leaving_stays_in_its_room(visit):
    page = visit("#write?n=5&t=0").page
    write(page)
    page.route("**/v1/completions", lambda route: None)  # never answered
    page.get_by_role("button", name="Go on").click()
    page.get_by_role("link", name="Tokens", exact=True).click()
    expect(page.locator(".chip").first).to_be_visible()
    assert "from=" not in page.evaluate("location.hash")
    expect(page.locator("#text")).to_have_value(re.compile("^The tokenizer splits"))


def test_the_focus_stays_with_what_was_chosen_by_keyboard(visit):
    page = visit("#write?n=4&t=0").page
    write(page)
    number = len(shown(page))
    page.locator(".token").nth(number - 2).focus()
    page.keyboard.press("Enter")
    expect(page.locator(".distribution h3")).to_contain_text("alternatives")
    page.locator(".bars .bar-row:not(.chosen):not(.rest)").first.focus()
    page.keyboard.press("Enter")
    expect(page.locator(".tree .branch")).not_to_have_count(0)
    finish(page)
    where = "[...document.querySelectorAll('.token')].indexOf(document.activeElement)"
    assert page.evaluate(where) == number - 2
    page.locator('.tree .branch[aria-pressed="false"]').first.focus()
    page.keyboard.press("Enter")
    expect(page.locator(".tree .branch:focus")).to_have_attribute("aria-pressed", "true")
    page.get_by_role("button", name="Go on").focus()
    page.route("**/v1/completions", lambda route: None)  # never answered
    page.keyboard.press("Enter")
    expect(page.get_by_role("button", name="Stop")).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.get_by_role("button", name="Write", exact=True)).to_be_focused()
    page.get_by_role("link", name="Tokens", exact=True).focus()
    page.keyboard.press("Enter")
    expect(page.locator(".chip").first).to_be_visible()
    expect(page.get_by_role("link", name="Tokens", exact=True)).to_be_focused()
