"""What does a page show of sampled stacks and of the model's modules? Icicles: what is inside of what, and how long.

In stacks, frames of a library that follow each other are one part, named by the function that your code called.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby

from perfdoctor.metrics.host import sampled_lines
from perfdoctor.metrics.work.modules import module_rates
from perfdoctor.model.run import Run
from perfdoctor.records.views import Icicle, Node, Table, TableColumn, Unit
from perfdoctor.records.work_done import ModuleCost
from perfdoctor.views.pages.kernels import measured_columns
from perfdoctor.views.tables import a_step, basis, numbers, of_the_step, table, text
from perfdoctor.vocabulary.names import python_code

#: Narrower parts of stacks cannot be seen, and their names make the page large: they are the rest of what is around.
_LEAST_OF_STACKS = 0.001
#: What the page draws below each other.
_DEEPEST = 24
#: A model of a hundred layers has some two thousand modules.
_MOST_ROWS = 2_000
#: Of a picture 1,200 pixels wide nobody sees a tenth of one; the table has all modules.
_LEAST_OF_MODULES = 1e-4
_OUTSIDE = "(outside modules)"

_Part = tuple[str, bool]


def stacks(run: Run) -> Iterator[Icicle]:
    """Pictures of sampled stacks: of the training thread, of the loader's workers, and of samples without a clock."""
    windows = [(place.rank, place.window) for place in run.places]
    timeline = run.timeline
    of_training = sampled_lines.stacks_of_training(timeline, windows)
    yield from _picture(
        "stacks", "Your code, what called what", of_training, "ns", run.step_ns / max(of_training.total(), 1),
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
    name: str, title: str, samples: Mapping[str, int], unit: Unit, each: float, explained: str
) -> Iterator[Icicle]:
    """Draw the number of samples of each stack. `each`: what one sample stands for."""
    if samples:
        counted = [(_parts(stack), count) for stack, count in samples.items()]
        root = _tree(("all samples", False), counted, _LEAST_OF_STACKS * sum(samples.values()), each)
        yield Icicle("ops", name, title, unit, root, explained)


def _parts(stack: str) -> tuple[_Part, ...]:
    """Frames of the stack, outermost first, as (name, is it a library's): `forward train.py:12`, `torch: backward`.

    Frames of libraries are folded onto the outermost of them.
    """
    found: list[_Part] = []
    for is_own, frames in groupby(stack.split("\n") if stack else [], python_code.is_user_function):
        for file, line, function in map(sampled_lines.place_of, frames):
            if not is_own:
                found.append((f"{python_code.package(file)}: {function}", True))
                break
            found.append((f"{function} {file}:{line}", False))
    return tuple(found[:_DEEPEST])


def _tree(part: _Part, samples: list[tuple[tuple[_Part, ...], int]], least: float, each: float) -> Node:
    """Node of the `part` in which these stacks go on, with the parts inside it that have at least so many samples."""
    inside: dict[_Part, list[tuple[tuple[_Part, ...], int]]] = {}
    for parts, count in samples:
        if parts:
            inside.setdefault(parts[0], []).append((parts[1:], count))
    children = [_tree(*below, least, each) for below in inside.items() if sum(count for _, count in below[1]) >= least]
    value = sum(count for _, count in samples) * each
    return Node(part[0], value, tuple(sorted(children, key=lambda node: (-node.value, node.name))), part[1])


def modules(run: Run, costs: Sequence[ModuleCost]) -> Iterator[Icicle | Table]:
    """The modules of the model as an icicle and a table; none if no modules were recorded."""
    if not costs:
        return
    on_gpu = any(place.device is not None for place in run.places)
    what = "time of the GPU's kernels, collectives and copies" if on_gpu else "time of the training thread's ops"
    yield Icicle(
        "ops", "modules", "Time by module", "ns", tree(costs, "all work"),
        f"The {what} by module, forward and backward; each module is inside the one that has it. {basis(run)}",
    )  # fmt: skip
    explained = (
        f"Modules of the model by {what}, forward and backward; costliest by itself first. A node of the "
        f"backward pass belongs to the module whose forward made it. {basis(run)}"
    )
    yield from table("ops", "modules", "Modules", explained, list(_columns(run, costs, on_gpu)), most=_MOST_ROWS)


