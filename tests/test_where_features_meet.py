"""Does every report take every kind of recording, or say in a line why not, and do all say the same of it?"""

from __future__ import annotations

import json
import re
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import ncu_tables
import pytest
from folders import FIXTURES
from msgspec import Struct
from planet import Job, write
from snapshots import MIB, Recording
from typer.testing import CliRunner

import perfdoctor
from perfdoctor.assistant.desk import Desk
from perfdoctor.assistant.root import AllowedRoot
from perfdoctor.assistant.worker import ToolRequest, answered
from perfdoctor.cli.main import app

RANKS = 16
#: What is true of each, as it was made: GPUs, ranks of the job, and ranks of which there is a timeline.
INPUTS = {
    "file": (1, 1, 1), "folder": (4, 4, 4), "run": (1, 1, 1), "job": (RANKS, RANKS, 3), "ncu": (1, 0, 0),
    "memory": (1, 1, 0), "diagnosis": (1, 1, 0),
}  # fmt: skip
GPU = ("device__attribute_display_name", "", "NVIDIA A100-SXM4-80GB")
#: What cannot be: the one line that says why, and the exit code of the command.
NO_TIMELINE = ("nothing in this recording has timestamps", 1)
NO_STEP = ("holds no step that could be checked", 1)
NO_RECORDING = ("is a result that perfdoctor wrote", 1)
REFUSED = {
    ("ncu", "perfetto"): NO_TIMELINE, ("memory", "perfetto"): NO_TIMELINE,
    ("ncu", "check"): NO_STEP, ("memory", "check"): NO_STEP,
    ("diagnosis", "html"): ("holds its diagnosis alone", 2), ("diagnosis", "history"): ("holds its diagnosis alone", 2),
    ("diagnosis", "sql"): NO_RECORDING, ("diagnosis", "parquet"): NO_RECORDING,
    ("diagnosis", "perfetto"): NO_RECORDING,
}  # fmt: skip


class RefusedError(Exception):
    """A refusal: what is printed, and the exit code; None from Python and an assistant."""

    def __init__(self, said: str, code: int | None = None) -> None:
        super().__init__(said)
        self.said, self.code = said, code


class Said(Struct):
    """What one report says: GPUs, ranks, ns of a step, of all windows together, rules in order; None: not of it."""

    gpus: int | None = None
    ranks: int | None = None
    step_ns: float | None = None
    window_ns: int | None = None
    rules: list[str] | None = None


class Meeting(Struct):
    """One recording at hand. `truth`: its diagnosis as JSON. `folder`: empty, to write to."""

    name: str
    path: Path
    truth: dict[str, Any]
    folder: Path

    def call(self, *arguments: object) -> str:
        """The standard output of the command; what goes wrong is a refusal, in a line each of what and why."""
        done = CliRunner().invoke(app, [*map(str, arguments)])
        if isinstance(done.exception, Exception):
            raise done.exception
        if done.exit_code:
            raise RefusedError(done.stderr, done.exit_code)
        return done.stdout

    def analyze(self, *options: object) -> str:
        return self.call("analyze", self.path, *options)


@pytest.fixture(scope="session")
def places(tmp_path_factory) -> dict[str, Path]:
    """One recording of each kind."""
    folder = tmp_path_factory.mktemp("meeting")
    (folder / "traces").mkdir()
    write(Job.of(RANKS, "rank"), folder / "traces")
    assert not CliRunner().invoke(app, ["summarize", f"{folder / 'traces'}", "-o", f"{folder / 'job'}"]).exit_code
    snapshot = Recording()
    snapshot.alloc(100 * MIB, "work/model.py:4 forward", "work/train.py:30 main")
    (folder / "kernels.csv").write_text(ncu_tables.wide([*ncu_tables.RAW, GPU], launches=3))
    found = {
        "file": FIXTURES / "healthy" / "torch" / "rank0.pt.trace.json.gz",
        "folder": FIXTURES / "straggler" / "torch",
        "run": FIXTURES / "pairs" / "h100-fp32-matmuls",
        "job": folder / "job",
        "ncu": folder / "kernels.csv",
        "memory": snapshot.write(folder / "rank0.pickle"),
        "diagnosis": folder / "diagnosis.json",
    }
    assert (
        not CliRunner()
        .invoke(app, ["analyze", f"{found['file']}", "--no-html", "--json", f"{found['diagnosis']}"])
        .exit_code
    )
    return found


