"""Which of what every rank does is worth a word? All tests of one job, in the order in which its steps come.

Nothing here knows the clock or a file: `update` gets the ranks as they are, and the time, so that a training of hours
is judged again in a second.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
from msgspec.structs import replace

from perfdoctor.watching import memory, periods
from perfdoctor.watching import ranks as of_ranks
from perfdoctor.watching.anomalies import Anomaly, Kind
from perfdoctor.watching.causes import cause_of
from perfdoctor.watching.level import LevelChange, LevelWatch, is_gradual
from perfdoctor.watching.periods import Period
from perfdoctor.watching.rows import KEPT, MOST_SLOW, RankSteps, Stretch, per_step
from perfdoctor.watching.throttling import Throttled

#: Stretches in which a period is looked for, and of how many new ones the next look is. While stretches are short, a
#: long period does not come back often enough in so few: twice as many are searched as well, and so on, up to the
#: second number, which takes some milliseconds, or as many steps as prove the longest period.
_PERIOD_STRETCHES, _MOST_PERIOD_STRETCHES, _PERIOD_EVERY = 40, 4_000, 4
_MOST_PERIOD_STEPS = 20 * periods.LONGEST
#: Waiting for batches above this share of a step is trouble; below the second one it is over.
INPUT_SHARE, _INPUT_OVER = 0.10, 0.05
#: It is said again when it takes so many times as much of a step.
_INPUT_AGAIN = 2
#: Of the level before a change, and since it, so many stretches are compared and shown to the library.
_COMPARED, _SHOWN = 32, 200
#: So many stretches by the host's clock, one behind the other, and the GPU's is not known any more.
_OTHER_CLOCK = 8
#: A rank is behind when it was so in so many looks one behind the other.
_LOOKS = 3
#: A training hangs that made no step for so many usual ones, and so many times its longest pause so far.
HANG_STEPS, HANG_PAUSES = 20, 3
#: The usual step is the median of so many stretches: in a week there are sixty thousand, which are not gone through
#: each second.
_USUAL_OF = 100
#: A clock that moves by so much more or less than time passed was set: by NTP, or because the machine stood still. What
#: NTP corrects without a jump is half a per mille.
JUMP_NS = 5_000_000_000


class _Course:
    """What is known of the length of one process's steps."""

    def __init__(self) -> None:
        self.level = LevelWatch()
        self.judged = self.looked = 0  # stretches; unrecorded ones when a period was looked for last
        self.unrecorded: list[Stretch] = []
        self.dropped = 0  # unrecorded ones before those
        self.was_recorded = False
        self.other_clock = _OTHER_CLOCK  # stretches since the last one by the GPU's clock

    def is_comparable(self, stretch: Stretch) -> bool:
        """Are its steps timed by the clock of those before? The GPU's is not known of some stretches, as those written
        in a pause. Where it is known no more, or for the first time, the level is learned anew.
        """
        before, self.other_clock = self.other_clock, 0 if stretch.by_gpu else self.other_clock + 1
        if (stretch.by_gpu and before >= _OTHER_CLOCK) or self.other_clock == _OTHER_CLOCK:
            self.level.begin_anew()
        return stretch.by_gpu or self.other_clock >= _OTHER_CLOCK

    def thin(self) -> None:
        if len(self.unrecorded) >= 2 * KEPT:
            self.dropped += len(self.unrecorded) - KEPT
            self.unrecorded = self.unrecorded[-KEPT:]


