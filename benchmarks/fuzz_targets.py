"""What is read of a stranger, how is it changed, and what must hold of whatever is made of it?

Each target has small files, changes that know their form, and what the program does with such a file. That returns a word
of what came out, so that a file with another outcome is changed further. It raises PerfdoctorError, or it is wrong.
"""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory

import fuzz_seeds as seeds
import msgspec
import mutations as change
from fuzz_properties import check, check_error, check_timeline, hold
from mutations import Mutation
from rich.console import Console

from perfdoctor.comparison import snapshot
from perfdoctor.diagnosis.engine import examine
from perfdoctor.errors import PerfdoctorError
from perfdoctor.hardware import measured
from perfdoctor.history import metrics, runs, series, store
from perfdoctor.metrics.accounting.prepare import prepare
from perfdoctor.model.timeline import Timeline
from perfdoctor.readers import formats
from perfdoctor.readers.open import read
from perfdoctor.records.diagnosis import Diagnosis
from perfdoctor.records.findings import with_symptoms
from perfdoctor.report import html, json_document, json_report, markdown, stored_diagnosis, terminal
from perfdoctor.scale.read import read_run
from perfdoctor.scrubbing.copies import scrubbed
from perfdoctor.system.progress import silent, unheard
from perfdoctor.viewer.contents import Folder
from perfdoctor.viewer.root import ViewedFolder
from perfdoctor.views.build import views
from perfdoctor.vocabulary import own_rules, rulebook

#: Every so manyth file is also rendered as every report: that takes ten times as long as a diagnosis.
_RENDERED_EVERY = 20
#: What the members of a folder are changed by, by the ends of their names.
_MEMBERS: Sequence[tuple[str, Mutation]] = (
    (".json.gz", change.inside_gzip(change.tree)), (".json", change.several(change.tree, change.tree, change.raw)),
    (".sqlite", change.several(change.cells, change.raw)), (".csv", change.several(change.words, change.lines)),
    (".txt", change.several(change.words, change.lines)), (".log", change.several(change.words, change.lines)),
)  # fmt: skip
_JSON = change.several(change.tree, change.tree, change.tree, change.raw, change.words)
_TEXT = change.several(change.words, change.words, change.lines, change.raw)
_TABLES = change.several(change.cells, change.cells, change.cells, change.in_place, change.raw)
_BYTES = change.several(change.in_place, change.in_place, change.raw)
#: A link of a changed folder leads here, beside it.
OUTSIDE = "../outside"

Use = Callable[[Path, Random], str]


@dataclass(frozen=True)
class Target:
    """`name` of the file that a content is written into; "" where it is a folder. `kinds`: of `readers/formats.py`.

    `use`: all that the program does with it; `reads`: the reader alone, where that is much less.
    """

    seeds: Callable[[], list[bytes]]
    mutation: Mutation
    use: Use
    name: str = ""
    kinds: tuple[str, ...] = ()
    reads: Use | None = None


@cache
def _rules() -> list[rulebook.Rule]:
    return list(rulebook.load_rules().values())


def _diagnosed(timeline: Timeline, random: Random) -> str:
    run = prepare(timeline)
    return _examined(run, random)


def _examined(run: object, random: Random) -> str:
    examination = examine(run, _rules())  # type: ignore[arg-type]
    diagnosis = examination.diagnosis
    check(diagnosis)
    text = json_report.render(diagnosis)
    msgspec.json.decode(text)
    if random.randrange(_RENDERED_EVERY) == 0:
        _rendered(diagnosis)
        html.render(diagnosis, views(examination.run, diagnosis))
        snapshot.of_examination("x", examination, rulebook.load_rules(), ())
    found = sorted({advice.rule for advice in with_symptoms(diagnosis.findings)})
    return _lines(found, diagnosis.notes)


def _rendered(diagnosis: Diagnosis) -> None:
    markdown.render(diagnosis)
    terminal.render(diagnosis, Console(file=io.StringIO(), width=100), show_all=True)


def _lines(words: Iterable[str], notes: Iterable[str]) -> str:
    """An outcome as lines: one that none had before makes it new, whatever the others are."""
    return "\n".join(sorted({*words, *map(kind, notes)}))


def kind(text: str) -> str:
    """A note without its numbers and names."""
    return re.sub(r"[\d.,]+|'[^']*'|\"[^\"]*\"", "", text)[:60]


