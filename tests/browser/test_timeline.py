"""Is the timeline usable with mouse, fingers and keys, and does it show the right numbers?"""

from __future__ import annotations

import base64
from itertools import pairwise

import numpy as np
import pytest
from browser.timeline_views import (
    CALLS,
    COUNTER,
    IDLE,
    IMAGE,
    KERNELS,
    LENGTH_NS,
    MS,
    OPS,
    OTHER_KERNELS,
    STEP_NS,
    STEPS,
    small,
)
from browser.waiting import until
from report.samples import INPUT_BOUND
from timelines import busy_share, dense

from perfdoctor.records.views import Views
from perfdoctor.report import html
from perfdoctor.report.words import wording
from perfdoctor.report.words.foreign_text import clean_name
from perfdoctor.vocabulary.parts import PARTS

#: Half a pixel of the picture, in parts of its width: times read from pointers are no finer.
PIXEL = 0.001


@pytest.fixture(scope="module")
def report():
    return html.render(INPUT_BOUND, Views(timeline=small()))


@pytest.fixture
def page(open_page, report):
    return shown(open_page(report, "#timeline"))


def shown(page):
    until(page, "timelineShown && timelineShown.view.width > 0")
    return page


def seen(page):
    """The visible window, once it is drawn: (start, end) in ns."""
    page.evaluate("new Promise(requestAnimationFrame)")
    view = page.evaluate("timelineShown.view")
    return view["start"], view["end"]


def middle(page, track, piece):
    """Where on the screen a piece is."""
    place = page.evaluate(f"timelineShown.placeOf(timelineShown.data.tracks[{track}], {piece})")
    box = page.locator(".tl-canvas").bounding_box()
    return box["x"] + place["x"], box["y"] + place["y"]


def click(page, track, piece):
    page.mouse.click(*middle(page, track, piece))


def panel(page):
    """The panel of the selected event."""
    rows = page.locator(".tl-panel dl > div").all()
    return {row.locator("dt").inner_text(): row.locator("dd").inner_text() for row in rows}


def pixels(page, track, row=0):
    """The drawn row of a track, as lines of (red, green, blue), without the labels' column."""
    width, height, packed = page.evaluate(
        """([track, row]) => {
          const { stage, layout, view, data } = timelineShown;
          const ratio = stage.context.getTransform().a;
          const { y, height } = layout.rowAt(data.tracks[track], row);
          const box = [view.left, y - view.top, view.width - view.left, height > 6 ? height - 2 : height - 1];
          const image = stage.context.getImageData(...box.map((each) => each * ratio));
          let letters = "";
          for (let at = 0; at < image.data.length; at += 8192) letters += String.fromCharCode(...image.data.subarray(at, at + 8192));
          return [image.width, image.height, btoa(letters)];
        }""",
        [track, row],
    )
    values = np.frombuffer(base64.b64decode(packed), dtype=np.uint8).astype(np.int64)
    return values.reshape(height, width, 4)[:, :, :3]


def colour(page, variable):
    """A colour of the style sheet as (red, green, blue)."""
    text = page.evaluate(f"getComputedStyle(document.documentElement).getPropertyValue('{variable}')").strip()
    return tuple(int(text[at : at + 2], 16) for at in (1, 3, 5))


def is_paper(page, drawn):
    return (drawn == colour(page, "--card")).all(axis=2)


# --- the visible window ---


def test_it_starts_at_the_typical_step(page):
    start, end = seen(page)
    assert STEP_NS * 0.95 < start <= STEP_NS
    assert STEP_NS * 2 <= end < STEP_NS * 2.05
    assert page.locator(".tl-shown").inner_text() == (
        "Shown first: a typical step of 4. 36 of 1,270 recorded events are drawn one by one; "
        "1,234 short ones are merged (hatched), none is omitted."
    )


def test_ctrl_and_wheel_zoom_at_the_pointer_and_a_plain_wheel_does_not(page):
    box = page.locator(".tl-canvas").bounding_box()
    page.mouse.move(box["x"] + 700, box["y"] + 60)
    before = seen(page)
    moment = page.evaluate("timelineShown.timeAt(700)")
    page.mouse.wheel(0, 200)
    assert seen(page) == before
    page.keyboard.down("Control")
    page.mouse.wheel(0, -200)
    page.keyboard.up("Control")
    after = seen(page)
    assert after[1] - after[0] < 0.8 * (before[1] - before[0])
    assert page.evaluate("timelineShown.timeAt(700)") == pytest.approx(moment, abs=PIXEL * STEP_NS)


