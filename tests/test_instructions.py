"""Does the guard of instruction counts fail where it should, and nowhere else? `benchmarks/instructions.py`."""

from __future__ import annotations

import subprocess
import sys

import instructions
import pytest
from folders import ROOT

BEFORE = {"reference": 1_000, instructions.SMALL: 4_000, **dict.fromkeys(instructions.GROWN, 2_000), "numpy": "1.0"}


def check(**changes: float) -> tuple[str, bool]:
    now = {
        name: round(count * changes.get(name.replace(" ", "_"), 1)) for name, count in BEFORE.items() if name != "numpy"
    }
    lines, within = instructions.compared(now, {**instructions.installed(), **BEFORE})
    return "\n".join(lines), within


@pytest.mark.parametrize("name", ["small_trace", "longer_trace", "longer_export"])
def test_more_than_a_tenth_more_fails_and_less_does_not(name: str) -> None:
    assert check(**{name: 1.09})[1]
    assert check(**{name: 0.5})[1]
    words, within = check(**{name: 1.12})
    assert not within
    assert "1.120 × more than a tenth more" in words
    assert "numpy 1.0 then" in words


def test_another_build_of_python_is_not_compared() -> None:
    words, within = check(reference=0.8, small_trace=1.5)
    assert within
    assert "Another build" in words


def test_what_is_kept_is_read_back(monkeypatch, tmp_path) -> None:
    monkeypatch.setattr(instructions, "KEPT", tmp_path / "kept.toml")
    instructions.KEPT.write_text(instructions.kept_text({"CPython 3.99.0": BEFORE}), "utf-8")
    assert instructions.kept() == {"CPython 3.99.0": BEFORE}


def test_without_valgrind_it_says_so_and_passes() -> None:
    command = [sys.executable, str(ROOT / "benchmarks" / "instructions.py")]
    done = subprocess.run(command, env={"PATH": ""}, capture_output=True, text=True, check=True)
    assert "no valgrind" in done.stdout
