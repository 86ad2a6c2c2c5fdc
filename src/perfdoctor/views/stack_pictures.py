"""What does a page show of sampled stacks? Icicles: what called what, each as wide as its samples.

Frames of a library that follow each other are one part, named by the function that your code called.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import groupby

from perfdoctor.metrics.host import sampled_lines
from perfdoctor.model.run import Run
from perfdoctor.records.views import Icicle, Node, Unit
from perfdoctor.views.tables import basis
from perfdoctor.vocabulary.names import python_code

#: Narrower parts cannot be seen, and their names make the page large: together they are the rest of what is around.
_LEAST_SHARE = 0.001
#: What the page draws below each other.
_DEEPEST = 24

_Part = tuple[str, bool]


def pictures(run: Run) -> Iterator[Icicle]:
    """Pictures of sampled stacks: of the training thread, of the loader's workers, and of samples without a clock."""
    windows = [(place.rank, place.window) for place in run.places]
    timeline = run.timeline
    stacks = sampled_lines.stacks_of_training(timeline, windows)
    yield from _picture(
        "stacks", "Your code, what called what", stacks, "ns", run.step_ns / max(stacks.total(), 1),
        f"The training thread's stacks, outermost call on top; lines of libraries are grey and folded. {basis(run)}",
    )  # fmt: skip
    yield from _picture(
        "worker-stacks", "Your data, what called what", sampled_lines.stacks_of_workers(timeline, windows), "count", 1,
        "Samples of the loader's workers while they fetched: their stacks from there on.",
    )  # fmt: skip
    yield from _picture(
        "profile-stacks", "Your code, not on this recording's clock, what called what",
        sampled_lines.stacks_of_profile(timeline), "count", 1,
        "Samples of all the time that was sampled, outermost call on top; lines of libraries are grey and folded.",
    )  # fmt: skip


def _picture(
    name: str, title: str, stacks: Mapping[str, int], unit: Unit, each: float, explained: str
) -> Iterator[Icicle]:
    """`each`: what one sample stands for."""
    if stacks:
        counted = ((_parts(stack), count) for stack, count in stacks.items())
        root = _tree("all samples", is_library=False, stacks=list(counted), least=_LEAST_SHARE * sum(stacks.values()))
        yield Icicle("ops", name, title, unit, _scaled(root, each), explained)


def _parts(stack: str) -> tuple[_Part, ...]:
    """Its frames, outermost first: (name, is it a library's), those of libraries folded onto the outermost of them."""
    frames = stack.split("\n") if stack else []
    found: list[_Part] = []
    for is_own, group in groupby(frames, python_code.is_user_function):
        names = list(group)
        found += [(_own(name), False) for name in names] if is_own else [(_library(names[0]), True)]
    return tuple(found[:_DEEPEST])


def _own(name: str) -> str:
    """`forward train.py:12`."""
    file, line, function = sampled_lines.place_of(name)
    return f"{function} {file}:{line}"


def _library(name: str) -> str:
    """`torch: Tensor.backward`."""
    file, _, function = sampled_lines.place_of(name)
    return f"{python_code.package(file)}: {function}"


def _tree(name: str, *, is_library: bool, stacks: list[tuple[tuple[_Part, ...], int]], least: float) -> Node:
    inside: dict[_Part, list[tuple[tuple[_Part, ...], int]]] = {}
    for parts, count in stacks:
        if parts:
            inside.setdefault(parts[0], []).append((parts[1:], count))
    children = (
        _tree(part, is_library=of_library, stacks=below, least=least) for (part, of_library), below in inside.items()
    )
    shown = sorted((each for each in children if each.value >= least), key=lambda each: (-each.value, each.name))
    return Node(name, sum(count for _, count in stacks), tuple(shown), is_library)


def _scaled(node: Node, each: float) -> Node:
    return Node(node.name, node.value * each, tuple(_scaled(child, each) for child in node.children), node.is_muted)
