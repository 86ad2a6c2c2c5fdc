"""How much of the affected time does a fix take away? Ranges whose ends have their reasons in the rule's document."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from msgspec import Struct

from perfdoctor.model.place import Place
from perfdoctor.model.run import Run
from perfdoctor.records.savings import CASES, Saving

#: Of a likely saving, what is certain where nothing is known of it but that it is less: half, by convention.
CERTAIN_SHARE = 0.5


class Shares(Struct, frozen=True):
    """Shares of the affected time that a fix takes away: 0 ≤ low ≤ likely ≤ high ≤ 1."""

    low: float
    likely: float
    high: float = 1.0

    def of(self, affected_ns: float) -> Saving:
        """The saving of a fix that takes these shares away.

        Args:
            affected_ns: The affected time of a step, in ns.

        Returns:
            The saving of a step, in ns.
        """
        return Saving(int(affected_ns * self.low), int(affected_ns * self.likely), int(affected_ns * self.high))


def saving_in_cases(run: Run, saved_ns: Callable[[Place, str], float]) -> Saving:
    """The mean over all places of what `saved_ns` gives for a place and each of `CASES`, in ns of its window."""

    def in_case(case: str) -> int:
        return run.mean(lambda place: saved_ns(place, case))

    low, likely, high = map(in_case, CASES)
    return Saving(min(low, likely), likely, max(high, likely))


def shares(at: Mapping[str, float], name: str) -> Shares:
    """The shares that the rule's document assumes.

    Args:
        at: The thresholds of the rule.
        name: What the names of the thresholds begin with: `<name>_low`, `<name>_likely` and, where not all of the time
            can be saved, `<name>_high`.

    Returns:
        The shares, from 0 to 1.
    """
    return Shares(at[f"{name}_low"], at[f"{name}_likely"], at.get(f"{name}_high", 1.0))


def half_certain(likely_ns: int, high_ns: int) -> Saving:
    """A likely saving of which half is certain.

    Args:
        likely_ns: The likely saving of a step, in ns.
        high_ns: The highest saving of a step, in ns; the likely one, where that is more.

    Returns:
        The saving of a step, in ns.
    """
    return Saving(int(likely_ns * CERTAIN_SHARE), likely_ns, max(likely_ns, high_ns))


def at_most(high_ns: int) -> Saving:
    """A saving that is only bounded: how much of it a fix brings, the recording does not show.

    Args:
        high_ns: The highest saving of a step, in ns.

    Returns:
        The saving of a step, in ns: from 0, and likely 0.
    """
    return Saving(0, 0, high_ns)


#: Of findings that inform, or that cost the run and no time of a step.
NO_SAVING = Saving(0, 0, 0)