@pytest.mark.parametrize(("closer", "further"), [("w", "s"), ("+", "-")])
def test_keys_zoom_around_the_middle(page, closer, further):
    page.locator(".tl-canvas").focus()
    start, end = seen(page)
    page.keyboard.press(closer)
    now = seen(page)
    assert now[1] - now[0] == pytest.approx((end - start) / 1.5)
    assert sum(now) == pytest.approx(start + end)
    page.keyboard.press(further)
    assert seen(page) == pytest.approx((start, end))


def test_buttons_zoom(page):
    start, end = seen(page)
    page.get_by_role("button", name="Zoom in").click()
    now = seen(page)
    assert now[1] - now[0] == pytest.approx((end - start) / 1.5)
    page.get_by_role("button", name="Zoom out").click()
    assert seen(page) == pytest.approx((start, end))
    page.get_by_role("button", name="Everything").click()
    assert seen(page) == (0, LENGTH_NS)
    page.get_by_role("button", name="Typical step").click()
    assert seen(page) == pytest.approx((start, end))


def test_a_drag_moves_by_as_much_time_as_it_is_wide(page):
    view = page.evaluate("timelineShown.view")
    a_pixel_ns = (view["end"] - view["start"]) / (view["width"] - view["left"])
    box = page.locator(".tl-canvas").bounding_box()
    page.mouse.move(box["x"] + 600, box["y"] + 30)
    page.mouse.down()
    page.mouse.move(box["x"] + 700, box["y"] + 30, steps=5)
    page.mouse.up()
    assert seen(page)[0] == pytest.approx(view["start"] - 100 * a_pixel_ns, rel=1e-6)
    assert page.locator(".tl-panel").is_hidden()


def test_arrows_and_shift_with_the_wheel_move_and_stop_at_the_ends(page):
    page.locator(".tl-canvas").focus()
    start, end = seen(page)
    page.keyboard.press("ArrowRight")
    assert seen(page)[0] == pytest.approx(start + 0.2 * (end - start))
    page.keyboard.press("a")
    assert seen(page)[0] == pytest.approx(start)
    page.keyboard.press("Home")
    page.keyboard.press("a")
    assert seen(page)[0] == 0
    page.keyboard.press("End")
    page.keyboard.press("d")
    assert seen(page)[1] == pytest.approx(LENGTH_NS)
    box = page.locator(".tl-canvas").bounding_box()
    page.mouse.move(box["x"] + 600, box["y"] + 30)
    page.keyboard.down("Shift")
    page.mouse.wheel(0, -100)
    page.keyboard.up("Shift")
    assert seen(page)[1] < LENGTH_NS


def test_a_drag_on_the_axis_zooms_to_that_time_span(page):
    wanted = [page.evaluate(f"timelineShown.timeAt({x})") for x in (400, 600)]
    box = page.locator(".tl-axis").bounding_box()
    page.mouse.move(box["x"] + 400, box["y"] + 20)
    page.mouse.down()
    page.mouse.move(box["x"] + 600, box["y"] + 20, steps=4)
    page.mouse.up()
    assert seen(page) == pytest.approx(wanted, abs=PIXEL * STEP_NS)


def test_two_fingers_zoom(open_page, report):
    page = shown(open_page(report, "#timeline", has_touch=True))
    before = seen(page)
    box = page.locator(".tl-canvas").bounding_box()
    x, y = box["x"] + 600, box["y"] + 60
    fingers = page.context.new_cdp_session(page)

    def touch(kind, apart):
        points = [{"x": x - apart, "y": y, "id": 0}, {"x": x + apart, "y": y, "id": 1}] if apart else []
        fingers.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": points})

    touch("touchStart", 50)
    for apart in (60, 80, 100):
        touch("touchMove", apart)
    touch("touchEnd", 0)
    after = seen(page)
    assert after[1] - after[0] == pytest.approx((before[1] - before[0]) / 2, rel=0.1)