@pytest.fixture(scope="session")
def truths(places) -> dict[str, dict[str, Any]]:
    """The diagnosis of each recording as JSON, that of all others is held against."""
    options = ["--json", "-", "--no-html"]
    return {
        name: json.loads(CliRunner().invoke(app, ["analyze", f"{path}", *options]).stdout)
        for name, path in places.items()
    }


# --- what each says --------------------------------------------------------------------------------------------------


def of_document(document: dict[str, Any]) -> Said:
    run, time = document["run"], document["time"]
    return Said(
        len(run["gpus"]),
        len({each["rank"] for each in (*time, *document["memory"])}) or None,
        document["base_ns"] or None,
        sum(each["window_ns"] for each in time),
        [each["rule"] for each in document["findings"]],
    )


def of_text(text: str) -> Said:
    """By the line that says what was recorded: `4 × NVIDIA A100 · 4 ranks`."""
    line = next(line for line in text.replace("&nbsp;", " ").splitlines() if " · " in line)
    first, *others = re.sub("<[^>]*>", "", line).strip().split(" · ")
    gpus = re.match(r"(\d+) (?:×|GPU)", first)
    ranks = next((int(found[1]) for each in others if (found := re.fullmatch(r"(\d+) ranks?", each))), None)
    return Said(int(gpus[1]) if gpus else 1, ranks)


def page(at: Meeting) -> Said:
    at.analyze("--html", at.folder / "page.html", "--quiet")
    text = (at.folder / "page.html").read_text("utf-8")
    embedded = re.search(r'<script type="application/json" id="diagnosis">(.*?)</script>', text, re.DOTALL)
    assert embedded is not None
    said, shown = of_document(json.loads(embedded[1])), of_text(text[text.index('id="recording"') :])
    assert (said.gpus, said.ranks) == (shown.gpus, shown.ranks or said.ranks)
    return said


def sarif(at: Meeting) -> Said:
    (run,) = json.loads(at.analyze("--format", "sarif", "--no-html"))["runs"]
    return Said(rules=[each["ruleId"] for each in run["results"]])


def sql(at: Meeting) -> Said:
    question = (
        "SELECT (SELECT count(*) FROM devices), (SELECT count(DISTINCT rank) FROM parts), (SELECT sum(part_ns) FROM "
        "parts), (SELECT json_group_array(rule) FROM (SELECT rule FROM findings ORDER BY id))"
    )
    ((gpus, ranks, window_ns, rules),) = json.loads(at.call("query", at.path, question, "--json"))["rows"]
    return Said(gpus or None, ranks or None, None, window_ns or 0, json.loads(rules))


def parquet(at: Meeting) -> Said:
    io = pytest.importorskip("arro3.io")
    at.call("export", at.path, "--parquet", at.folder / "tables")

    def column(table: str, name: str) -> list[Any]:
        rows = io.read_parquet(at.folder / "tables" / f"{table}.parquet").read_all()
        return [each.as_py() for each in rows[name]]

    ranks, window_ns = len(set(column("parts", "rank"))), sum(column("parts", "part_ns"))
    return Said(len(column("devices", "id")) or None, ranks or None, None, window_ns, column("findings", "rule"))


def perfetto(at: Meeting) -> Said:
    at.call("export", at.path, "--perfetto", at.folder / "x.pftrace")
    names = set(re.findall(rb"rank \d+", (at.folder / "x.pftrace").read_bytes()))
    assert len(names) >= INPUTS[at.name][2]
    return Said()


def comparison(at: Meeting) -> Said:
    """With itself: nothing differs."""
    found = json.loads(at.call("compare", at.path, at.path, "--json", "-", "--no-html"))
    assert (found["verdict"], found["settings"]) == ("too noisy" if at.name == "ncu" else "no change", [])
    assert {each["fate"] for each in found["findings"]} <= {"remaining"}
    if at.truth["time"]:  # of timed steps, perhaps
        assert found["step"]["before"]["mean_ns"] == pytest.approx(at.truth["base_ns"], rel=0.01)
    return Said(rules=[each["rule"] for each in found["findings"]] if found["step"] else None)


