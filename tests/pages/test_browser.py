"""The page in a real browser: opened, clicked through, and read by keyboard, light and dark."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from equivalence.report.merging import merged
from equivalence.report.page import page

from .conftest import HOSTILE, PAIR, broken, report, target

BROWSER = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), ""
)

pytestmark = pytest.mark.skipif(not BROWSER, reason="needs chromium")


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """A headless browser that is cut off from every network."""
    api = pytest.importorskip("playwright.sync_api")
    with api.sync_playwright() as playwright:
        opened = playwright.chromium.launch(
            executable_path=BROWSER,
            args=["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"],
            proxy={"server": "http://127.0.0.1:9"},
        )
        yield opened
        opened.close()


@dataclass(slots=True)
class Opened:
    """A page, the addresses that it asked for, and what it complained about."""

    page: Any
    asked: list[str]
    complaints: list[str]


@pytest.fixture
def opened(browser: Any, tmp_path: Path) -> Iterator[Opened]:
    """A page of one of everything, hostile names among them."""
    run = report(
        target("sound"), broken("kernels.py:tiled"), broken(HOSTILE, HOSTILE), pairs=[PAIR]
    )
    file = tmp_path / "page.html"
    file.write_text(page(merged([run])), encoding="utf-8")
    shown = browser.new_page(viewport={"width": 1200, "height": 900})
    found = Opened(shown, [], [])
    shown.on("request", lambda request: found.asked.append(request.url))
    shown.on("console", lambda message: found.complaints.append(message.text))
    shown.on("pageerror", lambda error: found.complaints.append(str(error)))
    shown.on("dialog", lambda dialog: (found.complaints.append("a dialog"), dialog.dismiss()))
    shown.goto(file.as_uri())
    yield found
    shown.close()


def test_it_is_clicked_through(opened: Opened) -> None:
    shown = opened.page
    # A mark of the matrix opens its target and goes to its law.
    details = shown.locator("details[data-target='kernels.py:tiled']")
    assert details.get_attribute("open") is None
    mark = shown.locator("tr[data-target='kernels.py:tiled'] a.broken").first
    place = mark.get_attribute("href").removeprefix("#")
    mark.click()
    assert details.get_attribute("open") is not None
    assert shown.locator(f"[id='{place}']").is_visible()
    assert shown.evaluate("document.activeElement.id") == place
    # A replay line is copied, or at least selected, and the page says so.
    button = shown.locator("article[data-target='kernels.py:tiled'] button.copy")
    button.click()
    shown.locator("#said", has_text="equivalence replay kernels.py:tiled").wait_for()
    assert button.inner_text() in ("Copied", "Selected")
    # The filter hides the others.
    shown.locator("#filter").fill("SOUND")
    assert shown.locator("details[data-target='sound']").is_visible()
    assert not details.is_visible()
    assert shown.locator("#said").inner_text() == "1 targets shown"
    assert opened.complaints == []


def test_it_is_read_by_keyboard(opened: Opened) -> None:
    shown = opened.page
    shown.keyboard.press("Tab")
    assert shown.evaluate("document.activeElement.textContent") == "Skip to the results"
    outlined = "getComputedStyle(document.activeElement).outlineStyle"
    assert shown.evaluate(outlined) == "solid"
    wanted = "document.activeElement.matches(\"details[data-target='sound'] > summary\")"
    for _ in range(200):
        if shown.evaluate(wanted):
            break
        shown.keyboard.press("Tab")
        assert shown.evaluate(outlined) == "solid"
    shown.keyboard.press("Enter")
    assert shown.locator("details[data-target='sound'] table").is_visible()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_stands_out_in_both_schemes(opened: Opened, scheme: str) -> None:
    opened.page.emulate_media(color_scheme=scheme)
    assert opened.page.evaluate(CONTRAST) == []
    paper = opened.page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (paper == "rgb(255, 255, 255)") == (scheme == "light")


def test_a_phone_needs_no_sideways_scrolling(opened: Opened) -> None:
    opened.page.set_viewport_size({"width": 360, "height": 740})
    opened.page.evaluate("for (const d of document.querySelectorAll('details')) d.open = true")
    wide, seen = opened.page.evaluate("[document.documentElement.scrollWidth, innerWidth]")
    assert wide <= seen == 360


def test_nothing_is_fetched_and_nothing_hostile_runs(opened: Opened) -> None:
    assert opened.page.evaluate("[document.scripts.length, document.images.length]") == [1, 0]
    assert HOSTILE in opened.page.locator("#faults").inner_text()
    assert [url.partition(":")[0] for url in opened.asked] == ["file"]
    assert opened.complaints == []


# The contrast of every text with what is behind it: at least 4.5 (WCAG 2.2, 1.4.3).
CONTRAST = r"""() => {
const rgb = (text) => text.match(/[\d.]+/g).map(Number);
const light = ([r, g, b]) => [r, g, b].map((c) => c / 255)
  .map((c) => (c <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4))
  .reduce((sum, c, at) => sum + c * [0.2126, 0.7152, 0.0722][at], 0);
const behind = (part) => {
  for (let at = part; at; at = at.parentElement) {
    const colour = rgb(getComputedStyle(at).backgroundColor);
    if (colour.length < 4 || colour[3] === 1) return colour;
  }
  return [255, 255, 255];
};
const poor = [];
for (const part of document.body.querySelectorAll("*")) {
  const own = [...part.childNodes].some((n) => n.nodeType === 3 && n.textContent.trim());
  if (!own || part.closest("svg, script, style")) continue;
  const [a, b] = [light(rgb(getComputedStyle(part).color)), light(behind(part))];
  const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
  if (ratio < 4.5) poor.push(part.tagName + "." + part.className + " " + ratio.toFixed(2));
}
return poor;
}"""
