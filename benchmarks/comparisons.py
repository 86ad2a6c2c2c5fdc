"""How often is `perfdoctor compare` right? 200 generated pairs of each kind, as tests/comparison/simulated.py has them.

Writes one line a kind: how many pairs were judged slower, faster, unchanged or too noisy, and what is asked for. Exits
with 1 where less is reached: no change in 95 % of equal pairs, 3 % found in 90 % of pairs of 30 steps, 1 % in 80 % of
pairs of five runs, and never the wrong sign. Of runs on a busy processor, of which every step was timed: equal ones are
distinguished in 5 % (of 200 in 10 % at most, by chance and where levels drift), large changes are found.
"""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from comparison.simulated import alternating, pair, timed_pair

PAIRS = 200
#: What is generated; the verdict that is right; how many of all must have it (None: shown only); the wrong sign.
KINDS = (
    ("equal, one run each", {}, "no change", 0.95, ""),
    ("equal, five runs each", {"runs": 5}, "no change", 0.95, ""),
    ("equal, one run each, 3 % of the steps long", {"long_steps": 0.03}, "no change", None, ""),
    ("equal, five runs each, 3 % of the steps long", {"long_steps": 0.03, "runs": 5}, "no change", None, ""),
    ("3 % slower, one run each", {"slower": 0.03}, "slower", 0.90, "faster"),
    ("3 % faster, one run each", {"slower": -0.03}, "faster", 0.90, "slower"),
    ("1 % slower, five runs each", {"slower": 0.01, "runs": 5}, "slower", 0.80, "faster"),
)

#: What is generated; how; the share that is distinguished at least and at most; the wrong sign.
TIMED = (
    ("equal, all steps timed", timed_pair, {}, 0, 0.05, ""),
    ("equal, the level walks 10 % within a run", timed_pair, {"wander": 0.1}, 0, 0.10, ""),
    ("equal, it walks 30 %", timed_pair, {"wander": 0.3}, 0, 0.10, ""),
    ("equal, 3 % of the steps ten times as long", timed_pair, {"long_steps": 0.03}, 0, 0.05, ""),
    ("1.2 times as fast", timed_pair, {"faster": 1.2}, 0.6, 1, "slower"),
    ("1.8 times as fast", timed_pair, {"faster": 1.8}, 0.95, 1, "slower"),
    ("1.8 times as fast, it walks 30 %", timed_pair, {"faster": 1.8, "wander": 0.3}, 0.5, 1, "slower"),
    ("equal, three pairs in turn", alternating, {}, 0, 0.10, ""),
    ("equal, five pairs in turn", alternating, {"pairs": 5}, 0, 0.10, ""),
    ("1.8 times as fast, three pairs in turn", alternating, {"faster": 1.8}, 0.6, 1, "slower"),
    ("1.8 times as fast, five pairs in turn", alternating, {"faster": 1.8, "pairs": 5}, 0.95, 1, "slower"),
    ("1.3 times as fast, five pairs in turn", alternating, {"faster": 1.3, "pairs": 5}, 0.5, 1, "slower"),
)


def main() -> int:
    missed = 0
    for name, how, right, least, wrong in KINDS:
        found = Counter(pair(seed, **how).verdict for seed in range(PAIRS))
        share = found[right] / PAIRS
        short = (least is not None and share < least) or (wrong and found[wrong] > 0)
        missed += bool(short)
        asked = f"at least {least:.0%}" if least is not None else "shown only"
        print(f"{name}: {share:.1%} {right} ({asked}) {dict(found)}{' MISSED' if short else ''}")
    for name, made, how, least, most, wrong in TIMED:
        found = Counter(made(seed, **how).verdict for seed in range(PAIRS))
        share = (found["slower"] + found["faster"]) / PAIRS
        short = not least <= share <= most or (wrong and found[wrong] > 0)
        missed += bool(short)
        asked = f"at least {least:.0%}" if least else f"at most {most:.0%}"
        print(f"{name}: {share:.1%} distinguished ({asked}) {dict(found)}{' MISSED' if short else ''}")
    return int(bool(missed))


if __name__ == "__main__":
    sys.exit(main())
