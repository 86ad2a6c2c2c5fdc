"""Exports of nsys of programs without PyTorch: one that JAX compiled, one of CUDA and MPI, each with planted faults.

Every step of 10 ms: the host copies 8 MB from pageable memory, launches six kernels of 0.7 ms, waits for the device,
and does something of its own for the rest.
"""

from __future__ import annotations

import sqlite3
from pathlib import Path

MS = 1_000_000
STEPS, KERNELS = 8, 6
STEP_NS, KERNEL_NS = 10 * MS, MS * 7 // 10
_PROCESS = 7 << 24
_THREAD = _PROCESS | 7
_PUSH_POP, _DOMAIN = 59, 75
_XLA_KERNELS = ("loop_add_fusion_3", "input_reduce_fusion", "gemm_fusion_dot_7", "wrapped_transpose", "fusion_12")
_OWN_KERNELS = ("advec_cell_kernel_xdir(int, int, double*)", "void reduce<double, 256>(double const*, double*)")


def jax(path: Path, *, domain: str = "", extra: tuple[str, ...] = ()) -> Path:
    """`domain`: as nsys's own tables write it in front of names, `TSL:`. `extra`: other kernels of each step."""
    return _export(path, (*_XLA_KERNELS, *extra), domain=domain, xla=True)


def cuda(path: Path, *, kernels: tuple[str, ...] = _OWN_KERNELS) -> Path:
    return _export(path, kernels, domain="", xla=False)


def _export(path: Path, names: tuple[str, ...], *, domain: str, xla: bool) -> Path:
    strings: dict[str, int] = {}

    def text(value: str) -> int:
        return strings.setdefault(value, len(strings) + 1)

    kernels, calls, copies, ranges = [], [], [], []
    for step in range(STEPS):
        at, number = step * STEP_NS, step * 100
        copies.append((at + 200_000, at + 1_000_000, 0, 1, 7, number, _PROCESS, 8_000_000, 1, 0, 2))
        calls.append((at + 100_000, at + 1_000_000, 0, _THREAD, number, text("cudaMemcpyAsync_v3020"), 0))
        for index in range(KERNELS):
            begin, launched = at + MS + index * KERNEL_NS, at + 1_000_000 + index * 20_000
            name = text(names[index % len(names)])
            grid = (128, 1, 1, 256, 1, 1, None)
            kernels.append(
                (begin + 30_000, begin + KERNEL_NS, 0, 1, 7, number + 1 + index, _PROCESS, name, name, *grid)
            )
            calls.append((launched, launched + 15_000, 0, _THREAD, number + 1 + index, text("cuLaunchKernelEx"), 0))
            ranges.append((launched - 1_000, launched + 16_000, f"Thunk:#name=fusion,hlo_op=fusion.{index}#"))
        done = at + MS + KERNELS * KERNEL_NS
        calls.append((at + 2 * MS, done, 0, _THREAD, number + 50, text("cuStreamSynchronize"), 0))
        ranges.append(
            (at + 900_000, at + 1_500_000, "XlaModule:#prefix=jit(train_step),hlo_module=jit_train_step,program_id=11#")
        )
        ranges.append((at + 50_000, at + 60_000, "XlaModule:#hlo_module=jit_convert_element_type,program_id=3#"))
        if step == STEPS // 2:
            ranges.append((done + MS, done + 4 * MS, "XlaCompile:#module=jit_train_step,program_id=12#"))
    path.unlink(missing_ok=True)
    with sqlite3.connect(path) as database:
        database.executescript(_SCHEMA)
        _fill(
            database,
            "META_DATA_EXPORT",
            [("EXPORT_PRODUCT_VERSION", "2024.6.2.225"), ("EXPORT_SCHEMA_VERSION", "3.16.1")],
        )
        _fill(database, "TARGET_INFO_GPU", [(0, "NVIDIA A100-SXM4-40GB", 108, 8, 0, 42_000_000_000, 1_555_000_000_000)])
        _fill(database, "CUPTI_ACTIVITY_KIND_KERNEL", kernels)
        _fill(database, "CUPTI_ACTIVITY_KIND_RUNTIME", calls)
        _fill(database, "CUPTI_ACTIVITY_KIND_MEMCPY", copies)
        if xla:
            _fill(database, "NVTX_EVENTS", [(0, None, _DOMAIN, "TSL", _THREAD, None, 2)])
            rows = [(start, end, _PUSH_POP, domain + name, _THREAD, None, 2) for start, end, name in sorted(ranges)]
            _fill(database, "NVTX_EVENTS", rows)
        _fill(database, "StringIds", [(number, value) for value, number in strings.items()])
    return path


def _fill(database: sqlite3.Connection, table: str, rows: list[tuple[object, ...]]) -> None:
    database.executemany(f"INSERT INTO {table} VALUES ({','.join('?' * len(rows[0]))})", rows)


_SCHEMA = """
CREATE TABLE META_DATA_EXPORT (name TEXT, value TEXT);
CREATE TABLE StringIds (id INTEGER PRIMARY KEY, value TEXT);
CREATE TABLE TARGET_INFO_GPU (id INTEGER, name TEXT, smCount INTEGER, computeMajor INTEGER, computeMinor INTEGER,
    totalMemory INTEGER, memoryBandwidth INTEGER);
CREATE TABLE NVTX_EVENTS (start INTEGER, end INTEGER, eventType INTEGER, text TEXT, globalTid INTEGER, textId INTEGER,
    domainId INTEGER);
CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME (start INTEGER, end INTEGER, eventClass INTEGER, globalTid INTEGER,
    correlationId INTEGER, nameId INTEGER, returnValue INTEGER);
CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INTEGER, end INTEGER, deviceId INTEGER, contextId INTEGER,
    streamId INTEGER, correlationId INTEGER, globalPid INTEGER, demangledName INTEGER, shortName INTEGER, gridX INTEGER,
    gridY INTEGER, gridZ INTEGER, blockX INTEGER, blockY INTEGER, blockZ INTEGER, graphNodeId INTEGER);
CREATE TABLE CUPTI_ACTIVITY_KIND_MEMCPY (start INTEGER, end INTEGER, deviceId INTEGER, contextId INTEGER,
    streamId INTEGER, correlationId INTEGER, globalPid INTEGER, bytes INTEGER, copyKind INTEGER, srcKind INTEGER,
    dstKind INTEGER);
"""
