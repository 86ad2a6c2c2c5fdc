"""Every kind of page that perfdoctor writes: of a training with faults, and of one whose names want to be scripts."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path

from comparison import scaled
from folders import FIXTURES, ROOT
from history.histories import STEP_NS, facts, history
from msgspec.structs import replace

from perfdoctor.comparison.compare import compare
from perfdoctor.comparison.scaling.series import scaling
from perfdoctor.comparison.snapshot import of_examination
from perfdoctor.diagnosis.engine import examine
from perfdoctor.history import series, store
from perfdoctor.history.metrics import metric
from perfdoctor.metrics.accounting.prepare import prepare
from perfdoctor.readers.open import read
from perfdoctor.records.diagnosis import Diagnosis
from perfdoctor.report import html
from perfdoctor.report.comparison import html as comparison_page
from perfdoctor.report.scaling import html as scaling_page
from perfdoctor.views.build import views
from perfdoctor.views.pages import timeline
from perfdoctor.vocabulary.rulebook import load_rules

PHONE = {"viewport": {"width": 360, "height": 740}}
IMAGE = "</script><img src=x onerror=alert(1)>"
#: Of four ranks that wait for data and for a slow one: most pages have something to show.
FAULTS = ("input-wait=0.2", "rank-skew=0.1", "fp32-matmuls=0.15")
_FIXTURE = FIXTURES / "input-bound-single-process" / "torch" / "rank0.pt.trace.json.gz"


def addresses(page):
    """Of all pages in the file; "" where it has a single one."""
    return page.eval_on_selector_all("nav a", "all => all.map(one => one.hash)") or [""]


def reported(folder: Path) -> tuple[Diagnosis, str]:
    """A diagnosis and its report."""
    run = prepare(read([folder]))
    diagnosis = examine(run, list(load_rules().values())).diagnosis
    made = views(run, diagnosis)
    assert made.failed == ()
    return diagnosis, html.render(diagnosis, made)


@cache
def planted(folder: Path, *faults: str) -> Path:
    """Traces of four ranks with these faults."""
    target = folder / ("-".join(faults) or "healthy").replace("=", "")
    plant = [sys.executable, str(ROOT / "fixtures" / "plant.py"), *faults, "--ranks", "4", "--seed", "3"]
    subprocess.run([*plant, "-o", str(target)], check=True)
    return target / "torch"


@cache
def hostile_trace(folder: Path) -> Path:
    """A trace in which every name wants to be a script."""
    trace = json.loads(gzip.decompress(_FIXTURE.read_bytes()))
    for event in trace["traceEvents"]:
        if event.get("cat") in ("kernel", "cpu_op", "user_annotation", "cuda_runtime") and "Step" not in event["name"]:
            event["name"] += IMAGE
    for device in trace.get("deviceProperties", []):
        device["name"] += IMAGE
    (folder / "rank0.json").write_text(json.dumps(trace))
    return folder / "rank0.json"


def _compared(before: Path, after: Path, names: tuple[str, str] = ("before", "after")) -> str:
    rules = load_rules()
    runs = [examine(prepare(read([path])), list(rules.values())) for path in (before, after)]
    sides = [of_examination(name, run, rules, []) for name, run in zip(names, runs, strict=True)]
    drawn = [next(timeline.view(run.run, run.diagnosis, comparison_page.MOST_TIMELINE_BYTES)) for run in runs]
    return comparison_page.render(compare(sides[:1], sides[1:]), dict(zip(("before", "after"), drawn, strict=True)))


def _series(folder: Path, name: str = "") -> str:
    recorded = [scaled.ring(ranks, folder / f"{ranks}gpu") for ranks in (1, 2, 4)]
    if name:
        recorded = [replace(each, snapshot=_renamed(each.snapshot, name)) for each in recorded]
    return scaling_page.render(scaling(recorded))


def _renamed(snapshot, name):
    work = tuple(replace(each, op=each.op and each.op + name, kernel=each.kernel + name) for each in snapshot.work)
    settings = {**snapshot.settings, "GPU": name, "torch": f"{snapshot.name}{name}"}
    return replace(snapshot, name=f"{snapshot.name}{name}", work=work, settings=settings)


def _trend(folder: Path, **changes: str) -> str:
    levels = [STEP_NS] * 8 + [round(1.1 * STEP_NS)] * 4
    file = history(folder / "history.db", [facts(n, step_ns=ns, **changes) for n, ns in enumerate(levels)])
    with store.read(file) as db:
        return html.render_trend(series.trend(db, metric("step"), folder=folder))


#: By kind of page: one with much to show, and one of hostile names. Each takes an empty folder.
PAGES: dict[str, tuple[Callable[[Path], str], Callable[[Path], str]]] = {
    "report": (lambda folder: reported(planted(folder, *FAULTS))[1], lambda folder: reported(hostile_trace(folder))[1]),
    "comparison": (
        lambda folder: _compared(planted(folder, *FAULTS), planted(folder)),
        lambda folder: _compared(hostile_trace(folder), _FIXTURE, (IMAGE, IMAGE)),
    ),
    "scaling": (_series, lambda folder: _series(folder, IMAGE)),
    "trend": (_trend, lambda folder: _trend(folder, program=IMAGE, command=IMAGE, device=IMAGE, id=IMAGE)),
}