class Judge:
    """`update` returns what is new. `hang_after_s`: no pause that is shorter is called one."""

    def __init__(self, hang_after_s: float = 60.0) -> None:
        self.hang_after_ns = hang_after_s * 1e9
        # Of the first rank, by the process: one that takes its place has steps of its own.
        self._courses: dict[tuple[Path, int], _Course] = {}
        self._periods: set[int] = set()
        self._waiting: dict[int, float] = {}  # the share of a step that was said of a rank
        self._grown: dict[tuple[int, str], int] = {}
        self._uses: dict[tuple[int, Path], int] = {}  # how many were judged
        self._behind: tuple[int, int] = (-1, 0)
        self._is_behind: set[int] = set()
        self._throttled: set[int] = set()
        self._lag: set[int] = set()
        self.hangs_since = 0  # ns since 1970; 0 while it does not
        self._hung_at: dict[Path, int] = {}  # steps of each process when it hung
        self._jumped_ns = 0  # when the clock did last

    def update(
        self, ranks: Mapping[int, RankSteps], now_ns: int, throttled: Sequence[Throttled] = (),
        ours_ns: tuple[int, int] = (0, 0),
    ) -> list[Anomaly]:  # fmt: skip
        """What was not known before. `ranks`: by rank; `now_ns`: since 1970.

        `ours_ns`: from when to when, since 1970, a diagnosis of ours took cores that the training may have wanted.
        """
        if not ranks:
            return []
        first = next(iter(ranks.values()))
        begun = first.process.begun if first.process else 0
        course = self._courses.setdefault((first.path, begun), _Course())
        found = [
            *self._levels(first, course, ours_ns),
            *self._period(first, course),
            *self._input(ranks),
            *self._memory(ranks),
            *self._of_ranks(ranks),
            *self._throttling(throttled),
            *self._hang(ranks, now_ns),
        ]
        seen = max(each.steps for each in ranks.values())
        return [replace(each, seen_at=seen, unix_ns=now_ns, step=each.step or seen) for each in found]

    # --- steps that become longer ---

    def _levels(self, rank: RankSteps, course: _Course, ours_ns: tuple[int, int]) -> Iterator[Anomaly]:
        new, course.judged = rank.stretches[course.judged - rank.dropped :], rank.dropped + len(rank.stretches)
        for each in new:
            if each.recorded:
                course.was_recorded = True
                continue
            if each.end > ours_ns[0] and each.end - each.sum < ours_ns[1]:
                continue
            if not course.is_comparable(each):
                continue
            # CUPTI stays behind a window, and launches cost more from then on: that is no trouble of the program's.
            if course.was_recorded and rank.uses_gpu:
                course.level.begin_anew()
            course.was_recorded = False
            course.unrecorded.append(each)
            change = course.level.add(each.first, each.end, each.q[1])
            if change is not None:
                yield self._changed(rank, course, change)
        course.thin()

    def _changed(self, rank: RankSteps, course: _Course, change: LevelChange) -> Anomaly:
        unrecorded, at = course.unrecorded, max(change.at - course.dropped, 0)
        before, since = unrecorded[max(at - _COMPARED, 0) : at], unrecorded[at:]
        shown = unrecorded[max(len(unrecorded) - _SHOWN, 0) :]
        cause, share = cause_of(before, since, rank)
        level = float(np.median([each.q[1] for each in since]))
        values = {"ratio": change.ratio, "before_ns": level / change.ratio, "after_ns": level, "cause_share": share}
        kind: Kind = "drift" if is_gradual([float(each.q[1]) for each in shown]) else "level"
        return Anomaly(kind, change.first, 0, 0, cause=cause, values=values)

    def _period(self, rank: RankSteps, course: _Course) -> Iterator[Anomaly]:
        seen = course.dropped + len(course.unrecorded)
        if seen < course.looked + _PERIOD_EVERY:
            return
        course.looked = seen
        found = next(self._periods_of(rank, course.unrecorded), None)
        if found is None:
            return
        self._periods.add(found.every)
        since = next(number for number, _ in rank.slow if number % found.every == found.phase)
        values = {
            "every": found.every, "phase": found.phase, "hits": found.hits, "share": found.share,
            "slow_ns": found.slow_ns,
        }  # fmt: skip
        yield Anomaly("slow-steps", since, 0, 0, values=values)

    def _periods_of(self, rank: RankSteps, unrecorded: Sequence[Stretch]) -> Iterator[Period]:
        """Periods that are not known yet, of the last stretches and of more and more of them."""
        last, many = unrecorded[-1].last, _PERIOD_STRETCHES
        # Of slow steps so many are kept: before the first of those there may have been others.
        known = rank.slow[0][0] if len(rank.slow) >= MOST_SLOW else 0
        while True:
            latest = unrecorded[-many:]
            first = max(latest[0].first, known)
            usual = float(np.median([each.q[2] for each in latest]))
            found = periods.period(rank.slow, first, last, usual)
            if found is not None and not any(_is_multiple(found.every, each) for each in self._periods):
                yield found
            is_all = len(latest) < many or first == known or last - first >= _MOST_PERIOD_STEPS
            if is_all or many == _MOST_PERIOD_STRETCHES:
                return
            many = min(2 * many, _MOST_PERIOD_STRETCHES)

    # --- what each rank does ---

    def _input(self, ranks: Mapping[int, RankSteps]) -> Iterator[Anomaly]:
        for number, rank in ranks.items():
            latest = of_ranks.latest(rank)
            if not latest:
                continue
            share = float(np.median(per_step(latest, "wait") / per_step(latest, "sum")))
            if share < _INPUT_OVER:
                self._waiting.pop(number, None)
            elif share >= max(INPUT_SHARE, _INPUT_AGAIN * self._waiting.get(number, 0.0)):
                self._waiting[number] = share
                wait_ns = float(np.median(per_step(latest, "wait")))
                values = {"share": share, "wait_ns": wait_ns}
                yield Anomaly("input", latest[0].first, 0, 0, rank=number, cause="input", values=values)

    def _memory(self, ranks: Mapping[int, RankSteps]) -> Iterator[Anomaly]:
        for number, rank in ranks.items():
            key = number, rank.path
            if self._uses.get(key) == len(rank.uses):  # nothing new: those of a week take a while
                continue
            self._uses[key] = len(rank.uses)
            for kind in ("host", "device"):
                times = [each.at for each in rank.uses]
                held = [each.rss if kind == "host" else each.gpu[0] for each in rank.uses]
                if not any(held):
                    continue
                found = memory.growth(times, held)
                if found is None or found.held < 2 * self._grown.get((number, kind), 0):
                    continue
                self._grown[number, kind] = found.held
                since = times[-1] - int(found.seconds * 1e9)
                grown_in = [each for each in rank.stretches if each.end > since]
                steps = sum(each.steps for each in grown_in)
                # Of a growth of days not all steps are known any more.
                lasted_ns = times[-1] - max(since, grown_in[0].end - grown_in[0].sum) if grown_in else 0
                per_step_bytes = found.bytes_per_second * lasted_ns / 1e9 / steps if steps else 0.0
                values: dict[str, float | int | str] = {
                    "kind": kind, "bytes_per_second": found.bytes_per_second, "held": found.held,
                    "bytes_per_step": per_step_bytes,
                }  # fmt: skip
                yield Anomaly("memory", grown_in[0].first if grown_in else 0, 0, 0, rank=number, values=values)

    def _of_ranks(self, ranks: Mapping[int, RankSteps]) -> Iterator[Anomaly]:
        found = of_ranks.behind(ranks)
        rank, looks = self._behind
        self._behind = (found.rank, looks + 1 if found.rank == rank else 1) if found else (-1, 0)
        if found and self._behind[1] >= _LOOKS and found.rank not in self._is_behind:
            self._is_behind.add(found.rank)
            values = {"share": found.share, "more_ns": found.more_ns}
            yield Anomaly(
                "behind", 0, 0, 0, rank=found.rank, cause="input" if found.cause == "input" else "host", values=values
            )
        lag = of_ranks.lagging(ranks)
        if lag and lag[0] not in self._lag:
            self._lag.add(lag[0])
            yield Anomaly("behind", 0, 0, 0, rank=lag[0], cause="elsewhere", values={"steps": lag[1]})

    def _throttling(self, throttled: Sequence[Throttled]) -> Iterator[Anomaly]:
        for found in throttled:
            if found.device in self._throttled:
                continue
            values: dict[str, float | int | str] = {
                "device": found.device,
                "by": found.by,
                "clock_mhz": found.clock_mhz,
                "most_mhz": found.most_mhz,
            }
            yield Anomaly("throttled", 0, 0, 0, cause="device", values=values)
        self._throttled = {each.device for each in throttled}

    # --- no steps ---

    def silent_limit_ns(self, rank: RankSteps) -> float:
        """How long no step may end before that is called a hang."""
        usual = float(np.median([each.q[2] for each in rank.stretches[-_USUAL_OF:]]))
        return max(self.hang_after_ns, HANG_STEPS * usual, HANG_PAUSES * rank.longest_ns)

    def jumped(self, by_ns: int, now_ns: int) -> None:
        """The clock has jumped by so much, to `now_ns`: what was written before cannot be held against it."""
        self._jumped_ns = now_ns
        if self.hangs_since:
            self.hangs_since += by_ns

    def _last_ns(self, rank: RankSteps, now_ns: int) -> int:
        """When it made its last step, by the clock of now."""
        end = rank.stretches[-1].end
        is_ahead = end > now_ns + JUMP_NS  # written before a clock was set back
        return self._jumped_ns or now_ns if is_ahead else max(min(end, now_ns), self._jumped_ns)

    def _hang(self, ranks: Mapping[int, RankSteps], now_ns: int) -> Iterator[Anomaly]:
        """All ranks are silent that have not ended; those that train on, or evaluate, keep the others from being called
        hung.
        """
        alive = [each for each in ranks.values() if not each.ended_ns]
        last_ns = max((self._last_ns(each, now_ns) for each in alive), default=0)
        goes_on = any(each.steps != self._hung_at.get(each.path) for each in alive)
        if self.hangs_since and (not alive or goes_on):
            paused_ns, self.hangs_since = max(last_ns - self.hangs_since, 0), 0
            if alive:
                yield Anomaly("goes-on", 0, 0, 0, values={"paused_ns": paused_ns})
        elif alive and not self.hangs_since:
            limit = max(self.silent_limit_ns(each) for each in alive)
            if now_ns - max(last_ns, *map(_fed_ns, alive)) > limit:
                self.hangs_since, self._hung_at = last_ns, {each.path: each.steps for each in alive}
                yield Anomaly("hang", 0, 0, 0, values={"silent_ns": now_ns - last_ns})


def _fed_ns(rank: RankSteps) -> int:
    """When a DataLoader gave its last batch, also outside of steps, as in an evaluation; 0 where none has."""
    last = rank.uses[-1] if rank.uses else None
    if last is None or last.batch is None:
        return 0
    every_ns = last.at - rank.uses[-2].at if len(rank.uses) > 1 else 0
    # Before the next line nothing is known of the batches that came since.
    return last.at + every_ns if last.batch < every_ns else last.at - last.batch


def _is_multiple(one: int, other: int) -> bool:
    return one % other == 0 or other % one == 0