def test_no_zoom_leaves_the_recording(page):
    page.locator(".tl-canvas").focus()
    for _ in range(12):
        page.keyboard.press("s")
    assert seen(page) == (0, LENGTH_NS)
    for _ in range(60):
        page.keyboard.press("w")
    start, end = seen(page)
    assert end - start == pytest.approx(50, rel=1e-6)


# --- texts about an event ---


def test_a_click_shows_a_kernel_s_numbers(page):
    click(page, KERNELS, 1)
    shown = panel(page)
    duration_ns = 2 * MS + 111
    assert page.locator(".tl-panel code").inner_text() == clean_name("void at::native::gemm_kernel<float, 4>(int)")
    assert shown == {
        "where": "rank 0 · GPU 0 · stream 7 · kernels",
        "duration": f"{wording.duration(duration_ns)} ({duration_ns:,} ns)",
        "start": f"{wording.duration(14 * MS)} ({14 * MS:,} ns) after the start of the window",
        "in its step": f"{wording.duration(4 * MS)} after the start of step 1",
        "of the step": wording.share(duration_ns / STEP_NS),
        "details": "train.py:8",
        "launched": f"{wording.duration(1.5 * MS)} (1,500,000 ns) before by cudaLaunchKernel, on rank 0 · host · thread 1 · CUDA calls",
    }


def test_merged_events_show_their_number(page):
    page.get_by_role("button", name="Everything").click()
    seen(page)
    click(page, KERNELS, 4)
    shown = panel(page)
    assert shown["merged"] == "1,234 events, 87 % busy"
    assert page.locator(".tl-name").inner_text() == "many short events, the longest: kernel elementwise"
    assert shown["busy"] == f"{wording.duration(870_000)} (870,000 ns)"


def test_idle_is_named_as_in_the_step_s_bar(page):
    click(page, IDLE, 1)
    assert page.locator(".tl-panel code").inner_text() == PARTS["input_wait"].label.removeprefix("idle: ")
    assert PARTS["input_wait"].label in page.locator(".tl-legend").inner_text()


def test_from_a_kernel_to_its_launch_and_back(page):
    click(page, KERNELS, 1)
    page.get_by_role("button", name="Go to its launch").click()
    assert page.locator(".tl-panel code").inner_text() == "cudaLaunchKernel"
    assert page.locator(".tl-launches").inner_text().startswith("Launched in this time: 1")
    page.locator(".tl-launches button").click()
    assert panel(page)["details"] == "train.py:8"


def test_an_arrow_leads_from_the_launch_to_the_kernel(page):
    """Between the rows of the two, nothing is drawn but the arrow."""
    between = "(({ stage, layout, view, data }) => { const from = layout.rowAt(data.tracks[%d], 0), to = layout.rowAt(data.tracks[%d], 0);"
    between += "const y = Math.round((from.y + from.height + to.y) / 2); return [...stage.context.getImageData(view.left, y, view.width - view.left, 1).data]; })(timelineShown)"
    lines = [page.evaluate(between % (KERNELS, CALLS))]
    click(page, KERNELS, 1)
    seen(page)
    lines.append(page.evaluate(between % (KERNELS, CALLS)))
    changed = np.flatnonzero((np.array(lines[0]) != np.array(lines[1])).reshape(-1, 4).any(axis=1))
    assert 1 <= changed.size <= 40
    view = page.evaluate("timelineShown.view")
    at = view["start"] + changed.mean() * (view["end"] - view["start"]) / (view["width"] - view["left"])
    assert 12 * MS < at < 14.5 * MS


def test_the_tooltip_shows_what_the_pointer_is_on(page):
    page.mouse.move(*middle(page, KERNELS, 1))
    tip = page.locator(".tl-tip")
    assert "gemm_kernel" in tip.inner_text()
    assert wording.duration(2 * MS + 111) in tip.inner_text()
    page.mouse.move(5, 5)
    assert tip.is_hidden()


def test_the_name_is_copied(open_page, report):
    page = shown(open_page(report, "#timeline", permissions=["clipboard-read", "clipboard-write"]))
    click(page, OPS, 2)
    page.get_by_role("button", name="Copy name").click()
    page.get_by_role("button", name="Copied").wait_for()
    assert page.evaluate("navigator.clipboard.readText()") == page.locator(".tl-panel code").inner_text()


