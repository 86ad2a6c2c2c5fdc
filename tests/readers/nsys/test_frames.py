"""The device memory that CUDA allocated, as nsys records it with --cuda-memory-usage=true."""

from __future__ import annotations

import sqlite3
from itertools import accumulate

from perfdoctor.diagnosis.engine import diagnose
from perfdoctor.metrics.memory.growth import reserved_peaks
from perfdoctor.readers.nsys import timeline as nsys
from perfdoctor.report.words import memory
from perfdoctor.vocabulary.rulebook import load_rules

MIB = 1 << 20
PAGEABLE, PINNED, DEVICE, ARRAY, MANAGED, STATIC = range(6)


def exported(tmp_path, *events, pid: int = 7):
    """Events: (start, bytes, freed?, kind, device, process); and two kernels of process 7, on devices 0 and 1."""
    file = tmp_path / "profile.sqlite"
    with sqlite3.connect(file) as connection:
        connection.execute("CREATE TABLE StringIds (id INTEGER PRIMARY KEY, value TEXT)")
        connection.execute("INSERT INTO StringIds VALUES (1, 'some_kernel')")
        connection.execute("CREATE TABLE META_DATA_EXPORT (name, value)")
        connection.execute(
            "CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start, end, deviceId, streamId, correlationId, globalPid,"
            " demangledName, shortName, gridX, gridY, gridZ, blockX, blockY, blockZ)"
        )
        for device in (0, 1):
            row = (100, 200, device, 7, 1, pid << 24, 1, 1, 1, 1, 1, 1, 1, 1)
            connection.execute(f"INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES ({','.join('?' * 14)})", row)
        connection.execute(
            "CREATE TABLE CUDA_GPU_MEMORY_USAGE_EVENTS"
            " (start, globalPid, deviceId, contextId, address, pc, bytes, memKind, memoryOperationType, name, correlationId)"
        )
        for start, size, back, kind, device, process in events:
            connection.execute(
                f"INSERT INTO CUDA_GPU_MEMORY_USAGE_EVENTS VALUES ({','.join('?' * 11)})",
                (start, process << 24, device, 1, 0x7F00, 0, size, kind, int(back), None, 0),
            )
    return nsys.read(file)


def totals(timeline, device: int = 0):
    frame = timeline["device_memory"].of(rank=0, device=device)
    return list(zip(frame.start_ns.tolist(), frame["bytes"].tolist(), strict=True))


def test_allocations_and_frees_are_summed_in_the_order_of_time(tmp_path):
    changes = [(10, 20 * MIB), (20, 30 * MIB), (30, -20 * MIB), (40, 5 * MIB)]
    events = [(at, abs(size), size < 0, DEVICE, 0, 7) for at, size in changes]
    found = exported(tmp_path, *reversed(events))  # a file need not be in order
    assert "device_memory" in found.recorded
    sums = accumulate(size for _, size in changes)
    assert totals(found) == [(at, total) for (at, _), total in zip(changes, sums, strict=True)]


def test_the_hosts_memory_and_other_processes_do_not_count(tmp_path):
    own = [(1, MIB, False, kind, 0, 7) for kind in (DEVICE, ARRAY, STATIC)]
    others = [(2, MIB, False, kind, 0, 7) for kind in (PAGEABLE, PINNED, MANAGED)]
    found = exported(tmp_path, *own, *others, (3, MIB, False, DEVICE, 0, 99))
    assert totals(found) == [(1, MIB), (1, 2 * MIB), (1, 3 * MIB)]


def test_each_device_has_its_own_sum(tmp_path):
    found = exported(tmp_path, (1, MIB, False, DEVICE, 0, 7), (2, 5 * MIB, False, DEVICE, 1, 7))
    assert (totals(found), totals(found, 1)) == ([(1, MIB)], [(2, 5 * MIB)])


def test_what_is_freed_first_was_allocated_before_the_recording(tmp_path):
    found = exported(tmp_path, (1, 8 * MIB, True, DEVICE, 0, 7), (2, 3 * MIB, False, DEVICE, 0, 7))
    assert totals(found) == [(1, 0), (2, 3 * MIB)]


def test_a_recording_without_it_has_no_such_signal(tmp_path):
    assert "device_memory" not in exported(tmp_path).recorded


def test_it_is_reported_and_is_no_bound_of_free_memory(tmp_path):
    """Allocations before the recording are not in it."""
    found = exported(tmp_path, (1, 20 * MIB, False, DEVICE, 0, 7), (2, 5 * MIB, True, DEVICE, 0, 7))
    (use,) = diagnose(found, list(load_rules().values())).memory
    assert (use.source, use.peak_bytes, use.reserved_bytes) == ("driver", 20 * MIB, 15 * MIB)
    assert memory.peak(use) == (
        "rank 0: peak 20.0 MiB allocated from CUDA since the recording began, by torch and libraries."
    )
    assert memory.now(use) == "At the end: 15.0 MiB allocated; 2 allocator events recorded."
    assert list(reserved_peaks(found)) == []
