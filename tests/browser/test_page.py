"""Does the report work for a reader: with mouse, keys, a screen reader, a phone, paper, and without scripts?"""

from __future__ import annotations

import gzip
import json
import re
import subprocess
import sys

import pytest
from axe_playwright_python.sync_playwright import Axe
from browser.waiting import until
from folders import ROOT

from perfdoctor.diagnosis.engine import examine
from perfdoctor.metrics.accounting.prepare import prepare
from perfdoctor.readers.open import read
from perfdoctor.records.findings import Span
from perfdoctor.report import html
from perfdoctor.views.build import views
from perfdoctor.vocabulary.rulebook import load_rules

PHONE = {"viewport": {"width": 360, "height": 740}}
IMAGE = "</script><img src=x onerror=alert(1)>"


def reported(folder):
    run = prepare(read([folder]))
    diagnosis = examine(run, list(load_rules().values())).diagnosis
    made = views(run, diagnosis)
    assert made.failed == ()
    return diagnosis, html.render(diagnosis, made)


@pytest.fixture(scope="session")
def planted(tmp_path_factory):
    """Four ranks that wait for data and for a slow one: most pages have something to show."""
    folder = tmp_path_factory.mktemp("planted")
    faults = ["input-wait=0.2", "rank-skew=0.1", "fp32-matmuls=0.15", "--ranks", "4", "--seed", "3"]
    subprocess.run([sys.executable, str(ROOT / "fixtures" / "plant.py"), *faults, "-o", str(folder)], check=True)
    return reported(folder / "torch")


@pytest.fixture(scope="session")
def hostile(tmp_path_factory):
    """The same of a trace in which every name wants to be a script."""
    source = ROOT / "fixtures" / "input-bound-single-process" / "torch" / "rank0.pt.trace.json.gz"
    trace = json.loads(gzip.decompress(source.read_bytes()))
    for event in trace["traceEvents"]:
        if event.get("cat") in ("kernel", "cpu_op", "user_annotation", "cuda_runtime") and "Step" not in event["name"]:
            event["name"] += IMAGE
    for device in trace.get("deviceProperties", []):
        device["name"] += IMAGE
    folder = tmp_path_factory.mktemp("hostile")
    (folder / "rank0.json").write_text(json.dumps(trace))
    return reported(folder)


def shows(page, name):
    """Waits until this page alone is shown: a browser follows an address some time after the click."""
    return until(page, f"[...document.querySelectorAll('main > .page:not([hidden])')].map(one => one.id) == {name!r}")


def addresses(page):
    return page.eval_on_selector_all("nav a", "all => all.map(one => one.hash)")


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


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing_serious_on_any_page(planted, open_page, scheme):
    """In the dark only colours differ."""
    options = {"runOnly": ["color-contrast"]} if scheme == "dark" else None
    page = open_page(planted[1], color_scheme=scheme)
    for address in addresses(page):
        page.evaluate("address => { location.hash = address; }", address)
        page.evaluate("for (const fold of document.querySelectorAll('details')) fold.open = true")
        page.wait_for_timeout(50)
        found = Axe().run(page, options=options).response["violations"]
        serious = [
            (each["id"], [node["html"][:200] for node in each["nodes"]][:3])
            for each in found
            if each["impact"] in ("serious", "critical")
        ]
        assert serious == [], address


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_phone_shows_every_page_without_moving_sideways(planted, open_page, scheme):
    page = open_page(planted[1], **PHONE, color_scheme=scheme)
    for address in addresses(page):
        page.evaluate("address => { location.hash = address; }", address)
        page.wait_for_timeout(50)
        assert page.evaluate("document.documentElement.scrollWidth") <= 360, address


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


def test_without_scripts_every_page_stands_below_the_other(planted, open_page):
    page = open_page(planted[1], java_script_enabled=False)
    ids = re.findall(r'<section class="page[^"]*" id="(\w+)"', planted[1])
    assert len(ids) > 5
    assert all(page.locator(f"#{name}").is_visible() for name in ids)
    assert page.locator("#finding-1 p.summary").first.is_visible()


def test_names_that_want_to_be_scripts_stay_text_on_every_page(hostile, open_page):
    diagnosis, text = hostile
    assert any(IMAGE[:20] in gpu.name for gpu in diagnosis.gpus)
    page = open_page(text)
    for address in addresses(page):
        page.evaluate("address => { location.hash = address; }", address)
        page.evaluate("for (const fold of document.querySelectorAll('details')) fold.open = true")
        page.wait_for_timeout(100)
    assert page.locator("img").count() == 0
    assert IMAGE in page.locator("body").text_content()
    assert page.locator("script").count() == 3  # two of data, and ours


def test_the_file_is_small(planted):
    assert len(planted[1].encode()) < 1_500_000