# --- what is done with a file ----------------------------------------------------------------------------------------


def alone(path: Path, _random: Random) -> str:
    """What its reader makes of a file, beside a recording that was read before where it joins one."""
    row = formats.of_named(path) if path.is_file() else None
    if row is None or row.read is None or row.join is None:
        timeline = read([path])
    else:
        timeline = row.join(_small_timeline(), [row.read(path, silent, unheard)])
    check_timeline(timeline)
    return _lines(timeline.recorded, timeline.notes)


@cache
def _small_timeline() -> Timeline:
    with TemporaryDirectory() as folder:
        trace = Path(folder) / "rank0.pt.trace.json"
        trace.write_bytes(_small_trace())
        return read([trace])


def recording(path: Path, random: Random) -> str:
    """Return the target of a file that stands alone."""
    return _diagnosed(read([path]), random)


def beside(path: Path, random: Random) -> str:
    """Return the target of a file that joins a recording: it is read alone, and every second time with one."""
    if random.randrange(2):
        return joined(path, random)
    timeline = read([path])
    prepare(timeline)
    return _lines(timeline.recorded, timeline.notes)


def joined(path: Path, random: Random) -> str:
    """Return the target of a file that says nothing without a recording."""
    trace = path.with_name("rank0.pt.trace.json")
    trace.write_bytes(_small_trace())
    return _diagnosed(read([trace, path]), random)


@cache
def _small_trace() -> bytes:
    return seeds.small_trace()


def whole_folder(path: Path, random: Random) -> str:
    """Return the target of a run or of the ranks of a job: read at once, or in parts, and listed by the viewer."""
    Folder(ViewedFolder(path)).contents()
    run = read_run([path], silent, most_in_full=random.choice((None, None, 1)))
    return _examined(run, random)


def left_rank(path: Path, random: Random) -> str:
    """What a node left of a rank: in full, or as its summary."""
    return _examined(read_run([path], silent, most_in_full=random.choice((None, 0))), random)


def copy(path: Path, _random: Random) -> str:
    """A copy to hand on."""
    copied = scrubbed(path, path.with_name("copy"), silent)
    written = sum(file.is_file() for file in copied.written.rglob("*"))
    hold(written == copied.files, f"{written} files, and not {copied.files}")
    return _lines(copied.removed, (*copied.left_out.values(), *("damaged" for _ in copied.damaged)))


def stored_file(path: Path, _random: Random) -> str:
    """A diagnosis that is read again, and not printed."""
    found = stored_diagnosis.stored("d", path)
    return "no document" if found is None else f"{len(found.findings)} {len(found.notes)}"


def diagnosis_file(path: Path, random: Random) -> str:
    """Printed again, compared, and listed by the viewer."""
    known = rulebook.load_rules()
    document = json_document.document("d", path)
    if document is None:
        return "no document"
    snapshot.of_document("d", document, known)
    found = stored_diagnosis.stored("d", path)
    assert found is not None
    _rendered(found)
    if random.randrange(_RENDERED_EVERY) == 0:
        html.render(found)
    return f"{len(found.findings)} {len(found.notes)}"


def history_file(path: Path, _random: Random) -> str:
    """Listed, drawn as a trend, brought up to date and merged into another."""
    with store.read(path) as db:
        rows = runs.listed(db)
        for row in rows[:3]:
            if isinstance(row["id"], str):
                runs.stored(db, row["id"])
        series.trend(db, metrics.metric(metrics.STEP), folder=path.parent)
    with store.written(path.with_name("other.sqlite")) as db:
        merged = runs.merge(db, path)
    return f"{len(rows)} {merged}"


def own_rule(path: Path, _random: Random) -> str:
    (path.parent / "slow_add.py").write_text("def detect(run, at):\n    return iter(())\n")
    own_rules.all_rules([str(path.parent)])
    return str(sorted(map(kind, own_rules.unusable(path))))


def config(path: Path, _random: Random) -> str:
    rulebook.with_thresholds(rulebook.load_rules(), path)
    own_rules.named_in(path)
    return "read"


def rates(path: Path, _random: Random) -> str:
    found = measured.load(path)
    hold(all(each.median >= 0 for each in found.measurements), "a negative rate")
    return f"{len(found.measurements)}"


