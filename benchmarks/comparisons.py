"""How often is `perfdoctor compare` right? 200 generated pairs of each kind, as tests/comparison/simulated.py has them.

Writes one line a kind: how many pairs were judged slower, faster, unchanged or too noisy, and what is asked for. Exits
with 1 where less is reached: no change in 95 % of equal pairs, 3 % found in 90 % of pairs of 30 steps, 1 % in 80 % of
pairs of five runs, and never the wrong sign.
"""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from comparison.simulated import pair

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


def main() -> int:
    missed = 0
    for name, how, right, least, wrong in KINDS:
        found = Counter(pair(seed, **how).verdict for seed in range(PAIRS))
        share = found[right] / PAIRS
        short = (least is not None and share < least) or (wrong and found[wrong] > 0)
        missed += bool(short)
        asked = f"at least {least:.0%}" if least is not None else "shown only"
        print(f"{name}: {share:.1%} {right} ({asked}) {dict(found)}{' MISSED' if short else ''}")
    return int(bool(missed))


if __name__ == "__main__":
    sys.exit(main())
