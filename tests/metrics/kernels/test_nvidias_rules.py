"""Of each kernel of the public reports, is what we say limits it what NVIDIA's own rules say? Where not, why?

The rules are those that the real Nsight Compute prints on its page `details`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

import pytest
from folders import public_files
from real_tools import installed

from perfdoctor.metrics.kernels.kernel_limits import limits
from perfdoctor.metrics.kernels.profiles import Measured, launches_alone
from perfdoctor.readers.ncu import profiles as ncu
from perfdoctor.readers.ncu import tool
from perfdoctor.vocabulary.kinds import KERNEL_LIMITS

pytestmark = pytest.mark.recordings
REPORTS = public_files("ncu/*.ncu-rep") + public_files("wild/*.ncu-rep")
LIMITS = list(KERNEL_LIMITS)

MEMORY, COMPUTE = {"memory", "caches", "either"}, {"compute", "tensor"}
IDLE = {"blocks", "start", "warps", "tail", "latency"}
#: How SOLBottleneck begins, and the limits of ours that say the same.
BOTTLENECK = {
    r"utilizing greater than 80.*analyzing DRAM": {"memory"},
    r"utilizing greater than 80": MEMORY | COMPUTE,
    r"Compute is more heavily utilized": COMPUTE,
    r"Memory is more heavily utilized": MEMORY,
    r"well-balanced": MEMORY | COMPUTE,
    r"low compute throughput": IDLE,
    r"grid is too small": {"blocks", "start"},
}
#: What CPIStall says that a warp waits for, and the name of the metric.
STALL = {
    "scoreboard dependency on a L1TEX": "long scoreboard",
    "L1 instruction queue for local and global": "lg throttle",
    "micro scheduler to select the warp": "not selected",
    "immediate constant cache": "imc miss",
}
OCCUPANCY = {"registers": "registers", "shared memory": "shared memory", "warps": "warps", "blocks": "blocks"}

#: (report, number of the launch, rule) → why we say something else.
REASONS = {
    ("mlp-t4-v7", 0, "SOLBottleneck"): "75 % of the sectors that keep DRAM busy are not used: their order is the cause,"
    " as UncoalescedGlobalAccess says of the same kernel",
    # The rule estimates a partial wave at up to half of the time, by their number alone. The busiest pipe is at 62 to
    # 70 % of its peak in 1.3 to 1.6 waves: in whole waves it would be at 87 % and more, so the pipe is what limits.
    (
        "rms-norm-pytorch",
        0,
        "LaunchConfiguration",
    ): "its busiest pipe is at 70 %: whole waves would save a fifth, not half",
    (
        "c-sglang-h800",
        0,
        "LaunchConfiguration",
    ): "its busiest pipe is at 62 %: whole waves would save at most a third, not half",
    (
        "c-sglang-h800",
        2,
        "LaunchConfiguration",
    ): "its busiest pipe is at 70 %: whole waves would save at most a third, not half",
    (
        "c-sglang-h800",
        3,
        "LaunchConfiguration",
    ): "its busiest pipe is at 70 %: whole waves would save at most a third, not half",
    ("mlp-t4-v7", 0, "CPIStall"): "two waits are above the rule's 30 %: ours is the longer of them",
}
#: Where to look a cause up, or what else to collect.
ASIDE = re.compile("Check the Warp Stall Sampling|The optional metric")


def bottleneck(kernels: Measured, row: int, message: str) -> bool:
    says = next(ours for begins, ours in BOTTLENECK.items() if re.search(begins, message))
    return LIMITS[limits(kernels)[row]] in says


def stall(kernels: Measured, row: int, message: str) -> bool:
    return kernels.word("stall", row) == next(name for words, name in STALL.items() if words in message)


def theoretical(kernels: Measured, row: int, message: str) -> bool:
    said = re.search(
        r"limited by the (?:number of|required amount of) (?:required )?(registers|shared memory|warps|blocks)", message
    )
    return said is not None and kernels.word("occupancy_limiter", row) == OCCUPANCY[said[1]]


def achieved(kernels: Measured, row: int, message: str) -> bool:
    possible, reached = (float(each) / 100 for each in re.findall(r"\((\d+\.\d)%\)", message)[:2])
    ours = kernels.number("occupancy_limit_share")[row], kernels.number("occupancy_share")[row]
    return ours == pytest.approx((possible, reached), abs=0.0005)


def configuration(kernels: Measured, row: int, message: str) -> bool:
    if said := re.search(r"only (\d+) blocks, which is less than the GPU's (\d+) multiprocessors", message):
        return LIMITS[limits(kernels)[row]] == "blocks" and int(kernels.rows["blocks"][row]) == int(said[1])
    waves = int(re.findall(r"results in (\d+) full waves", message)[0])
    assert int(kernels.number("waves_per_sm")[row]) == waves
    return LIMITS[limits(kernels)[row]] == "tail"


def uncoalesced(kernels: Measured, row: int, message: str) -> bool:
    share = int(re.findall(r"\((\d+)% of the total", message)[0]) / 100
    return LIMITS[limits(kernels)[row]] == "sectors" and kernels.number("excess_sector_share")[row] == pytest.approx(
        share, abs=0.005
    )


#: Rules that say what limits a kernel. The others say how busy single units are, which ours have as numbers.
RULES: dict[str, Callable[[Measured, int, str], bool]] = {
    "SOLBottleneck": bottleneck, "CPIStall": stall, "TheoreticalOccupancy": theoretical, "AchievedOccupancy": achieved,
    "LaunchConfiguration": configuration, "UncoalescedGlobalAccess": uncoalesced,
}  # fmt: skip


def differences() -> Iterator[tuple[str, int, str]]:
    for report in REPORTS:
        kernels = launches_alone(ncu.read(report))
        for row, launch in enumerate(tool.read_launches(installed("ncu"), report)):
            for advice in launch.advice:
                if (
                    advice.rule in RULES
                    and not ASIDE.match(advice.message)
                    and not RULES[advice.rule](kernels, row, advice.message)
                ):
                    yield report.stem, row, advice.rule


def test_what_limits_a_kernel_is_what_nvidias_rules_say_but_where_there_is_a_reason() -> None:
    if not REPORTS:
        pytest.skip("no public recordings")
    assert set(differences()) == set(REASONS)
