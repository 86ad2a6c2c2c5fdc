"""What came back from a machine, as fixtures and as a section of docs/machines.md: `make gpu-results FOLDER=results`.

    python scripts/gpu_results.py FOLDER [--fixtures fixtures] [--page docs/machines.md] [--replace]

FOLDER is what the GPU bundle left, or a folder with its results-*.tar.gz. Each recorded example becomes
fixtures/<gpu>-<example>[-fixed]/torch/, or <gpu>-<example>[-fixed]-nsys/nsys/, a run folder, with an expected.toml that
says what is known of it: the slow one has its fault, the fixed one has not. Where perfdoctor says otherwise, that is
printed, and the slow one's label stays as it is.
"""

from __future__ import annotations

import argparse
import ast
import json
import re
import shutil
import sys
import tarfile
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from perfdoctor.diagnosis.engine import diagnose
from perfdoctor.errors import PerfdoctorError
from perfdoctor.readers.open import read
from perfdoctor.records.diagnosis import Diagnosis
from perfdoctor.vocabulary.examples import Example, load_examples
from perfdoctor.vocabulary.rulebook import load_rules

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "fixtures"))
import kept  # noqa: E402 they stand where the fixtures are made
import scrub  # noqa: E402

#: What a pass is in a fixture; ncu's own pass comes beside another one.
PASSES = ("torch", "nsys")
_TOOLS = {"torch": "torch.profiler", "nsys": "Nsight Systems"}
#: A finding that saves less is as good as none: what the tests of the fixtures ask.
_SILENT_SHARE = 0.03
_INTRODUCTION = """# Machines on which it was tried

Each section is one run of [the bundle](recording.md#a-machine-without-a-network): `perfdoctor selftest --full`, which
records every example of `examples/`, slow and fixed. The predicted step is what `--what-if` leaves of the slow one's
step; beside it stands what the fixed version takes of it, both run without a profiler.
"""


@dataclass(frozen=True)
class Recorded:
    """One run folder of an example, and where it belongs."""

    folder: Path
    example: Example
    is_fixed: bool
    pass_name: str

    def fixture(self, gpu: str) -> str:
        parts = [gpu, self.example.name.replace("_", "-"), *(["fixed"] if self.is_fixed else [])]
        return "-".join([*parts, *(["nsys"] if self.pass_name == "nsys" else [])])


def recordings(results: Path) -> Iterator[Recorded]:
    """The runs of examples; `host_syncs_fixed-torch-ncu` is the torch pass of the fixed twin, `-torch-2` another."""
    for folder in sorted((results / "runs").iterdir()) if (results / "runs").is_dir() else ():
        name, _, passes = folder.name.partition("-")
        example = load_examples().get(name.removesuffix("_fixed"))
        words = passes.split("-")
        pass_name = None if words[-1].isdigit() else next((each for each in words if each in PASSES), None)
        if example and pass_name and any(folder.glob(f"{pass_name}/*")):
            yield Recorded(folder, example, name.endswith("_fixed"), pass_name)


def device(each: Recorded, facts: Mapping[str, Any]) -> str:
    """The GPU that it ran on, "" for a processor: examples take one where there are fewer GPUs than ranks."""
    gpus = facts["gpus"]
    return str(gpus[0]) if len(gpus) >= each.example.ranks else ""


def short_name(name: str) -> str:
    """`NVIDIA H200` is h200; cpu without a GPU."""
    return re.sub(r"[^0-9a-z]+", "-", re.sub(r"^(NVIDIA|Tesla) ", "", name).lower()) or "cpu"


# --- fixtures --------------------------------------------------------------------------------------------------------


def add_fixture(each: Recorded, target: Path, results: Mapping[str, Any]) -> Iterator[str]:
    """Copy the run and write its label. Yields what contradicts the label, or keeps it from being a fixture."""
    for line in kept.keep(each.folder, target / each.pass_name):
        print(f"    {line}")
    if not any((target / each.pass_name / each.pass_name).glob("*")):
        shutil.rmtree(target)
        yield "left out: no recording is small enough"
        return
    private = [f"{file.name}: {what}" for file in target.rglob("*") if file.is_file() for what in scrub.private(file)]
    if private:
        shutil.rmtree(target)
        yield f"left out, it identifies a machine: {', '.join(private)}"
        return
    try:
        diagnosis = diagnose(read([target / each.pass_name]), list(load_rules().values()))
    except PerfdoctorError as error:
        shutil.rmtree(target)
        yield f"left out: {error.what}"
        return
    (target / "expected.toml").write_text(_label(each, diagnosis, results), "utf-8")
    yield from _contradictions(each, diagnosis)


def _label(each: Recorded, diagnosis: Diagnosis, results: Mapping[str, Any]) -> str:
    rule, first = each.example.rule, diagnosis.findings[0].rule if diagnosis.findings else ""
    found = [] if each.is_fixed else [rule]
    # A part of the fault may be left in the fixed one: it is no truth then that nothing is found.
    silent = [rule] if each.is_fixed and not any(_contradictions(each, diagnosis)) else []
    return f'''story = """
{_story(each, results)}"""
first = "{rule if found and first == rule else ""}"
found = {json.dumps(found)}
silent = {json.dumps(silent)}
healthy = false
steps_used = {diagnosis.steps.used}
'''


def _story(each: Recorded, results: Mapping[str, Any]) -> str:
    """Three lines: what was recorded, what it does, and what was measured without a profiler."""
    file = each.example.fixed if each.is_fixed else each.example.slow
    facts = results["machine"]
    where = device(each, facts) or "a processor"
    says = (ast.get_docstring(ast.parse(file.read_text("utf-8"))) or "").splitlines()[0]
    left = _numbers(results, each.example.name).get("left_share")
    measured = (
        f"Unrecorded, the fixed version takes {left:.3f} of the slow one's step." if left else "Not measured alone."
    )
    return (
        f"examples/{file.name} on {where} under {_TOOLS[each.pass_name]}, torch {facts['torch']}.\n{says}\n{measured}"
    )


