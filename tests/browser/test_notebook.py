"""A diagnosis inside a notebook: readable on light and dark pages, and nothing gets out of its element."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
from folders import FIXTURES
from recorded import recording
from report.samples import SAMPLES
from tables import of_each

import perfdoctor
from perfdoctor.report import html

#: Styles as notebooks have them for what a cell shows, and some that want to be seen.
NOTEBOOK = """<!doctype html><meta charset="utf-8"><link rel="icon" href="data:,"><style>
body { background: %s; color: %s; font: 20px serif; }
.cell table { border: 9px solid red; } .cell p { margin: 90px; } .cell code, .cell pre { background: red; color: red; }
h1, h2, h3 { color: red; }
</style><p id="before">text</p><div class="cell">%s</div><p id="after">text</p>"""
DIAGNOSIS = recording(FIXTURES / "input-bound-single-process" / "torch").diagnosis
STYLES = "element => JSON.stringify([...getComputedStyle(element)].map(name => getComputedStyle(element)[name]))"


@of_each("sample", sorted(SAMPLES))
def test_no_name_from_a_recording_becomes_an_element(open_page: Callable[..., Any], sample: str) -> None:
    """`open_page` fails where a script ran, or anything was asked for."""
    page = open_page(NOTEBOOK % ("#fff", "#000", html.cell(SAMPLES[sample])))
    cell = page.locator(".cell")
    assert cell.locator("script, img, style, link, a, iframe, table").count() == 0
    assert set(cell.evaluate("cell => [...cell.querySelectorAll('*')].map(e => e.localName)")) <= {
        "div",
        "span",
        "details",
        "summary",
    }


@pytest.mark.parametrize(("ground", "ink"), [("#ffffff", "rgb(20, 20, 20)"), ("#111111", "rgb(230, 230, 230)")])
def test_it_has_the_colour_of_the_notebook_and_leaves_the_rest_alone(
    open_page: Callable[..., Any], ground: str, ink: str
) -> None:
    alone = open_page(NOTEBOOK % (ground, ink, "")).locator("#after").evaluate(STYLES)
    page = open_page(NOTEBOOK % (ground, ink, html.cell(DIAGNOSIS)))
    shown = page.get_by_text(re.compile("^Training waits for data")).first
    assert shown.evaluate("element => getComputedStyle(element).color") == ink
    assert shown.evaluate("element => getComputedStyle(element).fontSize") == "16px"
    assert page.locator("#after").evaluate(STYLES) == alone


def test_it_shows_each_part_of_the_step_and_each_finding(open_page: Callable[..., Any]) -> None:
    page = open_page(NOTEBOOK % ("#fff", "#000", html.cell(DIAGNOSIS)))
    parts = page.locator("[role=img] > div").evaluate_all(
        "parts => parts.map(each => each.getBoundingClientRect().width)"
    )
    split = DIAGNOSIS.time[0]
    assert parts[0] / sum(parts) == pytest.approx(split.compute_ns / split.window_ns, abs=0.01)
    assert page.locator("details").count() == min(len(DIAGNOSIS.findings), 5)
    assert page.locator("details[open]").count() == 1
    assert DIAGNOSIS.findings[0].fixes[0].title in page.locator("details").first.inner_text()
    for width in (1280, 390):
        page.set_viewport_size({"width": width, "height": 800})
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_a_comparison_is_shown_with_its_verdict_and_causes(open_page: Callable[..., Any]) -> None:
    slow, fixed = (FIXTURES / name / "torch" for name in ("cpu-slow-input", "cpu-slow-input-fixed"))
    comparison = perfdoctor.compare(slow, fixed)
    shown = open_page(NOTEBOOK % ("#fff", "#000", comparison._repr_html_())).locator(".cell").inner_text()
    assert comparison.summary.removesuffix(".") in shown.replace("\u00a0", " ")
    assert comparison.causes[0].label in shown
