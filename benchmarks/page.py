"""How fast is the report in a browser? First paint, and frames a second while one zooms and moves. `make bench`.

On the largest public recordings, and on a synthetic timeline with 200,000 pieces in sight. A frame is what
`requestAnimationFrame` gives between two draws, so 60 a second is the most that a screen of 60 Hz shows; the time that
drawing itself took is printed beside it, as the machine may be busy with other things.
"""

from __future__ import annotations

import shutil
import statistics
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from labels import recordings
from playwright.sync_api import sync_playwright
from timelines import dense

from perfdoctor.diagnosis.engine import examine
from perfdoctor.errors import PerfdoctorError
from perfdoctor.metrics.accounting.prepare import prepare
from perfdoctor.readers.open import read
from perfdoctor.records.diagnosis import Diagnosis
from perfdoctor.records.views import Views
from perfdoctor.report import html
from perfdoctor.views.build import views
from perfdoctor.vocabulary.rulebook import load_rules

_CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
#: Formats that are read in this process; reports of nsys are exported first, which is not the browser's business.
_READ_AT_ONCE = (".json.gz", ".json", ".sqlite")
_LARGEST = 3
_SYNTHETIC_PIECES = 200_000
_ROUNDS = 2

#: When the browser painted anything, and when the first picture of the timeline was there, in ms since the page began.
_WATCH = """
addEventListener("DOMContentLoaded", () => {
  const look = () => {
    if (typeof timelineShown !== "undefined" && timelineShown?.view.width) window.drawnAt = performance.now();
    else requestAnimationFrame(look);
  };
  look();
});
"""
_PAINTED = """
new Promise((settle) => {
  const look = () => {
    const paint = performance.getEntriesByName("first-contentful-paint")[0];
    if (paint && window.drawnAt) settle([paint.startTime, window.drawnAt]);
    else setTimeout(look, 10);
  };
  look();
})
"""
#: Zoom in and out around a moment, then move there and back: for each frame how long it was, and how long it was drawn.
_RIDE = """
(async () => {
  const timeline = timelineShown;
  const drawn = [];
  const draw = timeline.draw.bind(timeline);
  timeline.draw = () => {
    const begun = performance.now();
    draw();
    drawn.push(performance.now() - begun);
  };
  const frames = [];
  const ride = async (count, act) => {
    for (let frame = 0; frame < count; frame++) {
      act(frame);
      const now = await new Promise(requestAnimationFrame);
      frames.push(now - last);
      last = now;
    }
  };
  timeline.showAll();
  let last = await new Promise(requestAnimationFrame);
  last = await new Promise(requestAnimationFrame);
  const around = timeline.data.length * 0.4;
  await ride(60, () => timeline.zoom(1.06, around));
  await ride(60, () => timeline.zoom(1 / 1.06, around));
  timeline.zoom(2, around);
  await ride(30, () => timeline.pan(8));
  await ride(30, () => timeline.pan(-8));
  return [frames, drawn];
})()
"""


def lines(*, is_quick: bool = False) -> Iterator[str]:
    """A table of reports in headless Chromium; a sentence where there is none."""
    if _CHROMIUM is None:
        yield "Not measured: there is no Chromium here (apt-get install chromium)."
        return
    yield "| report | size | pieces | first paint | timeline | frames a second | slowest twentieth | drawing |"
    yield "| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |"
    with sync_playwright() as playwright, tempfile.TemporaryDirectory() as folder:
        browser = playwright.chromium.launch(executable_path=_CHROMIUM, args=["--no-sandbox"])
        for name, diagnosis, shown in _reports(0 if is_quick else _LARGEST):
            path = Path(folder) / "report.html"
            path.write_text(html.render(diagnosis, shown), "utf-8")
            yield _row(name, path, shown, [_measured(browser, path) for _ in range(1 if is_quick else _ROUNDS)])
        browser.close()


def _reports(largest: int) -> Iterator[tuple[str, Diagnosis, Views]]:
    """The synthetic one takes the words of the last diagnosis: only its timeline is measured."""
    rules = list(load_rules().values())
    for path in [Path(__file__).parents[1] / "fixtures" / "input-bound-single-process" / "torch", *_largest(largest)]:
        try:
            run = prepare(read([path]))
        except PerfdoctorError as error:
            print(f"{path.name}: {error}", file=sys.stderr)
            continue
        diagnosis = examine(run, rules).diagnosis
        shown = views(run, diagnosis)
        if shown.timeline:
            yield path.parent.name if path.name == "torch" else path.name, diagnosis, shown
    yield f"synthetic, {_SYNTHETIC_PIECES:,} pieces in sight", diagnosis, Views(timeline=dense(_SYNTHETIC_PIECES))


def _largest(count: int) -> list[Path]:
    folder = recordings()
    if folder is None:
        return []
    found = [
        path
        for path in folder.rglob("*")
        if path.name.endswith(_READ_AT_ONCE) and path.parent.name in ("kineto", "edge", "nsys")
    ]
    return sorted(found, key=lambda path: -path.stat().st_size)[:count]


def _measured(browser: Any, path: Path) -> tuple[float, float, list[float], list[float]]:
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    page = context.new_page()
    page.add_init_script(_WATCH)
    page.goto(path.as_uri() + "#timeline")
    painted_ms, timeline_ms = page.evaluate(_PAINTED)
    frames_ms, drawn_ms = page.evaluate(_RIDE)
    context.close()
    return painted_ms, timeline_ms, frames_ms, drawn_ms


def _row(name: str, path: Path, shown: Views, rounds: list[tuple[float, float, list[float], list[float]]]) -> str:
    """The best of the rounds: what others do on the machine only ever adds."""
    assert shown.timeline is not None
    pieces = sum(track.start_ns.size for track in shown.timeline.tracks)
    painted, timeline = min(each[0] for each in rounds), min(each[1] for each in rounds)
    frames = min((each[2] for each in rounds), key=statistics.fmean)
    slowest = statistics.quantiles(frames, n=20)[-1]
    drawing = min(statistics.median(each[3]) for each in rounds)
    return (
        f"| {name} | {path.stat().st_size / 1024:,.0f} KiB | {pieces:,} | {painted:.0f} ms | {timeline:.0f} ms | "
        f"{1000 / statistics.fmean(frames):.0f} | {slowest:.1f} ms | {drawing:.1f} ms |"
    )


if __name__ == "__main__":
    print(*lines(), sep="\n")
