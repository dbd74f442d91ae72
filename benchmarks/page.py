"""How fluid the page is: what a person waits for in the room Inside, in a real Chromium.

    python benchmarks/page.py [--tokens 250] [--chromium PATH]

The server has a model of 4 layers with 16 heads each. Printed: the first paint of the page; from
the link to a text until all 64 heads are drawn; and, moving over the tokens one by one, from the
mouse's move to the next frame, in which the attention of that token is drawn.
"""

import argparse
import shutil
import tempfile
import time
from pathlib import Path

from serving_client import make_tokenizer, percentile, process, serve_trafo
from trafo.tokenizer import Tokenizer

FLAGS = [
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking",
    "--disable-component-update", "--disable-sync", "--no-first-run",
]  # fmt: skip
HEADS = 64

FIRST_PAINT = "performance.getEntriesByName('first-contentful-paint')[0].startTime"
MOVE = """async () => {
    const times = [];
    for (const token of document.querySelectorAll('.attention .sentence button')) {
        const start = performance.now();
        token.dispatchEvent(new PointerEvent('pointerover', {bubbles: true}));
        token.dispatchEvent(new MouseEvent('mouseover', {bubbles: true}));
        token.dispatchEvent(new PointerEvent('pointerenter'));
        token.dispatchEvent(new MouseEvent('mouseenter'));
        const worked = performance.now() - start;
        await new Promise(requestAnimationFrame);
        await new Promise(done => setTimeout(done));
        times.push([worked, performance.now() - start]);
    }
    return times;
}"""


def measure(num_tokens: int, chromium: Path) -> None:
    from playwright.sync_api import sync_playwright

    with tempfile.TemporaryDirectory() as folder:
        tokenizer = make_tokenizer(Path(folder))
        text = text_of(tokenizer, num_tokens)
        with (
            process(serve_trafo, tokenizer, "float32", 1) as (_, port),
            sync_playwright() as playwright,
        ):
            browser = playwright.chromium.launch(executable_path=chromium, args=FLAGS)
            page = browser.new_page()
            page.goto(f"http://127.0.0.1:{port}/#write")
            page.wait_for_selector(".room")
            print(f"first paint: {page.evaluate(FIRST_PAINT):.0f} ms")
            start = page.evaluate("performance.now()")
            page.evaluate("text => { location.hash = `inside?text=${text}` }", text)
            painted = f"document.querySelectorAll('.head canvas[data-painted]').length === {HEADS}"
            while not page.evaluate(painted):
                time.sleep(0.01)
            seconds = (page.evaluate("performance.now()") - start) / 1000
            tokens = page.locator(".attention .sentence button").count()
            print(f"{tokens} tokens, {HEADS} heads: all drawn after {seconds:.2f} s")
            moves = page.evaluate(MOVE)
            for what, place in (("script", 0), ("next frame", 1)):
                times = [times[place] for times in moves]
                p50, p95 = percentile(times, 0.5), percentile(times, 0.95)
                print(f"a token under the mouse, {what}: {p50:.1f} ms (p95 {p95:.1f} ms)")
            browser.close()


def text_of(tokenizer: Path, number: int) -> str:
    """Words for so many tokens."""
    loaded = Tokenizer.load(tokenizer)
    ids = loaded.encode("the name of each module is given in the list of files " * 200)[:number]
    return loaded.decode(ids).strip().replace(" ", "%20")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--tokens", type=int, default=250)
    parser.add_argument("--chromium", default=shutil.which("chromium"))
    options = parser.parse_args()
    if options.chromium is None:
        parser.error("there is no Chromium here; name one with --chromium")
    measure(options.tokens, Path(options.chromium))
