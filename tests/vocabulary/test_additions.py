"""Does a row added in one place arrive everywhere? A copy of the program gets a signal, a cause, a page and two rules.

What is written here is all that has to be written: a row a signal, a column and a page, a row and a proof a cause of
idle, two files and a planted fault a rule, and the trainings in which it shows where those that are planted lack its
signal. (A signal also needs the reader that fills it; here it is drawn.)
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from folders import ROOT
from perfetto_file import read as read_perfetto

SIGNAL = """
[signals.link_errors]
label = "errors of the links"
hint = "record with nsys --link-errors"
meaning = "What was sent again."
columns = "host_work bytes lane_errors"
event = "link error"
track = "link errors"
[signals.link_errors.own]
bytes = "What was sent twice."
"""
COLUMN = """
lane_errors = { type = "int", meaning = "Bits that were wrong.", shown = "{value:,} wrong bits" }
"""
CAUSE = """
[idle.swapping]
label = "idle: memory is swapped"
short = "swapping"
colour = "#123456"
dark = "#abcdef"
glyph = "S"
ascii_glyph = "S"
rules = ["swapping"]
waits_for = "host"

"""
PROOF = """
    Proof("swapping", {re.compile("^swap_in$"): _RANGES_AND_OPS}),
"""
PAGE = """
swaps = "What was swapped"
"""
VIEW = '''
"""The page `swaps`: how often was memory swapped?"""

from perfdoctor.records.views import Table, TableColumn


def view(run, diagnosis):
    ranges = run.timeline.ranges
    rows = int(ranges.name.equals("swap_in").sum())
    yield Table("swaps", "swaps", "Every swap", (TableColumn("times", "count", [rows]),), 1)
'''
#: A rule about the new cause, and one that needs the new signal.
RULE = '''
id = "{id}"
title = "Memory is swapped to the host: {id}"
category = "host"
since = "0.1.0"
status = "stable"
needs = {needs}
action = "swapping"
summary = "{{lost_ms:.1f}} ms of a {{step_ms:.1f}} ms step pass while memory is swapped."
why = "While memory is swapped, nothing is launched and the GPU is idle."
not_a_problem_when = "The recorded steps are the first of the run."
references = ["https://docs.kernel.org/admin-guide/mm/concepts.html"]

[thresholds.min_share_of_step]
value = 0.03
unit = "fraction of step time"
why = "A shorter wait is not seen: {id}."

[derivation]
formula = "{{lost_ms}}"
low = "0.5 × {{lost_ms}}"
high = "{{lost_ms}}"

[derivation.inputs]
lost_ms = {{ source = "recording", what = "idle while memory is swapped, a step" }}

[[fix]]
title = "Keep less in memory"
how = """
model.gradient_checkpointing_enable()  # or a smaller batch
"""
effort = "minutes"
changes_numerics = false
'''
DETECTOR = '''
"""Memory is swapped to the host and back."""

from perfdoctor.detectors.of_idle import of_cause
from perfdoctor.detectors.saved_shares import half_certain
from perfdoctor.metrics.units import ms
from perfdoctor.records.findings import Finding


def detect(run, at):
    found = of_cause(run, "swapping", at["min_share_of_step"])
    if found is None:
        return
    yield Finding(
        rule="{id}",
        saving_ns_per_step=half_certain(found.ns, found.ns),
        confidence="high",
        values={{"lost_ms": ms(found.ns), "step_ms": ms(run.step_ns)}},
    )
'''
FAULT = """

@fault("{id}", paces=True)
def {module}(training, ns, usual_ns):
    now_and_then(training, ns, 3, lambda rank, pause: rank.host(pause, "swap_in"))
"""
#: No planted training has the new signal: one with the fault, and a healthy one.
DRAWN = """
    "link-errors": lambda: _swapping(12),
"""
HEALTHY = """
    "errors of the links": lambda: _swapping(0),
"""
SWAPPING = """

def _swapping(lost):
    host = ["l" + " " * 39, " " * (39 - lost) + "~" * (lost + 1)]
    swaps = {"~": ("ranges", "swap_in")}
    drawn = draw(kernels="#" * (40 - lost) + " " * lost, host=host, repeat=6, unit_us=1000, legend=swaps)
    return replace(drawn, recorded=drawn.recorded | {"link_errors"})
