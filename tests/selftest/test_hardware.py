"""Is a snapshot of CUDA memory, as torch writes it, found and read?"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from snapshots import MIB, Recording

from perfdoctor.selftest import hardware
from perfdoctor.selftest.checks import Verdict
from perfdoctor.selftest.trials import Plain


@dataclass
class Writes:
    """Stands in for the program that records its memory: it `write`s this."""

    folder: Path
    write: Callable[[Path], object]
    errors: str = ""

    def plain(self, command: list[str]) -> Plain:
        assert "_record_memory_history" in command[-1]
        self.write(self.folder / hardware.SNAPSHOT)
        return Plain(0, "", self.errors, 1.0)


def recorded(target: Path) -> None:
    made = Recording()
    made.begin()
    made.free(made.alloc(2 * MIB, "train.py:9 loss"))
    made.write(target)


def test_a_snapshot_is_read(tmp_path):
    found = hardware.memory_snapshot(Writes(tmp_path, recorded), "python", has_gpu=True)
    assert (found.verdict, found.found) == (Verdict.WORKS, "1 allocation read")


def test_no_snapshot_is_explained_by_what_torch_printed(tmp_path):
    found = hardware.memory_snapshot(Writes(tmp_path, lambda _: None, "CUDA out of memory"), "python", has_gpu=True)
    assert found.verdict is Verdict.FAILED
    assert "Free the GPU" in found.do


def test_a_damaged_snapshot_is_said_to_be(tmp_path):
    found = hardware.memory_snapshot(
        Writes(tmp_path, lambda file: file.write_bytes(b"no pickle")), "python", has_gpu=True
    )
    assert found.verdict is Verdict.FAILED


def test_without_a_gpu_nothing_is_run(tmp_path):
    def never(_: Path) -> None:
        raise AssertionError

    assert hardware.memory_snapshot(Writes(tmp_path, never), "python", has_gpu=False).verdict is Verdict.ABSENT
