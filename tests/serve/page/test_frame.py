"""The frame of the page in a real browser: keys, a server that goes away, themes."""

import pytest
from playwright.sync_api import expect


def test_a_wrong_key_is_refused_and_the_right_one_opens(visit, locked_address):
    made = visit("#write", at=locked_address)
    page = made.page
    expect(page.get_by_role("dialog")).to_contain_text("needs an API key")
    page.fill("#key", "guess")
    page.keyboard.press("Enter")
    expect(page.locator("#key-problem")).to_have_text("The server refused that key.")
    page.fill("#key", "open sesame")
    page.keyboard.press("Enter")
    expect(page.locator(".room.write")).to_be_visible()
    expect(page.locator("#model")).to_have_value("tiny")
    expect(page.locator("#facts")).to_contain_text("step 7 · float32")
    made.problems.clear()  # the browser logs the refusals


def test_a_server_that_goes_away_is_waited_for(visit):
    made = visit("#tokens?text=cat")
    page = made.page
    expect(page.locator(".chip").first).to_be_visible()
    page.context.set_offline(True)
    page.fill("#text", "cat and mat")
    expect(page.locator("#banner")).to_contain_text("Trying again")
    page.context.set_offline(False)
    expect(page.locator("#banner")).to_be_hidden()
    expect(page.locator("#text")).to_have_value("cat and mat")
    expect(page.locator(".chip").nth(2)).to_be_visible()
    made.problems.clear()  # the browser logs the failed request


def test_rooms_entered_for_the_first_time_without_a_server(visit):
    made = visit("#runs")
    page = made.page
    expect(page.get_by_label("show tiny")).to_be_visible()
    page.context.set_offline(True)
    for room in ("Write", "Tokens", "Inside", "Translate"):
        page.get_by_role("link", name=room, exact=True).click()
        expect(page.locator(".room .problem")).to_contain_text("the server does not answer")
    page.get_by_role("link", name="Runs", exact=True).click()
    page.context.set_offline(False)
    expect(page.locator("#banner")).to_be_hidden()
    expect(page.get_by_label("show tiny")).to_be_visible()
    page.get_by_role("link", name="Write", exact=True).click()
    expect(page.locator(".tokens-text")).to_contain_text("Press Write")
    page.get_by_role("link", name="Inside", exact=True).click()
    expect(page.locator(".head canvas[data-painted]")).to_have_count(8)
    made.forget_failed_requests()


TYPE = """([field, text]) => {
  const node = document.querySelector(field);
  node.value = text;
  node.dispatchEvent(new Event("input", { bubbles: true }));
}"""


@pytest.mark.parametrize("leave", ["reload", "room"])
def test_nothing_that_was_typed_is_lost_however_soon_one_leaves(visit, leave):
    page = visit("#write").page
    fields = {
        "Write": ("#prompt", "typed just now"),
        "Tokens": ("#text", "cat & mat"),
        "Inside": ("#inside-text", "a_b.c"),
        "Translate": ("#sentence", "the café"),
    }
    for room, (field, text) in fields.items():
        page.get_by_role("link", name=room, exact=True).click()
        expect(page.locator(field)).not_to_have_value(text)
        page.evaluate(TYPE, [field, text])
        if leave == "reload":
            page.reload()
        else:
            page.get_by_role("link", name="Runs", exact=True).click()
            expect(page.locator(".room.runs")).to_be_visible()
            page.get_by_role("link", name=room, exact=True).click()
        expect(page.locator(field)).to_have_value(text)
    for room, (field, text) in fields.items():  # each in its own address
        page.get_by_role("link", name=room, exact=True).click()
        expect(page.locator(field)).to_have_value(text)