"""
RULES = {"swapping": '["places"]', "link-errors": '["places", "link_errors"]'}

#: What the copy says of a drawn training that swaps: each text as a file. A device that runs, then waits for memory.
PROGRAM = """
import runpy, sys
from pathlib import Path
import builders
from builders import draw
from rich.console import Console
import perfdoctor
from perfdoctor.diagnosis.engine import examine
from perfdoctor.export import perfetto
from perfdoctor.export.tables.query import query
from perfdoctor.metrics.accounting.prepare import prepare
from perfdoctor.report import html, json_report, terminal
from perfdoctor.views.build import views
from perfdoctor.views.pages import timeline as timeline_page
from perfdoctor.vocabulary.rulebook import load_rules

out, root, scripts = map(Path, sys.argv[1:])
assert Path(perfdoctor.__file__).is_relative_to(root), "another perfdoctor was imported"
rules = load_rules()
legend = {"~": ("ranges", "swap_in")}
gpu = draw(kernels="####" + " " * 16 + "####", host=["l" + " " * 18 + "l", "   " + "~" * 15, "o"], repeat=6, legend=legend)
cpu = draw(host=["oooo" + " " * 16 + "oooo", "    " + "~" * 16], repeat=6, legend=legend)
for name, timeline in (("gpu", gpu), ("cpu", cpu)):
    examination = examine(prepare(timeline), list(rules.values()))
    run, diagnosis = examination.run, examination.diagnosis
    (out / f"{name}.json").write_text(json_report.render(diagnosis))
    (out / f"{name}.html").write_text(html.render(diagnosis, views(run, diagnosis)))
    (out / f"{name}.pftrace").write_bytes(b"".join(perfetto.render(examination)))
    with (out / f"{name}.txt").open("w") as file:
        terminal.render(diagnosis, Console(file=file, width=100), show_all=True)
error = {"start_ns": 40, "end_ns": 60, "name": "lane 3", "bytes": 4096, "lane_errors": 1200}
examination = examine(prepare(builders.timeline(ops=[{"start_ns": 0, "end_ns": 100, "name": "o"}], link_errors=[error])), [])
(drawn,) = timeline_page.view(examination.run, examination.diagnosis)
(out / "errors.txt").write_text("\\n".join((*(track.title for track in drawn.tracks), *drawn.names)))
(out / "errors.pftrace").write_bytes(b"".join(perfetto.render(examination)))
for table in ("link_errors", "events"):
    (out / f"{table}.txt").write_text(repr(query(examination, f"SELECT * FROM {table} WHERE name = 'lane 3'")))
sys.path.insert(0, str(scripts))
docs = runpy.run_path(str(scripts / "generate_docs.py"))
pages = runpy.run_path(str(scripts / "generated_pages.py"))["pages"]()
(out / "rule.md").write_text(pages["rules/link-errors.md"])
(out / "rules.md").write_text(pages["rules.md"] if "rules.md" in pages else pages["rules/index.md"])
(out / "tables.md").write_text(docs["tables_list"]())
(out / "causes.md").write_text(docs["causes_table"]())
(out / "pages.md").write_text(docs["pages_list"]())
from perfdoctor.cli.main import app
for name, arguments in (("list", ["rules"]), ("explain", ["explain", "swapping"]), ("needs", ["explain", "link-errors"])):
    sys.stdout = (out / f"{name}.txt").open("w")
    app(arguments, standalone_mode=False)
    sys.stdout.close()
