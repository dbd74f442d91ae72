"""The frame of the page in a real browser: keys, a server that goes away, themes."""

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
