"""Which signals does a detector read, and are they those that its document says it needs?

What it asks the timeline for is seen while it runs, by any name and in any helper of its folder. What a `Place` gives
of itself, and what the shapes ask of it, is known by the names in its source.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

from msgspec.structs import replace

from perfdoctor.model import cache, host_rows, launches, timeline
from perfdoctor.model.timeline import Frame, Timeline
from perfdoctor.vocabulary.rulebook import Rule
from perfdoctor.vocabulary.signals import SIGNALS

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


class Asked(dict[str, str]):
    """By signal, where code of the rule's folder asked for it first: `slow_tokenizer.py: line 12`."""

    def watching(self, recording: Timeline, folder: Path) -> Timeline:
        """The same recording, in which it is seen who asks for which frame."""
        return replace(recording, frames=_Frames(recording.frames, folder, self))


class _Frames(dict[str, Frame]):
    def __init__(self, frames: Mapping[str, Frame], folder: Path, asked: Asked) -> None:
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


def notes(source: Path, rule: Rule, asked: Asked) -> Iterator[str]:
    """What is read and not needed, and the reverse. No problems: a rule may do without what it reads."""
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
    if not words & {*_ANY, _NEIGHBOUR}:
        for need in rule.needs:
            if not any(_is_read(choice, words, read) for choice in need.split("|")):
                yield (
                    f"{source.name}: needs has {need}, which it reads nowhere: a recording without is skipped for "
                    "nothing"
                )


def _is_read(need: str, words: set[str], read: Mapping[str, str]) -> bool:
    """Steps, places and ranks have no rows to read."""
    return need not in SIGNALS or need in read or bool(words & {need, *_READS.get(need, ())})


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