"""


@pytest.fixture(scope="module")
def said(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with all that the changed program says."""
    root = tmp_path_factory.mktemp("house")
    _copied(root)
    _added(root)
    out = root / "said"
    out.mkdir()
    where = {"PYTHONPATH": os.pathsep.join(map(str, (root / "src", ROOT / "tests", ROOT / "benchmarks")))}
    command = [sys.executable, "-c", PROGRAM, *map(str, (out, root, ROOT / "scripts"))]
    done = subprocess.run(
        command, env={**os.environ, **where, "COLUMNS": "100"}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return out


def _copied(root: Path) -> None:
    for folder in ("src", "rules"):
        shutil.copytree(ROOT / folder, root / folder, ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
    shutil.copytree(ROOT / "fixtures" / "planted", root / "fixtures" / "planted")
    (root / "tests").mkdir()
    for file in (ROOT / "tests").glob("*.py"):
        shutil.copy(file, root / "tests")


def _added(root: Path) -> None:
    package = root / "src" / "perfdoctor"
    signals = package / "vocabulary" / "signals.toml"
    _insert(signals, COLUMN, behind="\n[columns]\n")
    signals.write_text(signals.read_text("utf-8") + SIGNAL, "utf-8")
    _insert(package / "vocabulary" / "parts.toml", CAUSE, behind="work is dark, idle is light.\n")
    _insert(package / "metrics" / "accounting" / "idle_causes.py", PROOF, behind="PROOFS: tuple[Proof, ...] = (\n")
    _insert(package / "vocabulary" / "categories.toml", PAGE, behind="\n[pages]\n")
    (package / "views" / "pages" / "swaps.py").write_text(VIEW, "utf-8")
    for rule, needs in RULES.items():
        module = rule.replace("-", "_")
        (root / "rules" / "host" / f"{rule}.toml").write_text(RULE.format(id=rule, needs=needs), "utf-8")
        (package / "detectors" / "host" / f"{module}.py").write_text(DETECTOR.format(id=rule), "utf-8")
        with (root / "fixtures" / "planted" / "host.py").open("a", encoding="utf-8") as file:
            file.write(FAULT.format(id=rule, module=module))
    trainings = root / "tests" / "rule_trainings.py"
    _insert(trainings, DRAWN, behind="_DRAWN: Mapping[str, Callable[[], Timeline]] = {\n")
    _insert(trainings, HEALTHY, behind="_HEALTHY: Mapping[str, Callable[[], Timeline]] = {\n")
    with trainings.open("a", encoding="utf-8") as file:
        file.write(SWAPPING)


def _insert(file: Path, row: str, *, behind: str) -> None:
    text = file.read_text("utf-8")
    assert text.count(behind) == 1, f"{file.name} begins its table in another way"
    file.write_text(text.replace(behind, behind + row.lstrip("\n")), "utf-8")


@pytest.mark.parametrize("run", ["gpu", "cpu"])
def test_the_time_of_a_new_cause_is_reported_in_every_report(said: Path, run: str) -> None:
    (row,) = json.loads((said / f"{run}.json").read_text("utf-8"))["time"]
    assert row["idle_causes_ns"]["swapping"] > 0.5 * row["window_ns"]
    assert sum(row["idle_causes_ns"].values()) == row["idle_ns"]

    terminal = (said / f"{run}.txt").read_text("utf-8")
    assert "S  idle: memory is swapped" in terminal
    assert "SSSSSSSS" in terminal

    page = (said / f"{run}.html").read_text("utf-8")
    for piece in ("--swapping: #123456; --on-swapping: #ffffff;", "--swapping: #abcdef; --on-swapping: #000000;"):
        assert piece in page
    assert ".p-swapping { background: var(--swapping); color: var(--on-swapping); }" in page
    assert '<span class="swatch p-swapping"></span><span class="label">idle: memory is swapped</span>' in page
    assert (
        "&#34;swapping&#34;: &#34;idle: memory is swapped&#34;" in page or '"swapping": "idle' in page
    )  # the timeline

    tracks = read_perfetto((said / f"{run}.pftrace").read_bytes())
    named = {each.name for each in tracks.on("idle and exposed, by cause")}
    assert "idle: memory is swapped" in named


def test_a_rule_of_a_new_cause_is_found_and_its_fix_replayed(said: Path) -> None:
    document = json.loads((said / "gpu.json").read_text("utf-8"))
    (finding,) = (finding for finding in document["findings"] if finding["rule"] == "swapping")
    assert finding["saving_ns_per_step"]["likely"] > 0.5 * document["prediction"]["recorded_step_ns"]
    assert "swapping" in document["prediction"]["fixed"]
    assert document["critical_path"]["share"]["swapping"] > 0.5
    assert [piece["type"] for piece in finding["evidence"]] == ["span"]  # the longest stretch of its cause


def test_a_new_page_is_offered_and_filled(said: Path) -> None:
    page = (said / "gpu.html").read_text("utf-8")
    assert '<a href="#swaps">What was swapped</a>' in page
    assert '<h1 class="page-title" id="title-swaps">What was swapped</h1>' in page
    assert '<div data-table="swaps">' in page


def test_what_needs_a_new_signal_is_skipped_and_says_how_to_record_it(said: Path) -> None:
    outcomes = {each["rule"]: each for each in json.loads((said / "gpu.json").read_text("utf-8"))["outcomes"]}
    assert outcomes["link-errors"]["missing"] == ["link_errors"]
    terminal = " ".join((said / "gpu.txt").read_text("utf-8").split())
    assert "1 rule without errors of the links: link-errors" in terminal
    assert "record with nsys --link-errors" in terminal


def test_the_rows_of_a_new_signal_are_shown_with_their_columns_in_every_report(said: Path) -> None:
    (slice_,) = read_perfetto((said / "errors.pftrace").read_bytes()).of("link error")
    assert (slice_.name, slice_.args) == ("lane 3", {"bytes": 4096, "lane errors": 1200})
    drawn = (said / "errors.txt").read_text("utf-8").splitlines()
    assert {"thread 1 · link errors", "lane 3", "4 KiB, 1,200 wrong bits"} <= set(drawn)
    assert "(0, 0, 100, 1, 40, 60, 20, 'lane 3', 4096, 1200)" in (said / "link_errors.txt").read_text("utf-8")
    assert "('link error', 0, 0, 100, 1, None, None, 40, 60, 20, 'lane 3', None)" in (said / "events.txt").read_text(
        "utf-8"
    )
    tables = (said / "tables.md").read_text("utf-8")
    for line in ("### link_errors\n\nWhat was sent again.", "| `lane_errors` |  | Bits that were wrong. |"):
        assert line in tables
    assert "| `bytes` | bytes | What was sent twice. |" in tables


def test_a_column_is_in_as_many_files_as_contributing_says() -> None:
    package = ROOT / "src" / "perfdoctor"
    named = re.compile(r"\bshared_memory_bytes\b|SharedMemory\b")
    files = {path for path in package.rglob("*.*") if path.suffix in (".py", ".toml")}
    found = {str(path.relative_to(package)) for path in files if named.search(path.read_text("utf-8"))}
    said = (ROOT / "CONTRIBUTING.md").read_text("utf-8").partition("* **Column**: ")[2].partition("\n* ")[0]
    assert set(re.findall(r"`(\w+/[\w/]+\.(?:py|toml))`", said)) == found
    of_signal, computing = map(int, re.findall(r"\b(\d) (?:files|more)\b", said))
    assert of_signal + computing == len(found)


def test_new_rules_are_listed_and_explained(said: Path) -> None:
    listed, explained, needs = (
        " ".join((said / f"{name}.txt").read_text("utf-8").split()) for name in ("list", "explain", "needs")
    )
    assert "Memory is swapped to the host: link-errors" in listed
    assert "Memory is swapped to the host: swapping" in explained
    assert "`idle: memory is swapped`" in explained  # what must be shorter afterwards
    assert "From errors of the links." in needs


def test_the_documentation_has_them_too(said: Path) -> None:
    assert "`link-errors`" in (said / "rules.md").read_text("utf-8")
    assert "errors of the links (`link_errors`): record with nsys --link-errors" in (said / "rule.md").read_text(
        "utf-8"
    )
    assert "| `swapping` | memory is swapped | `swapping` |" in (said / "causes.md").read_text("utf-8")
    assert "*What was swapped*" in (said / "pages.md").read_text("utf-8")


def test_new_rules_keep_the_contract_without_an_edit(said: Path) -> None:
    done = contract_of(said.parent)
    if done.returncode and contract_of(ROOT).returncode:
        pytest.fail("see test_contract first: it fails without what is added here", pytrace=False)
    assert done.returncode == 0, done.stdout
    assert " passed" in done.stdout


def contract_of(root: Path) -> subprocess.CompletedProcess[str]:
    path = (root / "src", root / "tests", root / "fixtures", ROOT / "benchmarks", ROOT / "fixtures")
    where = {"PYTHONPATH": os.pathsep.join(map(str, path))}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-c", os.devnull, f"--rootdir={root}"]
    return subprocess.run(
        [*command, "tests/test_contract.py", "-k", "not looks_back and (not fires_on or swapping or link-errors)"],
        cwd=root, env={**os.environ, **where}, capture_output=True, text=True, check=False,
    )  # fmt: skip
