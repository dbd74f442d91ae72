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


def show(made, runs, settings=""):
    """Runs of these records, by name in the order in which the server lists them."""
    page = made.page

    def answer(route):
        name = route.request.url.split("?")[0].partition("/inside/runs/")[2]
        if not name:
            rows = [{"name": each, "training": False} for each in runs]
            return route.fulfill(json={"runs": rows})
        if runs[name] is None:
            return route.fulfill(status=404, json={"error": {"message": "it is gone"}})
        tail = {"records": runs[name], "cursor": "1:1", "from_start": True, "samples": []}
        return route.fulfill(json=tail)

    page.route("**/inside/runs", answer)
    page.route("**/inside/runs/*", answer)
    page.evaluate(f"location.hash = 'runs?{settings}'")
    expect(page.locator(".runs-table tbody tr")).to_have_count(len(runs))
    return page


def measured(kind, *values):
    return [{"step": 10 * i, "kind": kind, "loss": v} for i, v in enumerate(values, 1)]


def test_the_final_measurement_is_not_a_point_of_the_curve(visit):
    """It is on other tokens than those before."""
    records = [*measured("validation", 3.0, 2.0), {"step": 20, "kind": "final", "loss": 2.5}]
    page = show(visit("#tokens"), {"one": records}, "y=validation&smooth=0.9")
    for path in page.locator(".chart path.curve").all():
        assert path.get_attribute("d").count("L") == 1
    final = page.locator(".chart circle.final")
    assert 3.0 > 2.5 > 2.0  # so its height is between theirs
    top, bottom = (float(y) for y in page.evaluate(FAINT_ENDS))
    assert abs(float(final.get_attribute("cy")) - (top + bottom) / 2) < 0.2
    expect(page.locator(".chart")).to_have_attribute(
        "aria-label", "validation loss by step: one 2.474 final 2.500"
    )
    expect(page.locator("tr", has=page.get_by_label("show one"))).to_contain_text("2.500 final")


FAINT_ENDS = """document.querySelector(".chart .faint").getAttribute("d").slice(1).split("L")
  .map((point) => point.split(" ")[1])"""


def test_no_value_beyond_the_end_of_a_run(visit):
    runs = {"long": measured("train", 5, 4, 3, 2), "short": measured("train", 7, 6)}
    page = show(visit("#tokens"), runs)
    box = page.locator(".chart").bounding_box()

    def point_at(part):
        page.mouse.move(box["x"] + part * box["width"], box["y"] + box["height"] / 2)
        return page.locator(".runs .readout").inner_text()

    assert "long 4.000 · short 6.000" in point_at(0.5)
    assert "short" not in point_at(0.8)
    assert "long" in point_at(0.8)
    assert "long" not in point_at(0.1)  # before the first point


def test_a_link_with_unknown_settings_and_runs_shows_what_there_is(visit):
    runs = {"one": measured("train", 5, 4), "gone": None}
    made = visit("#tokens")
    page = show(made, runs, "y=nonsense&x=42&runs=nobody")
    expect(page.locator(".chart")).to_have_attribute(
        "aria-label", "training loss by step: one 4.000"
    )
    expect(page.locator(".runs .status")).to_contain_text("there is no run nobody here")
    expect(page.locator(".runs .status")).to_contain_text("gone could not be read: it is gone")
    page.get_by_label("show one").uncheck()
    expect(page.locator(".chart path.curve")).to_have_count(0)
    expect(page.locator(".runs .status")).not_to_contain_text("nobody")
    made.forget_failed_requests()


def test_colours_depend_on_the_names_alone(visit):
    names = ["a", "b", "c", "d", "e", "f", "g"]

    def styles(order):
        page = show(visit("#tokens"), {name: measured("train", 5, 4) for name in order})
        rows = page.locator(".runs-table tbody tr").all()
        swatches = [row.locator("path") for row in rows]
        looks = [(s.get_attribute("class"), s.get_attribute("stroke-dasharray")) for s in swatches]
        return dict(zip(order, looks, strict=True))

    first = styles(names)
    assert styles(names[::-1]) == first
    assert len(set(first.values())) == len(names)
    assert len({look for look, _ in first.values()}) == 6
