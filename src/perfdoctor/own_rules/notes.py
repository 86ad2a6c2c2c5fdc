"""What is worth a note about a rule that keeps the contract: the signals that it reads, and who else finds the same?"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from msgspec.structs import replace

from perfdoctor.detectors.affected import MOST_OF_IT
from perfdoctor.diagnosis.engine import missing
from perfdoctor.metrics.accounting.prepare import prepare
from perfdoctor.model import cache, host_rows, launches, timeline
from perfdoctor.model.run import Run
from perfdoctor.model.timeline import Frame, Timeline
from perfdoctor.own_rules.tried import found_in, tried
from perfdoctor.records.findings import Advice, Finding
from perfdoctor.vocabulary.rulebook import Rule, load_rules
from perfdoctor.vocabulary.signals import SIGNALS, need_label

#: Of the public API: whoever uses these reads that signal of a place. Most need no more than `places`.
_READS = {
    "kernels": ("kernels", "kernel_ns", "kernel_rows", "alone_ns", "of_kernels", "compute"),
    "copies": ("copies", "of_copies", "copying", "exposed_copies"),
    "collectives": ("collectives", "of_collectives", "communication", "exposed_communication"),
    "calls": ("launched_in", "launch_known"),
    "ops": ("launched_in",),
}
#: What the causes of idle time are proven from may be any signal of the host.
_ANY = ("idle_causes", "idle_ns", "of_cause", "parts")
_NEIGHBOUR = "from ."
#: Through these a detector asks, and is the one who does.
_BETWEEN = frozenset(str(module.__file__) for module in (cache, host_rows, launches, timeline))
#: A threshold of such a name is the least that is worth a line; without it a rule says what it would have found.
_LEAST = "min_"
#: Next to nothing, of shares as of counts: at 0 a rule would find what is not there at all.
_HARDLY_ANY = 1e-9


def watched(recording: Timeline, folder: Path, asked: dict[str, str]) -> Timeline:
    """The same recording, which notes in `asked` the place where code of `folder` asks first for a signal's frame.

    A place is written `slow_tokenizer.py: line 12`.
    """
    return replace(recording, frames=_Frames(recording.frames, folder, asked))


class _Frames(dict[str, Frame]):
    def __init__(self, frames: Mapping[str, Frame], folder: Path, asked: dict[str, str]) -> None:
        super().__init__(frames)
        self._folder, self._asked = folder, asked

    def __getitem__(self, signal: str) -> Frame:
        frame = sys._getframe(1)  # noqa: SLF001 there is no other way to know who asks
        while frame.f_back is not None and frame.f_code.co_filename in _BETWEEN:
            frame = frame.f_back
        file = Path(frame.f_code.co_filename)
        if file.parent == self._folder:
            self._asked.setdefault(signal, f"{file.name}: line {frame.f_lineno}")
        return super().__getitem__(signal)


def of_signals(source: Path, rule: Rule, asked: Mapping[str, str]) -> Iterator[str]:
    """The signals that the detector reads and its document does not need, and the reverse.

    No problems: a rule may do without what it reads. What it asks the timeline for is seen while it runs (`asked`), by
    any name and in any helper of its folder. What a `Place` gives of itself, and what the shapes ask of it, is known by
    the names in its source.
    """
    try:
        tree = ast.parse(source.read_bytes())
    except (SyntaxError, ValueError):
        return
    read = {**{signal: f"{source.name}: line {line}" for signal, line in _named(tree)}, **asked}
    named = {choice for need in (*rule.needs, *rule.needs_without_gpu) for choice in need.split("|")}
    for signal in sorted((read.keys() & SIGNALS.keys()) - named):
        yield (
            f"{read[signal]}: it reads {signal}, which needs has not: where {signal} were not recorded, the report "
            "says that all is well, and not what to record"
        )
    words = _words(tree)

    def is_read(need: str) -> bool:  # steps, places and ranks have no rows to read
        return need not in SIGNALS or need in read or bool(words & {need, *_READS.get(need, ())})

    if not words & {*_ANY, _NEIGHBOUR}:
        for need in rule.needs:
            if not any(is_read(choice) for choice in need.split("|")):
                yield (
                    f"{source.name}: needs has {need}, which it reads nowhere: a recording without is skipped for "
                    "nothing"
                )


def _named(tree: ast.Module) -> Iterator[tuple[str, int]]:
    """The signals of `….timeline.ops` and `timeline["ops"]`, with the line, the first one last."""
    for node in reversed(list(ast.walk(tree))):
        if isinstance(node, ast.Attribute) and _is_timeline(node.value):
            yield node.attr, node.lineno
        elif isinstance(node, ast.Subscript) and _is_timeline(node.value) and isinstance(node.slice, ast.Constant):
            yield str(node.slice.value), node.lineno


def _is_timeline(node: ast.AST) -> bool:
    name = node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""
    return name == "timeline"


def _words(tree: ast.Module) -> set[str]:
    """All names, attributes and texts of the code; and a mark where it imports from its neighbours."""
    nodes = list(ast.walk(tree))
    found = {node.attr for node in nodes if isinstance(node, ast.Attribute)}
    found |= {node.id for node in nodes if isinstance(node, ast.Name)}
    found |= {node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)}
    return found | {_NEIGHBOUR for node in nodes if isinstance(node, ast.ImportFrom) and node.level}


def of_recording(rule: Rule, name: str, recording: Timeline) -> Iterator[str]:
    """What the rule finds in a recording of its author's, and which rules of ours find the same kernels there."""
    run = prepare(recording)
    if lacking := missing(rule, run):
        yield f"{name}: skipped, it lacks {', '.join(map(need_label, lacking))}"
        return
    found = tried(rule, run)
    if found.findings:
        yield f"{name}: found: {_said(found.advice)}"
        yield from (f"{name}: {text}" for text in _also_ours(found.findings, run))
        return
    below = tried(rule, run, dict.fromkeys((each for each in rule.thresholds if each.startswith(_LEAST)), _HARDLY_ANY))
    yield f"{name}: below its threshold: {_said(below.advice)}" if below.findings else f"{name}: nothing found"


def _said(advice: Sequence[Advice]) -> str:
    return " ".join(
        f"{each.summary} Saves {each.saving_ns_per_step.low / 1e6:.1f} to {each.saving_ns_per_step.high / 1e6:.1f} ms."
        for each in advice
    )


def _also_ours(findings: Sequence[Finding], run: Run) -> Iterator[str]:
    """A line for each rule of ours that finds most of the same kernels."""
    if not any(finding.work for finding in findings):
        return
    for rule in load_rules().values():
        shares = [_same_share(finding, other, run) for finding in findings for other in found_in(rule, run)]
        if max(shares, default=0) > MOST_OF_IT:
            yield (
                f"{rule.id}, a rule of perfdoctor, is about {max(shares):.0%} of the time of the same kernels: name it "
                "in symptom_of or explains, or see whether it says enough"
            )


def _same_share(finding: Finding, other: Finding, run: Run) -> float:
    """The share (0-1) of the time of the kernels that the finding names which the other finding names, too."""
    both_ns = own_ns = 0
    for place in run.places:
        count, no_rows = len(place.kernels), place.kernel_ns < 0
        rows = finding.work.get(place.rank_and_device, no_rows)
        theirs = other.work.get(place.rank_and_device, no_rows)
        if rows.size != count:
            continue
        own_ns += int(place.kernel_ns[rows].sum())
        if theirs.size in (count, count + len(place.copies)):  # those of `fused` have the copies behind
            both_ns += int(place.kernel_ns[rows & theirs[:count]].sum())
    return both_ns / own_ns if own_ns else 0.0