def test_a_name_with_markup_stays_text(open_page):
    page = shown(open_page(html.render(INPUT_BOUND, Views(timeline=small(hostile=IMAGE))), "#timeline"))
    click(page, OPS, 2)
    assert IMAGE in page.locator(".tl-panel code").inner_text()
    page.mouse.move(*middle(page, OPS, 2))
    assert IMAGE in page.locator(".tl-tip").inner_text()
    page.get_by_role("button", name="Find all of this name").click()
    assert page.locator(".tl-found").inner_text() == "4 matches"
    assert page.locator("img").count() == 0


# --- search ---


def test_search_counts_and_goes_round(page):
    box = page.get_by_role("searchbox", name="Search names")
    box.fill("GEMM_kernel")
    until(page, "document.querySelector('.tl-found').textContent === '4 matches'")
    starts = []
    for place in (2, 3, 4, 1):  # of four, the first one behind the window's start is the second
        box.press("Enter")
        assert page.locator(".tl-found").inner_text() == f"{place} of 4"
        starts.append(page.evaluate("timelineShown.selected.track.start[timelineShown.selected.piece]"))
        start, end = seen(page)
        assert start <= starts[-1] < end
    assert starts == [n * STEP_NS + 4 * MS for n in (1, 2, 3, 0)]
    page.get_by_role("button", name="Previous match").click()
    assert page.locator(".tl-found").inner_text() == "4 of 4"


def test_search_finds_details_and_causes_in_words_and_says_when_there_is_nothing(page):
    box = page.get_by_role("searchbox", name="Search names")
    for text, said in (
        ("train.py:9", "1 match"),
        ("waiting for data", "4 matches"),
        ("no such thing", "no match"),
        ("", ""),
    ):
        box.fill(text)
        until(page, f"document.querySelector('.tl-found').textContent === '{said}'")


def test_what_does_not_match_is_dimmed(page):
    page.evaluate("timelineShown.lookFor('gemm')")
    seen(page)
    compute = np.array(colour(page, "--compute"))
    paper = np.array(colour(page, "--card"))

    def ink(track):
        """How far from the paper the pixels of a row are, on average."""
        return np.abs(pixels(page, track) - paper).sum(axis=2).mean()

    found, other = ink(KERNELS), ink(OPS)
    assert found == pytest.approx(np.abs(compute - paper).sum() * 0.2, rel=0.2)
    page.evaluate("timelineShown.lookFor('')")
    seen(page)
    assert ink(OPS) > 2 * other


# --- without a mouse ---


def test_keys_alone_suffice(page):
    for _ in range(60):
        if page.evaluate("document.activeElement.classList.contains('tl-canvas')"):
            break
        page.keyboard.press("Tab")
    else:
        pytest.fail("Tab never came to the picture")
    live = page.locator(".tl-live")
    page.keyboard.press("Enter")
    assert live.inner_text().startswith("waiting for data (input-bound): idle, 1.00 ms")
    page.keyboard.press("ArrowDown")
    assert panel(page)["details"] == "train.py:8"
    page.keyboard.press("]")
    assert panel(page)["details"] == "train.py:9"
    page.keyboard.press("Shift+ArrowLeft")
    assert panel(page)["details"] == "train.py:8"
    page.keyboard.press("l")
    assert live.inner_text().startswith("cudaLaunchKernel: call")
    page.keyboard.press("Enter")
    start, end = seen(page)
    assert end - start == pytest.approx(20_000 * 1.7, rel=0.01)
    page.keyboard.press("/")
    page.keyboard.type("reduce")
    page.keyboard.press("Enter")
    assert live.inner_text().startswith("reduce_kernel: kernel")
    page.locator(".tl-canvas").focus()
    page.keyboard.press("n")
    assert page.locator(".tl-found").inner_text().endswith("of 4")
    page.keyboard.press("Escape")
    assert page.locator(".tl-panel").is_hidden()


# --- a moment from a finding ---