def _contradictions(each: Recorded, diagnosis: Diagnosis) -> Iterator[str]:
    found = {
        finding.rule: finding.saving_ns_per_step.likely / max(diagnosis.base_ns, 1)
        for cause in diagnosis.findings
        for finding in (cause, *cause.symptoms)
    }
    if each.is_fixed and found.get(each.example.rule, 0) > _SILENT_SHARE:
        yield f"it is fixed, but {each.example.rule} predicts to save {found[each.example.rule]:.0%}"
    if not each.is_fixed and each.example.rule not in found:
        yield f"it is slow, but {each.example.rule} is not found"


def _numbers(results: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    numbers: Mapping[str, Any] = next((check["numbers"] for check in results["checks"] if check["name"] == name), {})
    return numbers


# --- page ------------------------------------------------------------------------------------------------------------


def section(results: Mapping[str, Any]) -> str:
    """What was tried on this machine and what came of it."""
    facts = results["machine"]
    names = ", ".join(f"{facts['gpus'].count(name)} × {name}" for name in dict.fromkeys(facts["gpus"]))
    versions = [
        f"driver {facts['driver']}" if facts["driver"] else "no GPU",
        f"torch {facts['torch']}",
        f"Python {facts['python']}",
        *(f"{tool} {facts[tool]}" if facts[tool] else f"no {tool}" for tool in ("nsys", "ncu")),
    ]
    of_tools = [check for check in results["checks"] if check["name"] not in load_examples()]
    rows = [f"| {_cell(check['name'])} | {check['verdict']} | {_cell(check['found'])} |" for check in of_tools]
    return "\n".join([
        f"## {names or 'A processor, without a GPU'}", "",
        f"{facts['system'].split()[0]}, {', '.join(versions)}; perfdoctor {results['perfdoctor']}.", "",
        "| check | verdict | found |", "| --- | --- | --- |", *rows, "", *_predictions(results),
    ])  # fmt: skip


def _predictions(results: Mapping[str, Any]) -> Sequence[str]:
    rows = []
    for example in load_examples().values():
        check = next((each for each in results["checks"] if each["name"] == example.name), None)
        if check is None:
            continue
        numbers = check["numbers"]
        predicted = measured = "–"
        if "predicted_likely" in numbers:
            low, likely, high = (100 * numbers[f"predicted_{case}"] for case in ("low", "likely", "high"))
            predicted = f"{likely:.0f} % ({low:.0f} to {high:.0f})"
        if "left_share" in numbers:
            measured = f"{100 * numbers['left_share']:.0f} %"
        rows.append(f"| {example.name} | {example.rule} | {check['verdict']} | {predicted} | {measured} |")
    if not rows:
        return ()
    return [
        "| example | rule | verdict | predicted step | fixed version |",
        "| --- | --- | --- | --- | --- |",
        *rows,
        "",
    ]


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ").replace("<", "&lt;")


def with_section(page: str, added: str) -> str:
    """The page with this section, in place of one of the same machine."""
    heading = added.splitlines()[0]
    parts = re.split(r"(?m)^(?=## )", page or _INTRODUCTION)
    kept = [part.rstrip("\n") for part in parts if part.splitlines()[:1] != [heading]]
    return "\n\n".join([*kept, added.rstrip("\n")]) + "\n"


# --- all -------------------------------------------------------------------------------------------------------------


def opened(folder: Path, scratch: Path) -> Path:
    """The folder of results itself, or what its archives hold together."""
    if (folder / "selftest.json").is_file():
        return folder
    for archive in sorted(folder.rglob("results-*.tar.gz")):
        with tarfile.open(archive) as packed:
            packed.extraction_filter = getattr(tarfile, "data_filter", None)
            packed.extractall(scratch)
    if not (scratch / "results" / "selftest.json").is_file():
        sys.exit(f"gpu-results: {folder} holds no selftest.json and no results-*.tar.gz with one")
    return scratch / "results"


def main() -> int:
    """Exit code 1 where a recording contradicts its label, or cannot be a fixture."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--fixtures", type=Path, default=ROOT / "fixtures", metavar="FOLDER")
    parser.add_argument("--page", type=Path, default=ROOT / "docs" / "machines.md", metavar="FILE")
    parser.add_argument("--replace", action="store_true", help="fixtures of the same name are made anew")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        folder = opened(given.folder, Path(scratch))
        results = json.loads((folder / "selftest.json").read_text("utf-8"))
        wrong = _add_all(folder, given.fixtures, results, replace=given.replace)
    page = given.page.read_text("utf-8") if given.page.is_file() else ""
    given.page.write_text(with_section(page, section(results)), "utf-8")
    print(f"{given.page}: {section(results).splitlines()[0].removeprefix('## ')}")
    return int(wrong)


def _add_all(folder: Path, fixtures: Path, results: Mapping[str, Any], *, replace: bool) -> bool:
    """Add what can be shown on that machine; did anything contradict its label?"""
    wrong = False
    for each in recordings(folder):
        ran_on = device(each, results["machine"])
        target = fixtures / each.fixture(short_name(ran_on))
        if not ran_on and each.example.cannot_show:
            continue
        if target.exists() and not replace:
            print(f"{target.name}: it is there; --replace makes it anew")
            continue
        shutil.rmtree(target, ignore_errors=True)
        print(target.name)
        for line in add_fixture(each, target, results):
            print(f"    {line}")
            wrong = True
    return wrong


if __name__ == "__main__":
    sys.exit(main())