TARGETS: dict[str, Target] = {
    "kineto": Target(seeds.traces, _JSON, recording, "rank0.pt.trace.json", ("kineto",), alone),
    "kineto-gz": Target(
        lambda: [change.gzip.compress(each, 1) for each in seeds.traces()],
        change.several(change.inside_gzip(_JSON), change.inside_gzip(_JSON), change.raw), recording, "rank0.pt.trace.json.gz", ("kineto",), alone,
    ),
    "nsys": Target(seeds.exports, _TABLES, recording, "profile.sqlite", ("nsys",), alone),
    "nsys-arrow": Target(lambda: seeds.tables(".arrow"), change.folder((("", _BYTES),), OUTSIDE), recording, kinds=("nsys-arrow",), reads=alone),
    "nsys-parquet": Target(lambda: seeds.tables(".parquet"), change.folder((("", _BYTES),), OUTSIDE), recording, kinds=("nsys-parquet",), reads=alone),
    "zip": Target(seeds.archives, change.several(change.inside_zip(_MEMBERS), change.inside_zip(_MEMBERS), change.in_place, change.raw), recording, "f.zip", ("zip",), alone),
    "ncu-report": Target(seeds.ncu_reports, _BYTES, beside, "f.ncu-rep", ("ncu-report",), alone),
    "ncu-table": Target(seeds.ncu_csv, _TEXT, beside, "f.csv", ("ncu-table",), alone),
    "ncu-text": Target(seeds.ncu_text, _TEXT, beside, "f.txt", ("ncu-text",), alone),
    "snapshot": Target(seeds.memory_snapshots, change.several(change.pickled, change.pickled, change.raw), recording, "f.pickle", ("snapshot",), alone),
    "memory-timeline": Target(seeds.memory_timelines, _JSON, beside, "f.json", ("memory-timeline",), alone),
    "flight-recorder": Target(
        lambda: seeds.flight_recordings()[0], change.several(change.pickled, change.pickled, change.raw), beside, "dump", ("flight-recorder",), alone
    ),
    "flight-recorder-json": Target(lambda: seeds.flight_recordings()[1], _JSON, beside, "dump.json", ("flight-recorder",), alone),
    "stacks": Target(lambda: seeds.stacks()[0], _JSON, joined, "stacks.json", ("stacks",), alone),
    "stacks-text": Target(lambda: seeds.stacks()[1], _TEXT, joined, "stacks.txt", ("stacks",), alone),
    **{kind: Target(lambda kind=kind: seeds.side_texts(kind), _TEXT, beside, "side.txt", (kind,), alone) for kind in seeds.SIDE_TEXTS},  # type: ignore[misc]
    "cpu": Target(seeds.cpu_samples, _TEXT, beside, "cpu.csv", ("cpu",), alone),
    "rank": Target(lambda: seeds.left()[0], change.several(change.packed_tree, change.packed_tree, change.raw), left_rank, "a.rank", ("rank",)),
    "machine": Target(lambda: seeds.left()[1], change.several(change.packed_tree, change.packed_tree, change.raw), beside, "a.machine", ("machine",), alone),
    "run.json": Target(seeds.small_runs, change.member("run.json", _JSON), whole_folder, reads=alone),
    "run-folder": Target(seeds.run_folders, change.folder(_MEMBERS, OUTSIDE), whole_folder, reads=alone),
    "ranks": Target(seeds.folders_of_ranks, change.folder(_MEMBERS, OUTSIDE), whole_folder, reads=alone),
    "scrub": Target(seeds.parts_of_runs, change.folder(_MEMBERS, OUTSIDE), copy),
    "diagnosis.json": Target(seeds.diagnoses, _JSON, diagnosis_file, "diagnosis.json", reads=stored_file),
    "history": Target(seeds.histories, _TABLES, history_file, "history.sqlite"),
    "own-rules": Target(seeds.own_rules, _TEXT, own_rule, "slow-add.toml"),
    "config": Target(seeds.settings, _TEXT, config, "pyproject.toml"),
    "measured.json": Target(seeds.measured, _JSON, rates, "measured.json"),
}  # fmt: skip
#: Read by NVIDIA's own program alone.
ELSEWHERE = {"report"}


def outcome(use: Use, path: Path, random: Random) -> str:
    """What came out, a line for each thing. Raises whatever is wrong."""
    try:
        return use(path, random)
    except PerfdoctorError as error:
        check_error(error)
        return f"error {kind(error.what)}"