def check(at: Meeting) -> Said:
    """With its own diagnosis.json as the baseline."""
    (at.folder / "was.json").write_text(json.dumps(at.truth))
    found = json.loads(at.call("check", at.path, "--baseline", at.folder / "was.json", "--format", "json"))
    assert (found["decision"], found["failed"]) == ("no change", False)
    assert found["comparison"]["settings"] == []
    return Said()


def history(at: Meeting) -> Said:
    file = at.folder / "history.db"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PERFDOCTOR_HISTORY", str(file))
        at.analyze("--save", "--no-html", "--quiet")
        assert at.path.name in at.call("history", "show", "last") or at.path.is_dir()
    with closing(sqlite3.connect(file)) as db:
        gpus, ranks, step_ns, window_ns = db.execute("SELECT gpus, world_size, step_ns, window_ns FROM runs").fetchone()
        rules = [rule for (rule,) in db.execute("SELECT rule FROM findings ORDER BY position")]
    return Said(gpus, ranks if at.truth["time"] else None, step_ns, window_ns or 0, rules)


def assistant(at: Meeting) -> Said:
    desk = Desk(AllowedRoot(at.path.parent))
    found = answered(ToolRequest("analyze", {"path": at.path.name}), desk)
    if found.data is None:
        raise RefusedError(f"perfdoctor: {found.what}\n  → {found.do}")
    ranks = of_text(" · ".join(found.data["recorded"]))
    assert found.data["finding_count"] == len([each for each in at.truth["findings"] if not each["symptom_of"]])
    return Said(ranks.gpus, ranks.ranks if at.truth["time"] else None, found.data["step_ns"] or None)


def python(at: Meeting) -> Said:
    try:
        found = perfdoctor.analyze(at.path)
    except perfdoctor.PerfdoctorError as error:
        raise RefusedError(f"perfdoctor: {error.what}\n  → {error.do}") from error
    ranks = len({each.rank for each in found.time})
    return Said(len(found.gpus), ranks or None, found.step_ns or None, sum(each.window_ns for each in found.time))


OUTPUTS: dict[str, Callable[[Meeting], Said]] = {
    "terminal": lambda at: of_text(at.analyze("--no-html")),
    "html": page,
    "json": lambda at: of_document(json.loads(at.analyze("--json", "-", "--no-html"))),
    "markdown": lambda at: of_text(at.analyze("--format", "markdown", "--no-html")),
    "sarif": sarif, "sql": sql, "parquet": parquet, "perfetto": perfetto, "compare": comparison, "check": check,
    "history": history, "mcp": assistant, "python": python,
}  # fmt: skip


@pytest.mark.parametrize("output", OUTPUTS)
@pytest.mark.parametrize("name", INPUTS)
def test_every_report_says_the_same_of_a_recording_or_refuses_it_in_a_line(name, output, places, truths, tmp_path):
    at = Meeting(name, places[name], truths[name], tmp_path)
    try:
        said = OUTPUTS[output](at)
    except RefusedError as refused:
        what, code = REFUSED.get((name, output), ("nothing is refused", 0))
        first, do = refused.said.strip().splitlines()
        assert what in first
        assert first.startswith("perfdoctor: ")
        assert do.startswith("  → ")
        assert refused.code in (code, None)
        return
    assert (name, output) not in REFUSED
    gpus, ranks, _ = INPUTS[name]
    truth = of_document(at.truth)
    assert said.gpus in (gpus, None)
    assert said.ranks in (ranks or None, None)
    assert said.step_ns in (truth.step_ns, None)
    assert said.window_ns in (truth.window_ns, None)
    assert said.rules is None or sorted(said.rules) == sorted(truth.rules or [])


def test_what_nodes_left_of_a_job_is_one_recording_to_an_assistant(places):
    found = answered(ToolRequest("recordings", {"path": "."}), Desk(AllowedRoot(places["job"].parent)))
    assert [each["path"] for each in found.data["recordings"] if each["kind"] == "job"] == ["job"]
    assert not any(each["path"].endswith(".rank") for each in found.data["recordings"])
