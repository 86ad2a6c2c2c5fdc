"""The list of `perfdoctor view` in a real browser, the reports behind it, and a trace on its way to Perfetto."""

from __future__ import annotations

import re
from typing import Any

import pytest
from folders import FIXTURES
from viewer.served import filled, served

FIXTURE = FIXTURES / "input-bound-workers" / "nsys" / "profile.sqlite"
#: Stands for ui.perfetto.dev, which is not there: answers as its documentation says, and shows what came.
PERFETTO = """<!doctype html><title>waiting</title><script>
addEventListener("message", (event) => {
  if (event.data === "PING") { event.source.postMessage("PONG", event.origin); return; }
  const { buffer, title } = event.data.perfetto;
  document.title = `${title}: ${buffer.byteLength} bytes`;
});
</script>"""


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    return filled(tmp_path_factory.mktemp("view"), FIXTURE)


@pytest.fixture(scope="module")
def server(root):
    with served(root) as running:
        yield running


@pytest.fixture
def page(browser: Any, server: Any):
    """The list. Its tabs must stay silent, and load nothing but from the server and from Perfetto."""
    wrong: list[str] = []
    context = browser.new_context()
    context.route("https://ui.perfetto.dev/**", lambda route: route.fulfill(body=PERFETTO, content_type="text/html"))

    def watch(tab: Any) -> None:
        tab.on("console", lambda said: wrong.append(f"{said.type}: {said.text}"))
        tab.on("pageerror", lambda error: wrong.append(f"error: {error}"))
        allowed = (server.address, "https://ui.perfetto.dev/", "data:")
        tab.on("request", lambda request: request.url.startswith(allowed) or wrong.append(request.url))

    context.on("page", watch)
    tab = context.new_page()
    tab.goto(server.address)
    yield tab
    context.close()
    assert wrong == []


def test_reports_are_listed_newest_first_and_open(page):
    rows = page.locator("#reports tbody tr")
    assert rows.count() == 2
    text = rows.filter(has_text="train/report.html").inner_text()
    assert "Training waits for data (input-bound)" in text
    assert re.search(r"34\.3.ms", text)
    assert page.locator("#unread code").inner_text().startswith("perfdoctor analyze ")
    page.get_by_role("link", name="train/report.html").click()
    page.wait_for_selector("h1#verdict")
    page.get_by_role("link", name="Timeline", exact=True).click()
    page.wait_for_selector("#timeline-view canvas")


def test_a_report_sees_neither_the_list_nor_other_reports(page, server):
    page.get_by_role("link", name="train/report.html").click()
    page.wait_for_selector("h1#verdict")
    assert page.evaluate("self.origin") == "null"
    assert page.evaluate("document.referrer") == ""


def test_a_narrow_window_scrolls_the_table_and_not_the_page(page):
    page.set_viewport_size({"width": 400, "height": 700})
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_a_moment_opens_in_perfetto_with_the_trace(page, root):
    page.get_by_role("link", name="in Perfetto").click()
    button = page.locator("#moments button").first
    assert "input-wait" in button.inner_text()
    with page.expect_popup() as popup:
        button.click()
    opened = popup.value
    size = (root / "train" / "timeline.pftrace").stat().st_size
    opened.wait_for_function("document.title !== 'waiting'")
    assert opened.title() == f"train/timeline.pftrace: {size} bytes"
    start, end = map(int, re.search(r"#!/\?visStart=(\d+)&visEnd=(\d+)$", opened.url).groups())
    assert start < end
    page.wait_for_function("document.getElementById('said').textContent === 'Perfetto has it.'")


def test_a_report_does_there_what_it_does_as_a_file(page):
    page.get_by_role("link", name="train/report.html").click()
    copy = page.locator("#finding-1 button[data-copy]").first
    copy.click()
    page.wait_for_function("document.querySelector('#finding-1 button[data-copy]').innerText === 'Copied'")
    page.get_by_role("link", name="Kernels", exact=True).click()
    with page.expect_download() as saved:
        page.get_by_role("button", name="Save CSV").first.click()
    assert saved.value.suggested_filename.endswith(".csv")
    assert saved.value.path().read_bytes()
