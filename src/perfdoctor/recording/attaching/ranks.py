"""Which of the processes below one are to be attached to? Those that train: no launchers, no workers of loaders."""

from __future__ import annotations

from perfdoctor.errors import PerfdoctorError
from perfdoctor.recording.attaching.target import Target, inspect
from perfdoctor.recording.launch.processes import descendants

#: How the main thread of a DataLoader's worker is called since torch 2.5.
_WORKER = "pt_data_worker"


def chosen(pid: int, *, children: bool) -> list[Target]:
    """The process itself, or with `children` those at and below it that may train, in the order of their numbers.

    A worker of a loader with an older torch is among them: the agent says so when it is there. PerfdoctorError where
    there is no such process, none that may train, or where it is a launcher.
    """
    root = inspect(pid)
    if root is None:
        raise PerfdoctorError(f"there is no process {pid}", do="List them: ps -C python -o pid,user,args")
    below = [found for each in descendants(pid) if (found := inspect(each)) is not None]
    if not children:
        if _launches(root, below):
            ranks = [each.pid for each in below if _may_train(each)]
            one = f" One alone: perfdoctor attach {min(ranks)}" if ranks else ""
            raise PerfdoctorError(
                f"process {pid} ({root.name}) launches others, and does not train itself ({len(ranks)} below it may)",
                do=f"All of them: perfdoctor attach {pid} --children.{one}",
            )
        return [root]
    trainings = [each for each in (root, *below) if _may_train(each) and not _launches(each, below)]
    if not trainings:
        raise PerfdoctorError(
            f"no process at or below {pid} ({root.name}) is a Python that has loaded torch",
            do="Give one that is above the training, once it has begun: pstree -p shows them.",
        )
    return sorted(trainings, key=lambda each: each.pid)


def _may_train(target: Target) -> bool:
    return target.python is not None and target.has_torch and not target.name.startswith(_WORKER)


def _launches(target: Target, below: list[Target]) -> bool:
    """Has it given others ranks, and none itself?"""
    return not target.is_rank and any(each.is_rank for each in below if each.pid in set(descendants(target.pid)))
