"""What is set in a process of ours, and is left alone in the program of a user who imports perfdoctor."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
from pathlib import Path

import pytest
from folders import ROOT

import perfdoctor
from perfdoctor import integrations

SETTINGS = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "NUMPY_MADVISE_HUGEPAGE")
FAULTS = """
import resource, sys
from perfdoctor.system import own_process
if sys.argv[1:]:
    own_process.take()
    own_process.load_numpy()
import numpy as np
held = np.ones(1 << 20)
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(20):
    pair = np.ones(1 << 20), np.ones(1 << 20)
    del pair
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""
#: numpy is the user's own, loaded before; what is compared is what perfdoctor may have changed. A trainer that is not
#: installed is stood in for by a module that has whatever is asked of it.
BEFORE_AND_AFTER = """
import gc, json, locale, os, signal, sys, threading, types, warnings
import numpy

class Stand(types.ModuleType):
    __path__ = []
    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return type(name, (), {})

for name in ("accelerate", "ignite", "ignite.engine", "lightning", "lightning.pytorch", "transformers"):
    sys.modules[name] = Stand(name)

def state():
    return {
        "threads": len(os.listdir("/proc/self/task")) if os.path.isdir("/proc/self/task") else 1,
        "python threads": threading.active_count(),
        "environment": dict(os.environ),
        "missing modules": sorted(name for name, module in sys.modules.items() if module is None),
        "heavy modules": sorted({"pandas", "torch", "scipy", "typer", "rich"} & set(sys.modules)),
        "numpy": id(sys.modules["numpy"]),
        "gc": [gc.isenabled(), gc.get_threshold(), gc.get_freeze_count(), gc.get_debug()],
        "switch interval": sys.getswitchinterval(),
        "recursion limit": sys.getrecursionlimit(),
        "warnings": [str(each) for each in warnings.filters],
        "signals": [str(signal.getsignal(each)) for each in sorted(signal.valid_signals())],
        "blocked": sorted(signal.pthread_sigmask(signal.SIG_BLOCK, [])) if hasattr(signal, "pthread_sigmask") else [],
        "locale": locale.setlocale(locale.LC_ALL),
        "hooks": [str(sys.excepthook), str(threading.excepthook), len(sys.path_hooks)],
        "import path": sys.path,
        "folder": os.getcwd(),
    }

before = state()
exec(sys.argv[1])
after = state()
print(json.dumps([[name, before[name], after[name]] for name in before if before[name] != after[name]]))
"""
PUBLIC = [
    "import perfdoctor",
    *(f"import perfdoctor; perfdoctor.{name}" for name in perfdoctor.__all__),
    *(f"import perfdoctor.{name}" for name in ("aliases", "api", "rule_api", "rule_testing")),
    *(
        f"import perfdoctor.integrations.{file.stem}"
        for file in sorted(Path(integrations.__path__[0]).glob("*.py"))
        if file.stem != "__init__"
    ),
]


def differences(program: str) -> list[object]:
    """What this program changes in a fresh process that has loaded numpy: name, before and after."""
    environment = {name: value for name, value in os.environ.items() if name not in SETTINGS}
    done = subprocess.run(
        [sys.executable, "-c", BEFORE_AND_AFTER, program],
        capture_output=True,
        text=True,
        check=False,
        env=environment,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    found: list[object] = json.loads(done.stdout.splitlines()[-1])
    return found


def test_importing_anything_public_changes_nothing_in_the_process() -> None:
    assert differences("\n".join(PUBLIC)) == []


@pytest.mark.thorough
@pytest.mark.parametrize("program", PUBLIC)
def test_importing_one_public_name_changes_nothing_in_the_process(program: str) -> None:
    assert differences(program) == []


@pytest.mark.parametrize("recording", ["healthy/torch", "launch-bound/nsys"])
def test_diagnosing_from_python_changes_nothing_in_the_process(recording: str) -> None:
    assert differences(f"import perfdoctor; perfdoctor.analyze({str(ROOT / 'fixtures' / recording)!r})") == []


def test_numpy_is_loaded_as_the_user_has_it() -> None:
    """Who imports perfdoctor first computes with as many threads as without it."""
    program = """
import os, sys
if sys.argv[1:]:
    import perfdoctor.rule_testing
import numpy
print(len(os.listdir("/proc/self/task")) if os.path.isdir("/proc/self/task") else 1)
"""
    environment = {name: value for name, value in os.environ.items() if name not in SETTINGS}
    ours, plain = (
        subprocess.run([sys.executable, "-c", program, *more], check=True, capture_output=True, env=environment).stdout
        for more in (["with"], [])
    )
    assert ours == plain


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc's allocator has the setting")
def test_arrays_of_some_megabytes_take_the_place_of_freed_ones():
    asked, usual = (
        int(subprocess.run([sys.executable, "-c", FAULTS, *more], check=True, capture_output=True, text=True).stdout)
        for more in (["own"], [])
    )
    assert asked < 20 * 2 * 2_048 / 4, "of 40 arrays of 2,048 pages each at most a quarter is cleared again"
    assert asked <= max(usual, 8_192)
