"""The room Runs in a real browser: curves that move while a run trains."""

import json

from playwright.sync_api import expect


def test_a_live_curve_grows(visit, run_folder):
    (run_folder / "tiny" / "metrics.jsonl").touch()  # a run that is silent for long does not train
    page = visit("#runs").page
    live = page.locator("tr", has=page.get_by_label("show tiny"))
    expect(live).to_contain_text("training")
    expect(page.locator("tr", has=page.get_by_label("show done"))).not_to_contain_text("training")
    expect(page.locator("path.curve:not(.faint)")).to_have_count(4)  # two curves, two swatches
    before = page.locator(".chart path.curve").first.get_attribute("d")
    with (run_folder / "tiny" / "metrics.jsonl").open("a") as file:
        record = {"step": 40, "kind": "train", "loss": 1.25, "seconds": 120.0}
        file.write(json.dumps(record) + "\n")
    expect(live).to_contain_text("1.250")
    assert page.locator(".chart path.curve").first.get_attribute("d") != before
    expect(page.locator(".samples")).to_contain_text("Once upon a cat")


def test_the_address_says_what_is_compared(visit):
    page = visit("#runs?y=bits&x=minutes&runs=done").page
    expect(page.locator(".chart")).to_contain_text("no run has measured bits per byte yet")
    page.get_by_label("by", exact=True).select_option("step")
    expect(page.locator(".chart circle.dot")).to_have_count(1)  # the final record has no time
    page.get_by_label("by", exact=True).select_option("tokens")
    page.get_by_label("curve", exact=True).select_option("loss")
    expect(page.locator(".chart")).to_have_attribute(
        "aria-label", "training loss by tokens: done 6.500"
    )
    page.get_by_label("show tiny").check()
    page.wait_for_function("location.hash.includes('runs=done%2Ctiny')")