def test_an_address_leads_to_a_rank_s_moment(open_page, report):
    page = shown(open_page(report, "#timeline:1,27000000,28000000"))
    until(page, "timelineShown.marked")
    start, end = seen(page)
    assert (start, end) == pytest.approx((27 * MS - 0.35 * MS, 28 * MS + 0.35 * MS))
    assert page.locator(".tl-live").inner_text() == "Shown: 1.00 ms on rank 1, from 27.0 ms of the window."
    assert middle(page, OTHER_KERNELS, 2)[1] < 900
    drawn = pixels(page, OTHER_KERNELS)
    link = np.array(colour(page, "--link"))
    edges = np.flatnonzero((np.abs(drawn - link).sum(axis=2) < 12).all(axis=0))
    width = drawn.shape[1]
    assert edges.min() == pytest.approx(width * 0.35 / 1.7, abs=3)
    assert edges.max() == pytest.approx(width * 1.35 / 1.7, abs=3)


def test_a_moment_unfolds_what_was_folded_and_filtered_away(page):
    page.get_by_role("combobox", name="Ranks shown").select_option(label="rank 0")
    assert page.evaluate(f"timelineShown.placeOf(timelineShown.data.tracks[{OTHER_KERNELS}], 0)") is None
    page.evaluate("timelineShown.layout.folded[2] = true")
    page.evaluate("showOnTimeline(1, 7000000, 8000000)")
    assert page.get_by_role("combobox", name="Ranks shown").input_value() == "1"
    assert page.get_by_role("button", name="rank 1 · GPU 1").get_attribute("aria-expanded") == "true"
    assert not is_paper(page, pixels(page, OTHER_KERNELS)).all()


# --- groups and ranks ---


def test_a_group_folds_to_a_strip_that_still_shows_its_pieces(page):
    group = page.get_by_role("button", name="rank 0 · GPU 0")
    height = page.evaluate("timelineShown.layout.height")
    group.focus()
    page.keyboard.press("Enter")
    assert group.get_attribute("aria-expanded") == "false"
    assert page.evaluate("timelineShown.layout.height") < height - 100
    strip = pixels(page, KERNELS)  # of a folded group its header
    compute = np.array(colour(page, "--compute"))
    width = strip.shape[1]
    shares = (np.abs(strip - compute).sum(axis=2) < 120).any(axis=0).sum() / width
    assert shares == pytest.approx((2 * MS + 111) / (STEP_NS * 1.04), abs=0.01)
    group.click()
    assert page.evaluate("timelineShown.layout.height") == height


def test_a_deep_track_folds_to_thin_rows(page):
    track = page.get_by_role("button", name="thread 1 · ops")
    assert track.get_attribute("aria-expanded") == "true"
    track.click()
    assert track.get_attribute("aria-expanded") == "false"
    assert not is_paper(page, pixels(page, OPS, row=1)).all()


def test_one_rank_alone(page):
    ranks = page.get_by_role("combobox", name="Ranks shown")
    ranks.select_option(label="rank 1")
    assert [label.get_attribute("title") for label in page.locator(".tl-group:visible").all()] == ["rank 1 · GPU 1"]
    page.get_by_role("searchbox", name="Search names").fill("kernel")
    until(page, "document.querySelector('.tl-found').textContent === '4 matches'")
    ranks.select_option(label="all ranks")
    until(page, "document.querySelector('.tl-found').textContent === '12 matches'")


# --- what is drawn ---


def test_a_counter_is_as_high_as_its_values(page):
    page.get_by_role("button", name="Everything").click()
    seen(page)
    drawn = ~is_paper(page, pixels(page, COUNTER))
    width = drawn.shape[1]
    heights = [int(drawn[:, int(width * part)].sum()) for part in (0.1, 0.35, 0.6, 0.9)]
    assert heights[0] == pytest.approx(heights[1] / 2, abs=1.5)
    assert heights[2] == 0  # unknown
    assert heights[3] == pytest.approx(heights[1] / 4, abs=1.5)
    x, y = middle(page, COUNTER, 1)
    page.mouse.move(x + 100, y)
    assert "2.00 GiB" in page.locator(".tl-tip").inner_text()


@pytest.fixture(scope="module")
def crowd():
    return dense(200_000)


@pytest.fixture(scope="module")
def crowded(crowd):
    return html.render(INPUT_BOUND, Views(timeline=crowd))


