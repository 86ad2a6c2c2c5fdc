"""What is kept of the steps and samples of a whole run?

The agent of each training process leaves `agents/whole-run-PASS-PID.steps` (agent/perfdoctor_agent/whole_run.py),
which names files by their whole paths. In its place the run folder gets `stacks/whole-run-PASS-PID.json.gz`, where
paths are cut as in other stacks:

    {"format": 1, "pid": 12, "rank": 0, "start_unix_ns": …, "process_unix_ns": …, "end_ns": …, "parameter_bytes": …,
     "ends_ns": […], "sites": […],     when each step ended, since the start, and the line that asked for it
     "windows": [[3, 15]],             steps that recording made longer, from the first to the one behind the last
     "site_lines": ["train.py(26): main"], "site_callers": ["train.py(40): <module>"],
     "frames": ["train.py(14): evaluate", …], "own": [0, …],
     "begins": [11, …],                the line on which the frame's function begins
     "without_gradients": [0, …],      frames inside of `torch.no_grad()` or `torch.inference_mode()`
     "acting": [0, …],                 frames in a loop that steps an environment
     "stacks": [[0, 4], …],            innermost frame first
     "samples": {"at_ns": […], "stack": […], "evaluating": […], "written_bytes": […]},
     "iterators": [[begin_ns, end_ns, loader], …], "source": {"train.py(14)": ["…"]}}
"""

from __future__ import annotations

import ast
import contextlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from perfdoctor.recording.sampling import stacks
from perfdoctor.recording.sampling.stacks import Cell, SourcePlace
from perfdoctor.system.run_folder import ProcessReport, RunFolder, json_object

FORMAT = 1
NAME = "whole-run"
#: What switches gradients off, as a context and as a decorator.
_WITHOUT_GRADIENTS = ("no_grad", "inference_mode")
#: A step of an environment gives a state, a reward and whether the episode has ended, and often more: Gym's interface.
#: What an optimizer's or a scheduler's `step` returns is never unpacked so.
_FEWEST_RESULTS = 3
_COLUMNS = {
    "at_ns": "sample_ns",
    "stack": "sample_stack",
    "evaluating": "sample_evaluating",
    "written_bytes": "sample_written",
}


def keep(
    run: RunFolder, pass_name: str, project: Path, cells_of: Callable[[int], Mapping[str, Cell]], notes: list[str], *,
    with_source: bool,
) -> Iterator[str]:  # fmt: skip
    """Store the whole runs of a pass's processes in the run folder. Yields the names of the files.

    Args:
        run: The run folder.
        pass_name: The pass that has ended.
        project: The working directory.
        cells_of: The cells of a notebook by the name of their code, of a process by its pid.
        notes: What could not be stored is added to them.
        with_source: The text of lines of the user's own is kept, too.
    """
    reports = {report.pid: report for report in run.reports(pass_name)}
    for file in sorted((run.path / "agents").glob(f"{NAME}-{pass_name}-*.steps")):
        with contextlib.suppress(ValueError, KeyError, TypeError, IndexError):  # cut off
            found = json_object(file) or {}
            report = reports.get(found["pid"])
            if report is not None:
                content = _content(found, report, project, cells_of(report.pid), with_source=with_source)
                try:
                    made = stacks.write(run.path / "stacks", file.stem, content)
                except OSError as error:
                    why = error.strerror or error
                    notes.append(f"what process {report.pid} did outside of the recorded steps cannot be stored: {why}")
                else:
                    yield f"stacks/{made.name}"
        file.unlink(missing_ok=True)


