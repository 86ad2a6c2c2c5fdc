"""Are the ratios of the bench those of what was measured? `benchmarks/bench.py` and what it measures with."""

from __future__ import annotations

import json
import subprocess
import sys

import bench
import pytest
from contestants import perfdoctor
from folders import FIXTURES, ROOT
from measured import MARKS, CommandError, Taken, run, run_marked

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="memory of processes is read from /proc")
MB = 1_000_000
#: Two processes that each have 60 MB of their own, and 80 MB together.
SHARED = """
import multiprocessing, time
from multiprocessing import shared_memory
def work(name):
    shared = shared_memory.SharedMemory(name=name)
    shared.buf[:] = bytes(1) * len(shared.buf)
    own = bytearray(b"x" * 60_000_000)
    time.sleep(0.5)
if __name__ == "__main__":
    shared = shared_memory.SharedMemory(create=True, size=80_000_000)
    others = [multiprocessing.Process(target=work, args=(shared.name,)) for _ in range(2)]
    [each.start() for each in others], [each.join() for each in others]
    shared.unlink()
"""


def test_memory_is_that_of_all_processes_and_shared_memory_counts_once(tmp_path):
    program = tmp_path / "program.py"
    program.write_text(SHARED, "utf-8")
    peak = run([sys.executable, program], tmp_path).peak_bytes
    # The copy that each writes into the shared memory is 80 MB as well, for a moment.
    assert 2 * 60 * MB + 80 * MB <= peak < 2 * 60 * MB + 3 * 80 * MB + 80 * MB


def test_a_program_measures_its_parts_one_behind_the_other(tmp_path):
    program = (
        MARKS + "begun(); mark('first'); time.sleep(0.05); own = bytearray(b'x' * 90_000_000); mark('second'); report()"
    )
    parts = run_marked([sys.executable, "-c", program], tmp_path)
    assert list(parts) == ["first", "second"]
    assert parts["second"].seconds - parts["first"].seconds >= 0.05
    assert parts["second"].peak_bytes - parts["first"].peak_bytes >= 80 * MB


def test_what_a_command_said_is_in_the_error(tmp_path):
    with pytest.raises(CommandError, match="ZeroDivisionError"):
        run([sys.executable, "-c", "1/0"], tmp_path)


def test_ratios_are_those_within_a_round_and_not_of_medians():
    rounds = [{"ours": Taken(a, 1, 100 * MB), "theirs": Taken(b, 1, 250 * MB)} for a, b in ((1, 4), (10, 50), (2, 6))]
    *_, ours, theirs = bench.table("a file", "ours", rounds)
    assert ours == "| ours | 2.0 s | 1.0 | 1.0 s | 1.0 | 100 MB | 1.0 |"
    assert theirs == "| theirs | 6.0 s | 4.0 (3.0 to 5.0) | 1.0 s | 1.0 | 250 MB | 2.5 |"


@pytest.mark.parametrize(("one_s", "all_s", "share"), [(8, 2, 0), (8, 8, 1), (8, 5, 0.5), (8, 9, 1)])
def test_the_share_that_is_not_in_parallel_follows_from_one_and_four_cores(one_s, all_s, share):
    assert bench.serial_share(one_s, all_s, 4) == share


def test_growth_is_the_power_of_the_length():
    shorter, longer = Taken(2, 2, 100 * MB), Taken(16, 16, 200 * MB)
    assert bench.power([shorter, longer], 4) == (1.5, 0.5)


def test_phases_add_up_and_the_replay_is_one_of_them():
    trace = FIXTURES / "launch-bound" / "torch" / "rank0.pt.trace.json.gz"
    done = subprocess.run(
        [sys.executable, ROOT / "benchmarks" / "phases.py", trace], capture_output=True, text=True, check=True
    )
    phases = json.loads(done.stdout)
    assert list(phases) == ["start", "read", "prepare", "rules", "replay", "pages"]
    assert all(min(values) > 0 for values in phases.values())


def test_who_cannot_read_a_file_is_left_out_and_named(tmp_path):
    file = bench.QUICK.source(bench.TRACE, tmp_path)
    good = perfdoctor(1)
    bad = bench.Contestant("a peer", lambda file: [sys.executable, "-c", "raise ValueError('too long')"])
    rounds, failed = bench.rounds_of([good, bad], file, 1)
    assert list(rounds[0]) == [good.name]
    assert failed == ["\na peer cannot do it: ValueError: too long"]


def test_the_page_has_one_place_where_the_bench_writes():
    text = bench.PAGE.read_text("utf-8")
    before, after = text.split(bench.BEGIN)[0], text.split(bench.END)[1]
    assert bench.with_part(text, "new") == f"{before}{bench.BEGIN}\nnew\n{bench.END}{after}"
