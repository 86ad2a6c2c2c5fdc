"""Icicles in a real browser: as wide as their time, zoomed by mouse and keyboard, and no text of a trace runs."""

from __future__ import annotations

import pytest
from axe_playwright_python.sync_playwright import Axe
from report.samples import COMMUNICATION, POISON

from perfdoctor.records.views import Icicle, Node, Views
from perfdoctor.report import html

TREE = Node(
    "all work", 100e6,
    (
        Node("Net", 80e6, (
            Node("layers.0 Block", 50e6, (Node("attn", 30e6), Node("mlp", 15e6))),
            Node("layers.1 Block", 20e6),
            Node("tiny", 1e3),
        )),
        Node("outside", 20e6, is_muted=True),
    ),
)  # fmt: skip


@pytest.fixture
def shown(open_page):
    def open_(root=TREE, **options):
        drawn = Icicle("ops", "modules", "Time by module", "ns", root, "What is counted.")
        page = open_page(html.render(COMMUNICATION, Views(icicles=(drawn,))), "#ops", **options)
        page.locator(".icicle-box button").first.wait_for()
        return page

    return open_


def widths(page):
    """Of each part that is shown, its share of the width in per cent."""
    whole = page.locator(".icicle-box").bounding_box()["width"]
    parts = page.locator(".icicle-box button").all()
    return {part.text_content(): round(part.bounding_box()["width"] / whole * 100, 1) for part in parts}


def focused(page):
    return page.evaluate("document.activeElement.textContent")


def test_parts_are_as_wide_as_their_share_and_too_narrow_ones_are_left_out(shown):
    page = shown()
    assert widths(page) == {
        "all work": 100, "Net": 80, "layers.0 Block": 50, "attn": 30, "mlp": 15, "layers.1 Block": 20, "outside": 20,
    }  # fmt: skip
    left = [page.locator(".icicle-box button", has_text=name).bounding_box()["x"] for name in ("Net", "attn")]
    assert left[0] == left[1]


def test_a_click_zooms_to_a_part_and_back(shown):
    page = shown()
    page.click("text=layers.0 Block")
    assert widths(page) == {"all work": 100, "Net": 100, "layers.0 Block": 100, "attn": 60, "mlp": 30}
    assert page.locator(".icicle-said").text_content() == "layers.0 Block: 50.0 ms, 50 %"
    page.click("text=Show all")
    assert widths(page)["Net"] == 80


def test_parts_that_it_is_not_about_have_no_colour(shown):
    page = shown()
    paint = "node => getComputedStyle(node).backgroundColor.match(/[\\d.]+/g).slice(0, 3).map(Number)"
    spread = {}
    for name in ("Net", "outside"):
        channels = page.locator(".icicle-box button", has_text=name).evaluate(paint)
        spread[name] = (max(channels) - min(channels)) / max(channels)
    assert spread["outside"] < 0.05 < spread["Net"]


def test_all_of_it_is_reached_by_keyboard(shown):
    page = shown()
    page.locator(".icicle-box button").first.focus()
    went = []
    for key in ("ArrowDown", "ArrowDown", "ArrowRight", "ArrowLeft", "ArrowDown", "ArrowUp", "Enter", "Escape", "Home"):
        page.keyboard.press(key)
        went.append(focused(page))
    assert went == [
        "Net", "layers.0 Block", "layers.1 Block", "layers.0 Block", "attn", "layers.0 Block", "layers.0 Block", "Net",
        "all work",
    ]  # fmt: skip
    assert page.locator(".icicle-box button[tabindex='0']").count() == 1


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_nothing_is_wrong_for_those_who_do_not_see_it(shown, scheme):
    assert Axe().run(shown(color_scheme=scheme)).violations_count == 0


def test_names_are_text_and_a_deep_or_empty_tree_is_drawn(shown):
    deep = Node(POISON, 1.0)
    for _ in range(60):
        deep = Node(POISON, 1.0, (deep, Node("", 0.0)))
    page = shown(deep)
    assert page.locator("img, .icicle-box button *").count() == 0
    assert page.locator(".icicle-box button").count() == 24
    assert shown(Node("nothing", 0.0)).locator(".icicle-box button").count() == 1