def _content(
    found: Mapping[str, Any], report: ProcessReport, project: Path, cells: Mapping[str, Cell], *, with_source: bool
) -> dict[str, Any]:
    places = [_place(file, cells, project) for file, *_ in found["frames"]]
    named = [f"{place.path}({line})" for place, (_, line, *_) in zip(places, found["frames"], strict=True)]
    own = [number for number, place in enumerate(places) if place.is_own]
    lines = {
        named[number]: (project / places[number].path, found["frames"][number][1])
        for number in own
        if places[number].is_inside
    }
    of_cells = {
        name: text
        for number in own
        if (cell := cells.get(found["frames"][number][0]))
        for name, text in cell.source(named[number], found["frames"][number][1]).items()
    }
    return {
        "format": FORMAT, "pid": found["pid"], "rank": report.rank, "start_unix_ns": found["start_unix_ns"],
        "process_unix_ns": report.started_unix_ns, "end_ns": found["end_ns"],
        "parameter_bytes": found["parameter_bytes"],
        "ends_ns": found["ends_ns"], "sites": found["sites"], "windows": found["windows"],
        "site_lines": [
            f"{_place(file, cells, project).path}({line}): {name}" for file, line, name, _ in found["site_lines"]
        ],
        "site_callers": [
            f"{_place(file, cells, project).path}({line}): {name}" for file, line, name, _ in found["site_callers"]
        ],
        "frames": [f"{name}: {frame[2]}" for name, frame in zip(named, found["frames"], strict=True)],
        "begins": [frame[3] for frame in found["frames"]], "own": own,
        **_by_source(found["frames"], own, cells),
        "stacks": found["stacks"], "samples": {name: found[column] for name, column in _COLUMNS.items()},
        "iterators": found["iterators"],
        "source": {**stacks.source(lines, found["start_unix_ns"]), **of_cells} if with_source else {},
    }  # fmt: skip


def _place(file: str, cells: Mapping[str, Cell], project: Path) -> SourcePlace:
    cell = cells.get(file)
    return cell.place if cell else stacks.place_of(file, project)


def _by_source(frames: list[list[Any]], own: list[int], cells: Mapping[str, Cell]) -> dict[str, list[int]]:
    """The numbers of the user's own frames whose line is in code of each kind, as the source says."""
    of_file: dict[str, list[int]] = {}
    for number in own:
        of_file.setdefault(frames[number][0], []).append(number)
    found: dict[str, list[int]] = {name: [] for name in _KINDS_OF_CODE}
    for file, numbers in of_file.items():
        text = cells[file].text if file in cells else stacks.text_of_source(Path(file))
        with contextlib.suppress(ValueError, SyntaxError, RecursionError, MemoryError):
            tree = ast.parse(text)
            for name, ranges_of in _KINDS_OF_CODE.items():
                ranges = list(ranges_of(tree))
                found[name] += [each for each in numbers if any(a <= frames[each][1] <= b for a, b in ranges)]
    return {name: sorted(numbers) for name, numbers in found.items()}


def _without_gradients(tree: ast.Module) -> Iterator[tuple[int, int]]:
    """First and last lines of code without gradients: bodies of `with`, and functions with such a decorator."""
    for node in ast.walk(tree):
        if isinstance(node, (ast.With, ast.AsyncWith)):
            conditions: list[ast.expr] = [item.context_expr for item in node.items]
        elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            conditions = node.decorator_list
        else:
            continue
        if any(map(_switches_off, conditions)):
            yield node.body[0].lineno, node.end_lineno or node.lineno


def _acting(tree: ast.Module) -> Iterator[tuple[int, int]]:
    """First and last lines of the innermost loops that step an environment."""
    loops = [
        (node.lineno, node.end_lineno or node.lineno)
        for node in ast.walk(tree)
        if isinstance(node, (ast.For, ast.AsyncFor, ast.While))
    ]
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and _steps_environment(node):
            around = [(first, last) for first, last in loops if first <= node.lineno <= last]
            if around:
                yield max(around)


def _steps_environment(node: ast.Assign) -> bool:
    called = node.value.func if isinstance(node.value, ast.Call) else None
    return (
        isinstance(called, ast.Attribute)
        and called.attr == "step"
        and any(isinstance(each, ast.Tuple) and len(each.elts) >= _FEWEST_RESULTS for each in node.targets)
    )


def _switches_off(condition: ast.expr) -> bool:
    called = condition.func if isinstance(condition, ast.Call) else condition
    name = called.attr if isinstance(called, ast.Attribute) else called.id if isinstance(called, ast.Name) else ""
    return name in _WITHOUT_GRADIENTS


#: What the source says of lines, as the stored file names it.
_KINDS_OF_CODE: Mapping[str, Callable[[ast.Module], Iterator[tuple[int, int]]]] = {
    "without_gradients": _without_gradients,
    "acting": _acting,
}