def tree(costs: Sequence[ModuleCost], name: str) -> Node:
    """Tree of the modules in `costs`, each inside the one with which its path begins, costliest first."""
    paths = {cost.path for cost in costs}
    inside: dict[str, list[ModuleCost]] = {}
    for cost in costs:
        inside.setdefault(_around(cost.path, paths), []).append(cost)

    def node(cost: ModuleCost, around: str) -> Node:
        # `attn Attention`: the path from the module around it, and the class, which is the name of an outermost one.
        children = inside.get(cost.path, []) if cost.path else []
        path = cost.path.removeprefix(f"{around}.")
        name = f"{path} {cost.module_class}" if path != cost.module_class else path or _OUTSIDE
        return Node(name, cost.ns, _sorted([node(each, cost.path) for each in children], least_ns))

    whole_ns = math.fsum(cost.own_ns for cost in costs)
    least_ns = whole_ns * _LEAST_OF_MODULES
    return Node(name, whole_ns, _sorted([node(cost, "") for cost in inside.get("", [])], least_ns))


def _sorted(nodes: list[Node], least_ns: float) -> tuple[Node, ...]:
    return tuple(sorted((each for each in nodes if each.value > least_ns), key=lambda each: (-each.value, each.name)))


def _around(path: str, paths: set[str]) -> str:
    """The path of the module around it; "" if there is none."""
    while "." in path:
        path = path.rpartition(".")[0]
        if path in paths:
            return path
    return ""


def _columns(run: Run, costs: Sequence[ModuleCost], on_gpu: bool) -> Iterator[TableColumn]:
    step, time, whole = a_step(run), "GPU time" if on_gpu else "op time", max(run.step_ns, 1)
    with_inner = "With the modules inside it."
    yield text("module", [cost.path or _OUTSIDE for cost in costs])
    yield text("class", [cost.module_class for cost in costs])
    yield numbers(f"calls{step}", "count", [cost.calls or math.nan for cost in costs], "Of its forward.", adds_up=True)
    yield numbers(
        of_the_step(run), "share", [cost.own_ns / whole for cost in costs],
        f"Self {time}, as a share of the step.", adds_up=True,
    )  # fmt: skip
    yield numbers(f"self {time}{step}", "ns", [cost.own_ns for cost in costs], "Without modules inside.", adds_up=True)
    yield numbers(f"{time}{step}", "ns", [cost.ns for cost in costs], with_inner)
    yield numbers(f"forward{step}", "ns", [cost.forward_ns for cost in costs], with_inner)
    yield numbers(f"backward{step}", "ns", [cost.backward_ns for cost in costs], with_inner)
    yield numbers(
        f"FLOP{step}", "flop", [cost.model_flop or math.nan for cost in costs],
        f"Of matmuls, convolutions and attention, without recomputation. {with_inner}",
    )  # fmt: skip
    yield numbers(
        "MFU", "share", [math.nan if cost.peak_share is None else cost.peak_share for cost in costs],
        "Its FLOP, divided by the peak and its own GPU time.",
    )  # fmt: skip
    yield numbers(
        f"exposed communication{step}", "ns", [cost.exposed_communication_ns or math.nan for cost in costs],
        f"Of collectives that it launches. {with_inner}",
    )  # fmt: skip
    yield numbers(
        f"idle inside{step}", "ns", [cost.idle_ns for cost in costs],
        f"{'The GPU' if on_gpu else 'The training thread'} did nothing while the host was in it. {with_inner}",
    )  # fmt: skip
    if rates := module_rates(run, [cost.path for cost in costs]):
        yield from measured_columns(rates)
