"""Which of the program's events ends a training step, and how many steps have passed?

Several optimizers may alternate (GAN, a second one for embeddings), and one of them may step more often than the
training does. The step is the event with the most even intervals; of equally even ones the most frequent, and of
those the last one, which closes the round.

Without an optimizer the events are forwards of models and losses, and backward passes, one behind the other: there the
same round of events comes again and again, and the step is what comes once in it (`rounds`).
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Hashable, Sequence
from typing import Any

#: Fewer events of a kind have no measurable interval.
FEWEST = 3
#: Rarer kinds of events are waited for until the first kind came this many times.
PATIENCE = 20
#: Several updates behind each other and then a pause (of several episodes, of one batch) differ more than a step from
#: the next one does on a busy machine.
BURST = 5
#: A pattern is seen where it comes again. On a busy machine two of three steps can be late by chance.
FEWEST_OF_BURSTS = 8


class Numbers:
    """A number for each optimizer: Python gives the id of an object to another one once it is gone."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[Callable[[], Any], int]] = {}
        self._count = 0

    def of(self, optimizer: Any) -> int:
        """The number of this optimizer; its id where Python cannot say that it is gone."""
        known = self._known.get(id(optimizer))
        if known is not None and known[0]() is optimizer:
            return known[1]
        try:
            reference = weakref.ref(optimizer)
        except TypeError:  # a class of the program's own, with __slots__
            return id(optimizer)
        self._count += 1
        # One at the same place is gone: it is kept, by a key that is no id, until `gone` says so.
        if known is not None:
            self._known[-known[1]] = known
        self._known[id(optimizer)] = (reference, self._count)
        return self._count

    def gone(self) -> list[int]:
        """Numbers of optimizers that are gone, each once."""
        found = [(key, number) for key, (reference, number) in list(self._known.items()) if reference() is None]
        for key, _ in found:
            del self._known[key]
        return [number for _, number in found]


class StepFinder:
    """Counts events of several kinds until one of them has come `skip` times and is known to be the step."""

    def __init__(self, skip: int, *, rounds: bool = False) -> None:
        self.skip = max(skip, 1)
        self.rounds = rounds
        self.order: list[Hashable] = []  # kinds as they came
        self.times_ns: dict[Hashable, list[int]] = {}
        self.chosen: Hashable | None = None
        self.expected = 1  # kinds that are known to exist, whether or not they have come yet

    def add(self, kind: Hashable, now_ns: int) -> bool:
        """Count an event of this kind. True if it ends a step, and at least `skip` steps have ended."""
        if self.chosen is not None:
            return kind == self.chosen
        times = self.times_ns.setdefault(kind, [])
        times.append(now_ns)
        self.order.append(kind)
        if len(times) >= self.skip and self._is_decidable():
            self.chosen = (self._once_a_round() if self.rounds else None) or self._most_even()
            return kind == self.chosen
        return False

    def forget(self, kind: Hashable) -> None:
        """Drop a kind that cannot come again."""
        self.order = [each for each in self.order if each != kind]
        if self.times_ns.pop(kind, None) is not None:
            self.expected = max(self.expected - 1, 1)

    @property
    def is_doubtful(self) -> bool:
        """Does another kind come at another rate than the chosen one?"""
        if self.chosen is None:
            return False
        often = len(self.times_ns[self.chosen])
        others = (len(times) for times in self.times_ns.values() if len(times) >= FEWEST)
        return any(abs(each - often) > 1 for each in others)

    def comes_in_bursts(self, ends_ns: Sequence[int]) -> bool:
        """Does the chosen kind come in bursts? `ends_ns`: when it came once it was chosen.

        In bursts a quarter of the intervals is much shorter than another one, which single disturbances do not do.
        """
        before = [] if self.chosen is None else self._gaps(self.chosen)
        gaps = sorted(before + [b - a for a, b in zip(ends_ns, ends_ns[1:])])
        long = (len(gaps) + 3) // 4  # one alone may be a checkpoint, or a busy machine
        return len(gaps) >= FEWEST_OF_BURSTS and gaps[len(gaps) // 4] * BURST < gaps[-long]

    def _gaps(self, kind: Hashable) -> list[int]:
        """The intervals in ns, without the first: it holds the warm-up: allocation, autotuning, compilation."""
        times = self.times_ns[kind]
        return [b - a for a, b in zip(times, times[1:])][1:]

    @property
    def count(self) -> int:
        """Events of the most frequent kind so far: steps, as far as is known."""
        return max((len(times) for times in self.times_ns.values()), default=0)

    def _is_decidable(self) -> bool:
        if self.count >= PATIENCE:
            return True
        kinds = max(len(self.times_ns), self.expected)
        often = [times for times in self.times_ns.values() if len(times) >= FEWEST]
        return kinds == 1 or len(often) == kinds

    def _once_a_round(self) -> Hashable | None:
        """The last kind that comes once in each round; None where the events do not repeat, or none comes once."""
        order = self.order
        for length in range(1, len(order) // 2 + 1):
            if order[length:] == order[:-length]:
                one = order[:length]
                return next((kind for kind in reversed(one) if one.count(kind) == 1), None)
        return None

    def _most_even(self) -> Hashable:
        kinds = list(self.times_ns)
        fewest = max(FEWEST, self.count // 2) if self.rounds else FEWEST  # rarer: now and then, and no step
        known = [kind for kind in kinds if len(self.times_ns[kind]) >= fewest] or kinds
        least = min(self._unevenness(kind) for kind in known)
        even = [kind for kind in known if self._unevenness(kind) == least]
        most = max(len(self.times_ns[kind]) for kind in even)
        # Of two that alternate, one is an event behind half of the time.
        return [kind for kind in even if len(self.times_ns[kind]) >= most - 1][-1]

    def _unevenness(self, kind: Hashable) -> float:
        """Standard deviation of the intervals over their mean, to a tenth: finer differences are noise."""
        gaps = self._gaps(kind) or [1]
        mean = sum(gaps) / len(gaps)
        spread = (sum((gap - mean) ** 2 for gap in gaps) / len(gaps)) ** 0.5
        return round(spread / mean, 1) if mean else 0.0
