"""Which steps are those of the training's loop, how long is each with what follows it, and which samples lie in it?

A search for a learning rate may step the training's own optimizer: what is asked for inside of another function's steps
is no step of the loop, but a part of what lies between two of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from msgspec import Struct

from perfdoctor.metrics.whole_run.stacks import Frames, function_of, loop_functions
from perfdoctor.model.columns import Ints, Mask
from perfdoctor.model.whole_run import WholeRun

_BY = " by "


class Lengths(Struct, frozen=True):
    """The lengths between the ends of the loop's own steps, in ns, in their order.

    `begins_ns`: since the run's start; `usable`: not made longer by recording. `length_of`: of each sample, the number
    of its length, -1 where it lies in none that is usable; `new_epoch`: whether an iterator over a loader was made in
    it. `loop`: the loop's functions; `apart`: others that ask for steps of their own.
    """

    begins_ns: Ints
    lengths_ns: Ints
    usable: Mask
    length_of: Ints
    new_epoch: Mask
    loop: frozenset[str]
    apart: frozenset[str]

    @property
    def count(self) -> int:
        """How many lengths there are."""
        return int(self.usable.size)

    @property
    def usable_ns(self) -> int:
        """All usable lengths together."""
        return int(self.lengths_ns[self.usable].sum())


def lengths_of(run: WholeRun, frames: Frames) -> Lengths:
    """Return the lengths of a run of at least two steps.

    Args:
        run: The run.
        frames: Its frames.
    """
    callers = [function_of(line) for line in run.site_callers]
    names = [function_of(line) + _BY + caller for line, caller in zip(run.site_lines, callers, strict=True)]
    asked = np.array([names[site] if site >= 0 else "" for site in run.sites.tolist()], dtype=object)
    main = _outermost(run, asked, dict(zip(names, callers, strict=True)), frames.functions)
    is_main = asked == main
    rows = np.flatnonzero(is_main)
    # Steps of a first or last phase, in another function, are steps as well: only what lies between others is not.
    between = (np.arange(asked.size) > rows[0]) & (np.arange(asked.size) < rows[-1]) & ~is_main
    kept = np.flatnonzero(~between)
    apart = frozenset(part for name in set(asked[between]) for part in name.split(_BY)) - set(main.split(_BY)) - {""}
    ends = run.ends_ns[kept]
    usable = np.ones(ends.size - 1, dtype=bool)
    for first, behind in run.windows:
        usable[np.searchsorted(kept, first) : np.searchsorted(kept, behind)] = False
    length_of = _numbers(ends, run.at_ns)
    new_epoch = np.zeros(usable.size, dtype=bool)
    new_epoch[[number for number in _numbers(ends, run.iterators[:, 0]).tolist() if number >= 0]] = True
    asking = zip(run.site_lines, callers, names, strict=True)
    sites = {function_of(line): caller for line, caller, name in asking if name == main}
    return Lengths(
        begins_ns=ends[:-1],
        lengths_ns=np.diff(ends),
        usable=usable,
        length_of=np.where((length_of >= 0) & usable[length_of], length_of, -1),
        new_epoch=new_epoch,
        loop=loop_functions(run, frames, sites, apart),
        apart=apart,
    )


def _numbers(ends: Ints, at_ns: Ints) -> Ints:
    """In which length each moment lies; -1 for none."""
    numbers = np.searchsorted(ends, at_ns, side="right") - 1
    return np.where(numbers < ends.size - 1, numbers, -1)


def _outermost(run: WholeRun, asked: Ints, callers: Mapping[str, str], functions: Sequence[str]) -> str:
    """Who asks for the steps of the loop: the most frequent, unless its steps are asked for inside of another's."""
    names, counts = np.unique(asked.astype(str), return_counts=True)
    often: Sequence[str] = [str(name) for name in names[np.argsort(-counts, kind="stable")]]
    main = often[0]
    for other in often[1:]:
        inner, outer = callers.get(main, ""), callers.get(other, "")
        if inner != outer and any(_is_inside(inner, outer, stack, functions) for stack in run.stacks):
            main = other
    return main


def _is_inside(inner: str, outer: str, stack: Sequence[int], functions: Sequence[str]) -> bool:
    """Was `inner` called by `outer` on this stack, innermost first?"""
    places = [number for number, frame in enumerate(stack) if functions[frame] == inner]
    return bool(places) and any(functions[frame] == outer for frame in stack[places[0] + 1 :])