@pytest.mark.parametrize("writes", ["remember", "rememberSoon"])
def test_an_answer_that_comes_while_a_link_is_followed_does_not_lead_back(visit, writes):
    page = visit("#inside").page
    expect(page.locator(".room.inside")).to_be_visible()
    page.evaluate(
        """async (writes) => {
          const state = await import("/js/state.js");
          location.hash = "#translate";  // which the page hears of a little later
          state[writes]("inside", { layer: 1 });
          state.flush();
        }""",
        writes,
    )
    expect(page.locator(".room.translate")).to_be_visible()
    expect(page.locator("nav [aria-current]")).to_have_text("Translate")


def test_only_a_translator(visit):
    page = visit("#runs").page
    card = {"id": "translator", "kind": "translation", "step": 3, "created": 1}
    page.route("**/v1/models", lambda route: route.fulfill(json={"data": [card]}))
    page.evaluate("sessionStorage.clear(); history.replaceState(null, '', '/')")
    page.reload()
    expect(page.locator(".room.translate .translation")).not_to_be_empty()
    expect(page.locator("nav [aria-current]")).to_have_text("Translate")
    page.get_by_role("link", name="Write", exact=True).click()
    expect(page.locator("main")).to_contain_text("No language model is served")
    page.locator(".brand").click()
    expect(page.locator(".room.translate")).to_be_visible()


def test_a_newer_checkpoint_is_noticed_in_every_room(visit):
    """Its step is in the head of the page, and the figures are its own."""
    made = visit("#inside?text=cat")
    page = made.page
    expect(page.locator("#facts")).to_contain_text("step 7 ")
    expect(page.locator(".lens td").first).to_be_visible()
    cards = page.evaluate("fetch('/v1/models').then((answer) => answer.json())")
    for each in cards["data"]:
        each["step"] = 8
    page.route("**/v1/models", lambda route: route.fulfill(json=cards))
    with page.expect_request("**/inside/layers"):
        expect(page.locator("#facts")).to_contain_text("step 8 ")
    for each in cards["data"]:
        each["created"] += 1  # another server, perhaps with another vocabulary
    with page.expect_request("**/inside/vocabulary?*"):
        pass


def test_names_that_are_no_rooms(visit):
    page = visit("#constructor").page
    expect(page.locator(".room.write")).to_be_visible()
    page.get_by_role("link", name="Tokens", exact=True).click()
    expect(page.locator(".chip").first).to_be_visible()
    page.locator(".skip").focus()
    page.keyboard.press("Enter")  # "Skip to content"
    expect(page.locator("#main")).to_be_focused()
    expect(page.locator(".room.tokens")).to_be_visible()
    page.wait_for_function("location.hash.startsWith('#tokens')")


def test_a_model_is_chosen_for_all_rooms(visit):
    page = visit("#tokens?text=cat").page
    expect(page.locator(".chip").first).to_be_visible()
    page.get_by_role("link", name="Write", exact=True).click()
    page.locator("#model").select_option("bytes")
    page.get_by_role("link", name="Tokens", exact=True).click()
    expect(page.locator(".chip-id")).to_have_text(["99", "97", "116"])  # the bytes of "cat"
    assert "model=bytes" in page.evaluate("location.hash")


def test_dark_and_light(visit):
    page = visit("#runs", color_scheme="dark").page
    background = "getComputedStyle(document.documentElement).backgroundColor"
    dark = page.evaluate(background)
    page.click("#theme")
    assert page.evaluate(background) != dark


def test_every_room_fits_a_phone(visit):
    page = visit("#write", viewport={"width": 360, "height": 740}).page
    for room in ("Write", "Tokens", "Inside", "Runs", "Translate"):
        page.get_by_role("link", name=room, exact=True).click()
        expect(page.locator(f".room.{room.lower()}")).to_be_visible()
        page.wait_for_load_state("networkidle")
        assert page.evaluate("document.documentElement.scrollWidth") <= 360, room
    # A young model writes words without end.
    page.evaluate(
        "for (const e of document.querySelectorAll('.translation, .others')) "
        "{ e.textContent = 'x'.repeat(300); e.closest('[hidden]')?.removeAttribute('hidden') }"
    )
    assert page.evaluate("document.documentElement.scrollWidth") <= 360
