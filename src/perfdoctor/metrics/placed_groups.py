"""What do the rows of all places sum to in one step, group by group? The group that takes longest is first."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from perfdoctor.metrics import grouping
from perfdoctor.metrics.grouping import GroupSpread
from perfdoctor.model.place import Place
from perfdoctor.model.timeline import Floats, Frame, Ints, Mask, Text


class PlacedGroups(Struct, frozen=True, dict=True):
    """Rows below each other; every result has one element a group, in `order`. Groups without a row are left out.

    `place`: where each row stands in `places`; `group`: one of `size`; `inside_ns`: what of the row lies in the window.
    """

    places: tuple[Place, ...]
    place: Ints
    group: Ints
    inside_ns: Ints
    size: int

    @cached_property
    def order(self) -> Ints:
        total = grouping.sums(self.group, self.inside_ns, self.size)
        used = np.flatnonzero(np.bincount(self.group, minlength=self.size))
        return used[np.lexsort((used, -total[used]))]

    def sums(self, quantity: npt.NDArray[np.generic]) -> Floats:
        """The sum of the quantity over all places, by group."""
        return grouping.sums(self.group, quantity, self.size)[self.order]

    def by_place(self, quantity: npt.NDArray[np.generic]) -> Floats:
        """The sum of the quantity: a row a place, a column a group."""
        shape = (len(self.places), self.size)
        cells = grouping.sums(self.place * self.size + self.group, quantity, shape[0] * shape[1])
        return cells.reshape(shape)[:, self.order]

    def per_step(self, quantity: npt.NDArray[np.generic]) -> Floats:
        """The quantity a step of an average place, by group; places without any row count, too."""
        return per_step(self.by_place(quantity), self.places)

    def runs(self) -> Ints:
        """The quantity that counts rows: 1 for each."""
        return np.ones(self.group.size, np.int64)

    def spread(self, values: Ints, rows: Mask | None = None) -> GroupSpread:
        """How these values, which are not negative, spread in each group; with `rows`, of these only."""
        kept = slice(None) if rows is None else rows
        return grouping.spread(self.group[kept], values[kept], self.size).take(self.order)


def below_each_other(frames: Sequence[Frame], columns: Sequence[str]) -> Frame:
    """These columns of all frames, in the order of the frames: unlike `Frame.join`, not sorted by time."""
    first = frames[0].columns
    return Frame({
        name: Text.join([frame.text(name) for frame in frames])
        if isinstance(first[name], Text)
        else np.concatenate([frame[name] for frame in frames])
        for name in columns
    })  # fmt: skip


def per_step(each: Floats, places: tuple[Place, ...]) -> Floats:
    """A quantity by place (first axis) for one step, averaged over all places: ranks of one job step together."""
    units = np.array([place.units for place in places], dtype=float)
    mean: Floats = (each / units.reshape(-1, *([1] * (each.ndim - 1)))).mean(axis=0)
    return mean
