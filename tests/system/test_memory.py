"""Is memory that arrays free kept for the next ones?"""

from __future__ import annotations

import platform
import subprocess
import sys

import pytest

_FAULTS = """
import resource, sys
from perfdoctor.system.memory import keep_freed
if sys.argv[1:]:
    keep_freed()
import numpy as np
held = np.ones(1 << 20)
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(20):
    pair = np.ones(1 << 20), np.ones(1 << 20)
    del pair
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc's allocator has the setting")
def test_arrays_of_some_megabytes_take_the_place_of_freed_ones():
    asked, usual = (
        int(subprocess.run([sys.executable, "-c", _FAULTS, *more], check=True, capture_output=True, text=True).stdout)
        for more in (["keep"], [])
    )
    assert asked < 20 * 2 * 2_048 / 4, "of 40 arrays of 2,048 pages each at most a quarter is cleared again"
    assert asked <= max(usual, 8_192)
