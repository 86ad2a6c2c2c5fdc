"""Does the report work for a reader: with mouse, keys, a screen reader, a phone, paper, and without scripts?"""

from __future__ import annotations

import pytest
from browser.pages import FAULTS, PHONE, addresses, reported
from browser.pages import planted as traces
from browser.waiting import until

from perfdoctor.records.findings import Span


@pytest.fixture(scope="session")
def planted(tmp_path_factory):
    return reported(traces(tmp_path_factory.mktemp("planted"), *FAULTS))


def shows(page, name):
    """Waits until this page alone is shown: a browser follows an address some time after the click."""
    return until(page, f"[...document.querySelectorAll('main > .page:not([hidden])')].map(one => one.id) == {name!r}")


def test_each_link_shows_its_page_and_no_other(planted, open_page):
    page = open_page(planted[1])
    assert shows(page, "overview")
    assert {"#timeline", "#kernels", "#ranks", "#recording"} <= set(addresses(page))
    for address in addresses(page):
        page.click(f"nav a[href='{address}']")
        assert shows(page, address[1:])
        assert page.get_attribute("nav a[aria-current]", "href") == address
        assert page.evaluate("document.activeElement.id") == address[1:]
        assert page.inner_text(f"{address} h1")


def test_back_goes_to_the_page_before(planted, open_page):
    page = open_page(planted[1], "#kernels")
    assert shows(page, "kernels")
    page.click("nav a[href='#ranks']")
    page.go_back()
    assert shows(page, "kernels")


def test_the_first_screen_has_the_verdict_the_bar_and_the_stages(planted, open_page):
    page = open_page(planted[1], viewport={"width": 1440, "height": 900})
    for part in ("h1", ".facts", ".bar.tall", ".stages"):
        box = page.locator(f"#overview {part}").first.bounding_box()
        assert box["y"] >= 0
        assert box["y"] + box["height"] <= 900, part


def test_a_name_of_a_stage_opens_its_finding(planted, open_page):
    page = open_page(planted[1])
    target = page.locator(".stages a").last.get_attribute("href")
    page.click(f".stages a[href='{target}']")
    page.locator(f"{target}[open]").wait_for()
    assert page.locator(f"{target} > summary").is_visible()


def test_every_finding_and_every_fold_in_it_opens(planted, open_page):
    diagnosis, text = planted
    page = open_page(text)
    cards = page.locator("details.card")
    assert cards.count() == len(diagnosis.findings)
    for fold in page.locator("details.more").all():
        fold.locator("> summary").click()
    for place in range(cards.count()):
        card = cards.nth(place)
        if card.get_attribute("open") is None:
            card.locator("> summary").click()
        assert card.locator("p.summary").first.is_visible()
        for fold in card.locator("details").all():
            if fold.is_visible() and fold.get_attribute("open") is None:
                fold.locator("> summary").click()
            assert fold.get_attribute("open") is not None


def test_a_fix_is_copied_as_it_is(planted, open_page):
    diagnosis, text = planted
    page = open_page(text, permissions=["clipboard-read", "clipboard-write"])
    page.locator("#finding-1 button[data-copy]").first.click()
    copied = page.evaluate("navigator.clipboard.readText()")
    assert copied == page.locator("#finding-1 pre code").first.text_content()
    assert copied.strip() in "\n".join(fix.how for fix in diagnosis.findings[0].fixes)
    assert page.locator("#finding-1 button[data-copy]").first.inner_text() == "Copied"


def test_a_finding_leads_to_its_moment_on_the_timeline(planted, open_page):
    diagnosis, text = planted
    spans = [each for advice in diagnosis.findings for each in advice.evidence if isinstance(each, Span)]
    assert spans
    page = open_page(text)
    link = page.locator(f"a[href='#timeline:{spans[0].rank},{spans[0].start_ns},{spans[0].end_ns}']").first
    link.evaluate("link => { for (let f = link; f; f = f.parentElement.closest('details')) f.open = true; }")
    link.click()
    assert shows(page, "timeline")
    until(page, "document.querySelector('#timeline-view canvas') !== null")


def test_keys_alone_lead_from_the_start_into_a_finding_and_to_the_timeline(planted, open_page):
    page = open_page(planted[1])
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "findings"
    for _ in range(60):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.parentElement.id") == "finding-2":
            break
    page.keyboard.press("Enter")
    page.locator("#finding-2[open]").wait_for()
    page.focus("nav a[href='#timeline']")
    page.keyboard.press("Enter")
    assert shows(page, "timeline")


def test_on_a_phone_the_name_of_the_page_is_in_view(planted, open_page):
    page = open_page(planted[1], "#recording", **PHONE)
    box = page.locator("nav a[aria-current]").bounding_box()
    assert box["x"] >= 0
    assert box["x"] + box["width"] <= 360


def test_on_paper_no_table_is_wider_than_the_sheet(planted, open_page):
    page = open_page(planted[1], "#kernels", viewport={"width": 720, "height": 1000})
    page.emulate_media(media="print")
    page.locator("#kernels .data-table table").first.wait_for()
    assert page.evaluate("document.documentElement.scrollWidth") <= 720
    assert page.locator("#kernels .table-scroll.beyond-paper").count() > 0


def test_on_paper_the_findings_are_there_and_the_buttons_are_not(planted, open_page):
    page = open_page(planted[1], "#kernels")
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    page.emulate_media(media="print")
    assert page.locator("#finding-1 p.summary").first.is_visible()
    assert page.locator("#finding-2 p.summary").first.is_visible()
    assert page.locator("#recording").is_visible()
    assert not page.locator("nav").is_visible()
    assert not page.locator("button[data-copy]").first.is_visible()