@pytest.mark.parametrize("ratio", [1, 2])
def test_two_hundred_thousand_pieces_are_as_high_as_they_were_busy(open_page, crowd, crowded, ratio):
    """Where pieces are narrower than a pixel, the ink in some columns is the time that its pieces took."""
    page = shown(open_page(crowded, "#timeline", device_scale_factor=ratio))
    page.evaluate("timelineShown.showAll()")
    seen(page)
    for track in (1, 2, 3):
        drawn = pixels(page, track)
        ink = np.abs(drawn - np.array(colour(page, "--compute"))).sum(axis=2) < 30
        assert not is_paper(page, drawn).any(), "a column without any piece"
        edges = np.linspace(0, drawn.shape[1], 9).astype(int)
        for one, other in pairwise(edges):
            times = [int(crowd.length_ns * edge / drawn.shape[1]) for edge in (one, other)]
            assert ink[:, one:other].mean() == pytest.approx(busy_share(crowd.tracks[track], *times), abs=0.03)


def test_pieces_of_some_pixels_cover_what_they_took(open_page, crowd, crowded):
    page = shown(open_page(crowded, "#timeline"))
    page.evaluate("timelineShown.see(0, timelineShown.data.length / 40)")
    seen(page)
    drawn = pixels(page, 1)
    share = 1 - is_paper(page, drawn).mean()
    gap = 400 / drawn.shape[1] * 0.5  # a pixel between neighbours, where there is room for one
    assert share == pytest.approx(busy_share(crowd.tracks[1], 0, crowd.length_ns // 40), abs=0.03 + gap)


def test_the_colours_follow_the_light(page):
    light = pixels(page, KERNELS)
    page.emulate_media(color_scheme="dark")
    until(page, "timelineShown.colours.card[0] < 100")
    seen(page)
    dark = pixels(page, KERNELS)
    assert is_paper(page, dark).mean() == pytest.approx(0.8, abs=0.05)
    assert (light != dark).all(axis=2).mean() > 0.7


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_names_on_pieces_can_be_read(open_page, report, scheme):
    """WCAG 2 AA: the ink of every fill has a contrast of 4.5 or more."""
    page = shown(open_page(report, "#timeline", color_scheme=scheme))
    fills, inks = page.evaluate("[timelineShown.colours.fills, timelineShown.colours.inks]")

    def light(red, green, blue):
        linear = [
            v / 12.92 if v <= 0.04045 else ((v + 0.055) / 1.055) ** 2.4 for v in (red / 255, green / 255, blue / 255)
        ]
        return float(np.dot(linear, (0.2126, 0.7152, 0.0722))) + 0.05

    assert len(fills) == len(inks) > 100
    for fill, ink in zip(fills, inks, strict=True):
        ground = light(fill & 255, fill >> 8 & 255, fill >> 16 & 255)
        text = light(*(int(ink[at : at + 2], 16) for at in (1, 3, 5)))
        assert max(ground, text) / min(ground, text) >= 4.5


def test_a_phone_has_labels_above_their_tracks_and_no_sideways_scrolling(open_page, report):
    page = shown(open_page(report, "#timeline", viewport={"width": 360, "height": 740}))
    assert page.evaluate("document.scrollingElement.scrollWidth") <= 360
    assert page.evaluate("timelineShown.view.left") == 0
    label = page.locator(".tl-track", has_text="stream 7 · kernels").first.bounding_box()
    assert label["y"] + label["height"] <= middle(page, KERNELS, 1)[1]
    click(page, KERNELS, 1)
    assert page.evaluate("document.scrollingElement.scrollWidth") <= 360


def test_it_is_drawn_when_its_page_is_opened(open_page, report):
    page = open_page(report)
    until(page, "Boolean(timelineShown)")
    page.locator("nav a[href='#timeline']").click()
    until(page, "timelineShown.view.width > 0")
    seen(page)
    assert not is_paper(page, pixels(page, STEPS)).all()


def test_paper_gets_a_picture_even_from_another_page(open_page, report):
    page = open_page(report)
    until(page, "Boolean(timelineShown)")
    assert page.evaluate("timelineShown.view.width") == 0
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert page.evaluate("timelineShown.view.width") == 680
    assert not is_paper(page, pixels(page, STEPS)).all()
