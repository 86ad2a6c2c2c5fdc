"""Do the two timelines of a comparison keep one scale, and is the page complete and silent?"""

from __future__ import annotations

import pytest
from axe_playwright_python.sync_playwright import Axe
from browser.timeline_views import small
from browser.waiting import until
from builders import draw_steps

from perfdoctor.comparison.compare import compare
from perfdoctor.comparison.snapshot import of_examination
from perfdoctor.diagnosis.engine import examine
from perfdoctor.metrics.accounting.prepare import prepare
from perfdoctor.report.comparison import html
from perfdoctor.views.pages import timeline
from perfdoctor.vocabulary.rulebook import load_rules


def recorded(wait):
    rules = load_rules()
    return examine(prepare(draw_steps(kernels=" " * wait + "####", host=["i" * wait + "l"])), list(rules.values()))


@pytest.fixture(scope="module")
def report():
    sides = {"before": recorded(6), "after": recorded(2)}
    before, after = (of_examination(name, each, load_rules(), []) for name, each in sides.items())
    views = {name: next(timeline.view(each.run, each.diagnosis)) for name, each in sides.items()}
    return html.render(compare([before], [after]), views)


def spans(page):
    page.evaluate("new Promise(requestAnimationFrame)")
    return page.evaluate("timelinesShown.map(({ view }) => [view.start, view.end])")


@pytest.fixture
def page(open_page, report):
    page = open_page(report, "#timeline")
    until(page, "timelinesShown.length === 2 && timelinesShown.every((each) => each.view.width > 0)")
    return page


def test_both_timelines_show_the_same_length_of_time_from_their_typical_step_on(page):
    (one, until_one), (other, until_other) = spans(page)
    assert until_one - one == pytest.approx(until_other - other)
    typical = page.evaluate("timelinesShown.map(({ data }) => data.typical[0])")
    assert one - typical[0] == pytest.approx(other - typical[1])


@pytest.mark.parametrize("side", [0, 1])
def test_zooming_one_zooms_the_other(page, side):
    before = spans(page)
    canvas = page.locator(".tl-canvas").nth(side)
    canvas.focus()
    canvas.press("w")
    after = spans(page)
    lengths = [end - start for start, end in after]
    assert lengths[0] == pytest.approx(lengths[1])
    assert lengths[0] < before[0][1] - before[0][0]


def test_the_waterfall_leads_from_before_to_after(open_page, report):
    page = open_page(report)
    rows = page.locator(".waterfall li").all()
    boxes = [row.locator(".track > span").nth(1).bounding_box() for row in rows]
    assert [rows[0].locator(".fix-name").inner_text(), rows[-1].locator(".fix-name").inner_text()] == [
        "before",
        "after",
    ]
    assert boxes[0]["width"] > 1.4 * boxes[-1]["width"]
    assert boxes[1]["x"] + boxes[1]["width"] == pytest.approx(boxes[0]["x"] + boxes[0]["width"], abs=1.5)
    assert page.locator("h1#verdict").inner_text().startswith("Faster, by 1.6 to 1.7×: a mean step")


@pytest.mark.parametrize("address", ["", "#work", "#timeline"])
def test_the_page_is_accessible(open_page, report, address):
    page = open_page(report, address)
    found = Axe().run(page)
    assert [each["id"] for each in found.response["violations"]] == []


def test_one_side_alone_has_its_timeline(open_page, report):
    sides = {"before": recorded(6), "after": recorded(2)}
    before, after = (of_examination(name, each, load_rules(), []) for name, each in sides.items())
    page = open_page(html.render(compare([before], [after]), {"after": small()}), "#timeline")
    until(page, "timelinesShown.length === 1 && timelinesShown[0].view.width > 0")
    assert page.locator("#timeline-before").count() == 0
