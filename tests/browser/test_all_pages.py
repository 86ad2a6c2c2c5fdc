"""Does every kind of page work for a reader: with keys, a screen reader, a phone, in the dark, and without scripts?"""

from __future__ import annotations

import re

import pytest
from axe_playwright_python.sync_playwright import Axe
from browser.pages import PAGES, PHONE, addresses

MOST_BYTES = {"report": 1_500_000, "comparison": 2_000_000, "scaling": 300_000, "trend": 300_000}


@pytest.fixture(scope="session")
def written(tmp_path_factory):
    """`written(kind)`: the page; `written(kind, hostile=True)`: of hostile names."""
    made = {}

    def of(kind, *, hostile=False):
        if (kind, hostile) not in made:
            made[kind, hostile] = PAGES[kind][hostile](tmp_path_factory.mktemp(kind))
        return made[kind, hostile]

    return of


every_page = pytest.mark.parametrize("kind", PAGES)


def shown_one_by_one(page):
    """Each page of the file, with all folds open."""
    for address in addresses(page):
        page.evaluate("address => { location.hash = address; }", address)
        page.evaluate("for (const fold of document.querySelectorAll('details')) fold.open = true")
        page.wait_for_timeout(50)
        yield address


@every_page
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing_serious(written, open_page, kind, scheme):
    """In the dark only colours differ."""
    options = {"resultTypes": ["violations"]}  # and not each of the thousand elements that are as they should be
    if scheme == "dark":
        options["runOnly"] = ["color-contrast"]
    page = open_page(written(kind), color_scheme=scheme)
    for address in shown_one_by_one(page):
        found = Axe().run(page, options=options).response["violations"]
        serious = [
            (each["id"], [node["html"][:200] for node in each["nodes"]][:3])
            for each in found
            if each["impact"] in ("serious", "critical")
        ]
        assert serious == [], address


@every_page
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_phone_shows_every_page_without_moving_sideways(written, open_page, kind, scheme):
    page = open_page(written(kind), **PHONE, color_scheme=scheme)
    for address in shown_one_by_one(page):
        assert page.evaluate("document.documentElement.scrollWidth") <= 360, address


@every_page
def test_keys_alone_reach_every_link_and_all_that_scrolls(written, open_page, kind):
    page = open_page(written(kind), **PHONE)
    for address in addresses(page):
        page.evaluate("address => { location.hash = address; }", address)
        page.wait_for_timeout(50)
        unreached = page.evaluate(
            """[...document.querySelectorAll("*")].filter((each) => each.checkVisibility()
                 && each.scrollWidth > each.clientWidth + 1
                 && ["auto", "scroll"].includes(getComputedStyle(each).overflowX)
                 && each.tabIndex < 0 && !each.querySelector("a, button, [tabindex='0']")).map((each) => each.outerHTML)"""
        )
        assert [each[:200] for each in unreached] == [], address
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement !== document.body") or page.locator("a").count() == 0


@every_page
def test_without_scripts_every_page_stands_below_the_other(written, open_page, kind):
    text = written(kind)
    page = open_page(text, java_script_enabled=False)
    ids = re.findall(r'<section class="page[^"]*" id="([\w-]+)"', text)
    assert len(ids) >= (3 if kind == "comparison" else 0)
    assert all(page.locator(f"#{name}").is_visible() for name in ids)
    assert page.locator("h1").first.is_visible()


@every_page
def test_names_that_want_to_be_scripts_stay_text(written, open_page, kind):
    text = written(kind, hostile=True)
    page = open_page(text)
    for _address in shown_one_by_one(page):
        page.wait_for_timeout(50)
    assert page.locator("img").count() == 0
    assert "onerror" in page.locator("body").text_content()
    assert page.locator("script").count() == {"report": 4, "comparison": 3}.get(kind, 0)  # of data, and ours


@every_page
def test_the_file_is_small(written, kind):
    assert len(written(kind).encode()) < MOST_BYTES[kind]
