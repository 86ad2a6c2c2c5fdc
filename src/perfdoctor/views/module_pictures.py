"""What does a page show of the model's modules? A table, and an icicle of one inside the other."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from perfdoctor.model.run import Run
from perfdoctor.records.diagnosis import Diagnosis
from perfdoctor.records.modules import ModuleCost
from perfdoctor.records.views import Icicle, Node, Table, TableColumn
from perfdoctor.views.tables import a_step, basis, numbers, of_the_step, table, text

#: A model of a hundred layers has some two thousand modules.
_MOST_ROWS = 2_000
#: Of a picture 1,200 pixels wide nobody sees a tenth of one; the table has all modules.
_LEAST_SHARE = 1e-4
_OUTSIDE = "(outside modules)"


def pictures(run: Run, diagnosis: Diagnosis) -> Iterator[Icicle | Table]:
    """The modules of the run as pictures; none if no modules were recorded."""
    costs = diagnosis.modules
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
        children = inside.get(cost.path, []) if cost.path else []
        return Node(_shown(cost, around), cost.ns, _sorted([node(each, cost.path) for each in children], least_ns))

    whole_ns = math.fsum(cost.own_ns for cost in costs)
    least_ns = whole_ns * _LEAST_SHARE
    return Node(name, whole_ns, _sorted([node(cost, "") for cost in inside.get("", [])], least_ns))


def _shown(cost: ModuleCost, around: str) -> str:
    """`attn Attention`: its path from the module around it, and its class, which is the name of an outermost one."""
    path = cost.path.removeprefix(f"{around}.")
    return f"{path} {cost.module_class}" if path != cost.module_class else path or _OUTSIDE


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
