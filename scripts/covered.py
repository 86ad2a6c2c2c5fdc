"""Which statements and branches do the tests reach, and is that as much as is asked for?

usage: scripts/covered.py [ARGUMENT of pytest]…     (default: the tests that `make test` runs)
       scripts/covered.py --of FILE     judges the data of an earlier run

Commands, forked processes and trainings are measured as well. Tests that fail while they are measured do not stop it:
`make test` says whether they pass, and a few of them measure times, or what a program loads.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import sysconfig
from collections.abc import Iterable, Iterator
from pathlib import Path

_ROOT = Path(__file__).parents[1]
_DATA = _ROOT / ".cache" / "coverage"
_SOURCE = Path("src", "perfdoctor")
_WITH_SITE = """\
if "COVERAGE_PROCESS_CONFIG" in os.environ:
    from perfdoctor.system import tool_process
    tool_process.isolated = lambda: ("-I",)
"""
#: By path: lists of lines, and under `summary` how many there are.
_Files = dict[str, dict[str, dict[str, int]]]
#: Statements of the whole program.
LEAST_STATEMENTS = 0.95
#: Branches where files of strangers and programs of users are met: what is rare there is what goes wrong.
LEAST_BRANCHES = {"readers": 0.90, "recording": 0.90}


def share(files: _Files, folder: str, what: str) -> float:
    """The share of `what`, lines or branches, that was reached in a folder. `files`: those of coverage's JSON."""
    totals = [each["summary"] for path, each in files.items() if (_SOURCE / folder) in Path(path).parents]
    reached, all_of_them = (
        ("covered_lines", "num_statements") if what == "lines" else ("covered_branches", "num_branches")
    )
    return sum(each[reached] for each in totals) / max(1, sum(each[all_of_them] for each in totals))


def judged(files: _Files) -> Iterable[tuple[str, float, float]]:
    """What is asked for: in words, the share that was reached, and the least that is."""
    yield "statements", share(files, "", "lines"), LEAST_STATEMENTS
    for folder, least in LEAST_BRANCHES.items():
        yield f"branches of {folder}", share(files, folder, "branches"), least


def measure(arguments: list[str]) -> None:
    """Run the tests, and put what their processes have left together."""
    coverage = [sys.executable, "-m", "coverage"]
    subprocess.run([*coverage, "erase"], cwd=_ROOT, check=True)
    environment = {**os.environ}
    if python := os.environ.get("PERFDOCTOR_TORCH_PYTHON"):
        environment["PERFDOCTOR_TORCH_PYTHON"] = str(_measuring(Path(python)))
    tests = ["-n", "auto", "--dist", "loadgroup", "--no-loadscope-reorder", *arguments]
    with _own_processes_measured():
        subprocess.run([*coverage, "run", "-m", "pytest", *tests], cwd=_ROOT, env=environment, check=False)
    # What was killed while it wrote has left half a file, which is reported and left out.
    subprocess.run([*coverage, "combine", "--quiet"], cwd=_ROOT, check=True)


@contextlib.contextmanager
def _own_processes_measured() -> Iterator[None]:
    """Processes of our own start without site, and so without coverage: while they are measured they have both."""
    hook = Path(sysconfig.get_path("purelib"), "zz_perfdoctor_measured.pth")  # read after coverage's own, by name
    hook.write_text(f"import os; exec({_WITH_SITE!r})\n", "utf-8")
    try:
        yield
    finally:
        hook.unlink()


def _measuring(python: Path) -> Path:
    """A Python that has what this one has, and coverage: a training is measured from its start."""
    folder = _DATA / "torch"
    # Made by the Python itself: an environment is one of the Python that makes it.
    subprocess.run([python, "-m", "venv", "--clear", folder], check=True)
    made = folder / "bin" / "python"
    where = "import sysconfig; print(sysconfig.get_path('purelib'))"
    of_torch, own = (subprocess.check_output([each, "-c", where], text=True).strip() for each in (python, made))
    Path(own, "torch.pth").write_text(f"{of_torch}\n", "utf-8")
    subprocess.run(
        [made, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "coverage>=7.10"], check=True
    )
    return made


def main() -> None:
    """Measure, print what was reached, and exit with 1 where it is less than is asked for."""
    if sys.argv[1:2] != ["--of"]:
        measure(sys.argv[1:])
    data = sys.argv[2] if sys.argv[1:2] == ["--of"] else str(_DATA / "data")
    report = [sys.executable, "-m", "coverage", "json", "--quiet", "--data-file", data, "-o", "-"]
    files = json.loads(subprocess.check_output(report, cwd=_ROOT))["files"]
    for room in sorted({parts[0] for path in files if len(parts := Path(path).relative_to(_SOURCE).parts) > 1}):
        lines, branches = (share(files, room, what) for what in ("lines", "branches"))
        print(f"{room:14} statements {lines:7.1%}   branches {branches:7.1%}")
    results = list(judged(files))
    for what, reached, least in results:
        print(f"{what}: {reached:.1%}, at least {least:.0%} asked for")
    sys.exit(any(reached < least for _, reached, least in results))


if __name__ == "__main__":
    main()
