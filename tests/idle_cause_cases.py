"""Drawn trainings in which the device waits for one thing that the host does, and the rules that must see it."""

from __future__ import annotations

from dataclasses import dataclass

from builders import draw

from perfdoctor.model.timeline import Timeline


@dataclass(frozen=True)
class IdleCauseCase:
    """A rule about one cause of idle time.

    `char` draws what the host does (see `builders.draw`), in a row called `name`; `others` draw what another rule is
    about. `number` is the prefix of the rule's values. `shares`: assumed recoverable shares, low and likely; none where
    nothing can be recovered.
    """

    rule: str
    char: str
    name: str
    number: str = "lost"
    shares: tuple[float, float] | None = (0.5, 0.9)
    others: str = "iaf"

    @property
    def thresholds(self) -> dict[str, float]:
        names = ("recoverable_share_low", "recoverable_share_likely")
        return dict(zip(names, self.shares, strict=True)) if self.shares else {}

    def step(self, lost: int, char: str = "", *, of: int = 40, **more: object) -> Timeline:
        """Steps of `of` ms, busy but for the last `lost`, in which the host does this (or what `char` draws)."""
        host = ["l" + " " * (of - 1), " " * (of - lost - 1) + (char or self.char) * (lost + 1)]
        return draw(kernels="#" * (of - lost) + " " * lost, host=host, repeat=6, unit_us=1000, **more)

    def one_step_of_six(self, longer: int = 18) -> Timeline:
        """The fourth step takes `longer` ms more than the other ones' 40, in which the host does this."""
        kernels, launches, doing, marks = "", "", "", ""
        for number in range(7):
            gap = 1 + longer if number == 3 else 1
            kernels += "#" * 39 + " " * gap
            launches += "l" + " " * (38 + gap)
            doing += " " * 38 + (self.char * (gap + 1) if number == 3 else "  ")
            marks += str(number) * (39 + gap)
        return draw(kernels=kernels, host=[launches, doing, marks], unit_us=1000)

    def without_gpu(self) -> Timeline:
        return draw(host=["o" * 30 + " " * 10, " " * 30 + self.char * 10], repeat=6, unit_us=1000)

    def without_steps(self) -> Timeline:
        host = ["l" + " " * 38 + "l", " " * 9 + self.char * 30]
        return draw(kernels="#" * 10 + " " * 29 + "+" * 10, host=host, unit_us=1000)


COMPILES = IdleCauseCase("recompilation", "x", "torch/_inductor/compile_fx.py(1): compile_fx")
ALLOCATES = IdleCauseCase("allocator-churn", "a", "cudaMalloc", others="igf")
WAITS_FOR_PEERS = IdleCauseCase("peer-waits", "b", "barrier", shares=(0.1, 0.5))
COLLECTS_GARBAGE = IdleCauseCase("garbage-collection", "g", "Python GC")
WORKS = IdleCauseCase("host-work", "f", "train.py(10): log_metrics", number="work", shares=(0.2, 0.5), others="iagb")
PROFILES = IdleCauseCase("profiler-overhead", "P", "Activity Buffer Request", shares=None)
CASES = (COMPILES, ALLOCATES, WAITS_FOR_PEERS, COLLECTS_GARBAGE, WORKS, PROFILES)
