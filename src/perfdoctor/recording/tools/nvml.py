"""In which state were the GPUs during a recording, and how are they connected? The driver (NVML) and nvidia-smi say.

The sampler is a thread of perfdoctor's own process: nothing of it runs in the training. Every GPU is sampled: NVML
ignores CUDA_VISIBLE_DEVICES, of which launchers give each rank another value, and other users' work on the machine is
of interest too.

A value that a GPU or its driver refuses stays empty, and is not queried again. An empty value therefore means unknown
or, in the columns that are sampled once a second, not queried in this row.

The module is long because a third of it is a table: how each value is queried, and how often.
"""

from __future__ import annotations

import csv
import hashlib
import shutil
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, TextIO

from msgspec import Struct

COLUMNS = (
    "unix_ns", "device", "uuid", "power_mw", "power_limit_mw", "sm_clock_mhz", "memory_clock_mhz", "max_sm_clock_mhz",
    "temperature_c", "utilization_percent", "memory_used_bytes", "memory_total_bytes", "throttle_reasons",
    "pcie_rx_kb_per_s", "pcie_tx_kb_per_s", "pcie_generation", "pcie_width", "max_pcie_generation", "max_pcie_width",
    "nvlink_rx_kib", "nvlink_tx_kib", "processes",
)  # fmt: skip

#: A query of a value: (the pynvml module, a GPU's handle) → the value. Several queries of one value are tried in order,
#: new ones first: old drivers lack new functions.
Query = Callable[[Any, Any], object]

_ONCE: Mapping[str, tuple[Query, ...]] = {
    "uuid": (lambda nvml, gpu: _hashed(nvml.nvmlDeviceGetUUID(gpu)),),
    "power_limit_mw": (lambda nvml, gpu: nvml.nvmlDeviceGetEnforcedPowerLimit(gpu),),
    "max_sm_clock_mhz": (lambda nvml, gpu: nvml.nvmlDeviceGetMaxClockInfo(gpu, nvml.NVML_CLOCK_SM),),
    "memory_total_bytes": (lambda nvml, gpu: nvml.nvmlDeviceGetMemoryInfo(gpu).total,),
    "max_pcie_generation": (lambda nvml, gpu: nvml.nvmlDeviceGetMaxPcieLinkGeneration(gpu),),
    "max_pcie_width": (lambda nvml, gpu: nvml.nvmlDeviceGetMaxPcieLinkWidth(gpu),),
}
_EACH_TICK: Mapping[str, tuple[Query, ...]] = {
    "power_mw": (lambda nvml, gpu: nvml.nvmlDeviceGetPowerUsage(gpu),),
    "sm_clock_mhz": (lambda nvml, gpu: nvml.nvmlDeviceGetClockInfo(gpu, nvml.NVML_CLOCK_SM),),
    "memory_clock_mhz": (lambda nvml, gpu: nvml.nvmlDeviceGetClockInfo(gpu, nvml.NVML_CLOCK_MEM),),
    "temperature_c": (
        lambda nvml, gpu: nvml.nvmlDeviceGetTemperatureV(gpu, nvml.NVML_TEMPERATURE_GPU),
        lambda nvml, gpu: nvml.nvmlDeviceGetTemperature(gpu, nvml.NVML_TEMPERATURE_GPU),
    ),
    "utilization_percent": (lambda nvml, gpu: nvml.nvmlDeviceGetUtilizationRates(gpu).gpu,),
    "memory_used_bytes": (lambda nvml, gpu: nvml.nvmlDeviceGetMemoryInfo(gpu).used,),
    "throttle_reasons": (
        lambda nvml, gpu: f"{nvml.nvmlDeviceGetCurrentClocksEventReasons(gpu):#x}",
        lambda nvml, gpu: f"{nvml.nvmlDeviceGetCurrentClocksThrottleReasons(gpu):#x}",
    ),
    "pcie_generation": (lambda nvml, gpu: nvml.nvmlDeviceGetCurrPcieLinkGeneration(gpu),),
    "pcie_width": (lambda nvml, gpu: nvml.nvmlDeviceGetCurrPcieLinkWidth(gpu),),
    "nvlink_rx_kib": (lambda nvml, gpu: _nvlink_kib(nvml, gpu, nvml.NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_RX),),
    "nvlink_tx_kib": (lambda nvml, gpu: _nvlink_kib(nvml, gpu, nvml.NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX),),
}
# The driver counts PCIe traffic for 20 ms while the caller waits, for each direction, and lists processes by walking
# through all of them: too slow for every tick.
_EACH_SECOND: Mapping[str, tuple[Query, ...]] = {
    "pcie_rx_kb_per_s": (lambda nvml, gpu: nvml.nvmlDeviceGetPcieThroughput(gpu, nvml.NVML_PCIE_UTIL_RX_BYTES),),
    "pcie_tx_kb_per_s": (lambda nvml, gpu: nvml.nvmlDeviceGetPcieThroughput(gpu, nvml.NVML_PCIE_UTIL_TX_BYTES),),
    "processes": (
        lambda nvml, gpu: len(nvml.nvmlDeviceGetComputeRunningProcesses(gpu)),
        lambda nvml, gpu: len(nvml.nvmlDeviceGetComputeRunningProcesses_v2(gpu)),
    ),
}
_SECOND_NS = 1_000_000_000
#: The sum over all links of a GPU, instead of one link (nvml.h: scopeId UINT_MAX).
_ALL_LINKS = 0xFFFF_FFFF
#: A call into the driver of a lost GPU may never return: the thread is then abandoned.
_JOIN_TIMEOUT_S = 2.0
#: nvidia-smi takes a second where drivers are loaded; one that hangs must not delay the diagnosis.
_TOPOLOGY_TIMEOUT_S = 10


class DriverGpu(Struct, frozen=True):
    """One GPU as the driver counts them. `uuid`: a hash of 8 hex digits, since the real one identifies the machine."""

    index: int
    name: str
    uuid: str
    memory_bytes: int


class Devices(Struct, frozen=True):
    """The GPUs here. `driver`: its version, "" if none; `trouble`: why there are no GPUs, "" if there are."""

    gpus: tuple[DriverGpu, ...] = ()
    driver: str = ""
    trouble: str = ""


def find() -> Devices:
    """The GPUs and the driver of this machine. Never raises: `trouble` says what is missing."""
    nvml, trouble = _opened()
    if nvml is None:
        return Devices(trouble=trouble)
    driver, found = "", list[DriverGpu]()
    try:
        driver = str(nvml.nvmlSystemGetDriverVersion())
        handles, trouble = _handles(nvml)
        for index, handle in handles.items():
            name = _first(nvml, handle, (lambda nvml, gpu: nvml.nvmlDeviceGetName(gpu),))
            memory = _first(nvml, handle, _ONCE["memory_total_bytes"])
            uuid = _first(nvml, handle, _ONCE["uuid"])
            found.append(DriverGpu(index, str(name), str(uuid), int(str(memory or 0))))
    except nvml.NVMLError as error:
        found, trouble = [], _message(error)
    finally:
        _close(nvml)
    return Devices(tuple(found), driver, trouble)


def keep_topology(target: Path) -> bool:
    """Write the output of `nvidia-smi topo -m` into `target`; False, and no file, without nvidia-smi or a GPU."""
    tool = shutil.which("nvidia-smi")
    if tool is None:
        return False
    try:
        done = subprocess.run(
            [tool, "topo", "-m"], stdin=subprocess.DEVNULL, capture_output=True, check=False,
            timeout=_TOPOLOGY_TIMEOUT_S,
        )  # fmt: skip
        if done.returncode or b"GPU0" not in done.stdout:
            return False
        target.write_bytes(done.stdout)
    except (OSError, subprocess.TimeoutExpired):
        return False
    return True


class DeviceSampler:
    """Writes one row a GPU and tick into the CSV file `target` until it is stopped.

    Each row is written as soon as it is complete, so that the samples survive even if perfdoctor is killed.
    `trouble` says why sampling ended before it was stopped, "" if it did not. After each `most_ticks` the file takes
    the place of the one `before` it, and another one is begun; 0: never.
    """

    def __init__(self, target: Path, hertz: float = 10.0, most_ticks: int = 0) -> None:
        assert hertz > 0
        self.trouble = ""
        self._target, self._most_ticks = target, most_ticks
        self._period_ns = int(_SECOND_NS / hertz)
        self._rows = 0
        self._queried = 0
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> str:
        """Begin to sample. Returns "", or the reason why it cannot; then no file is written."""
        nvml, trouble = _opened()
        if nvml is None:
            return trouble
        try:
            handles, trouble = _handles(nvml)
            # The slow queries of a machine's GPUs are spread over different ticks.
            now_ns = time.monotonic_ns()
            sampled = [
                _SampledGpu(nvml, index, handle, now_ns + place * self._period_ns)
                for place, (index, handle) in enumerate(handles.items())
            ]
            if not trouble:
                file = self._begun()
        except OSError as error:
            trouble = f"{self._target.name} cannot be written: {error.strerror or error}"
        except nvml.NVMLError as error:
            trouble = _message(error)
        if trouble:
            _close(nvml)
            return trouble
        # A daemon thread: a driver call that never returns must not keep perfdoctor from ending.
        self._thread = threading.Thread(
            target=self._sample, args=(nvml, sampled, file), name="perfdoctor-device", daemon=True
        )
        self._thread.start()
        return ""

    def stop(self) -> int:
        """End sampling, and return the number of rows written. May be called again, and never raises."""
        self._stopping.set()
        if self._thread is not None:
            self._thread.join(_JOIN_TIMEOUT_S)
        return self._rows

    def _sample(self, nvml: Any, sampled: list[_SampledGpu], file: TextIO) -> None:
        try:
            due_ns, is_over = time.monotonic_ns(), False
            while not is_over:
                with file:
                    due_ns, is_over = self._fill(sampled, file, due_ns)
                if not is_over:
                    self._target.replace(before(self._target))
                    file = self._begun()
        except OSError as error:
            self.trouble = f"{self._target.name} cannot be written: {error.strerror or error}"
        except nvml.NVMLError as error:
            self.trouble = f"GPU {self._queried}: {_message(error)}"
        finally:
            _close(nvml)

    def _begun(self) -> TextIO:
        """A new file. One write a line, so that a process killed in between leaves whole lines."""
        return self._target.open("w", newline="", encoding="utf-8", buffering=1)

    def _fill(self, sampled: Sequence[_SampledGpu], file: TextIO, due_ns: int) -> tuple[int, bool]:
        """Write one file, from the time `due_ns` on; when the next tick is due, and whether sampling is over."""
        rows, ticks = csv.writer(file, lineterminator="\n"), 0
        rows.writerow(COLUMNS)
        while not self._most_ticks or ticks < self._most_ticks:
            if self._stopping.wait(max(0, due_ns - time.monotonic_ns()) / _SECOND_NS):
                return due_ns, True
            for gpu in sampled:
                self._queried = gpu.index
                rows.writerow(gpu.row())
                self._rows += 1
            # Missed ticks are skipped: sampled later, they would all show the same moment.
            late_ns, ticks = time.monotonic_ns() - due_ns, ticks + 1
            due_ns += (late_ns // self._period_ns + 1) * self._period_ns
        return due_ns, False


def before(target: Path) -> Path:
    """The file of the samples before those in `target`."""
    return target.with_name(f"{target.stem}-before{target.suffix}")


class _SampledGpu:
    """One GPU and the queries that it has not refused."""

    def __init__(self, nvml: Any, index: int, handle: Any, second_due_ns: int) -> None:
        self.index = index
        self._nvml = nvml
        self._handle = handle
        self._second_due_ns = second_due_ns
        self._queries = {column: list(queries) for column, queries in {**_EACH_TICK, **_EACH_SECOND}.items()}
        self._constant = {"device": index, **{name: _first(nvml, handle, queries) for name, queries in _ONCE.items()}}

    def row(self) -> list[object]:
        # A time for each GPU: the one before may have taken 40 ms.
        values = {"unix_ns": time.time_ns(), **self._constant}
        due, now_ns = [*_EACH_TICK], time.monotonic_ns()
        if now_ns >= self._second_due_ns:
            self._second_due_ns = now_ns + _SECOND_NS
            due += _EACH_SECOND
        for column in due:
            values[column] = _first(self._nvml, self._handle, self._queries[column])
        return [values.get(column, "") for column in COLUMNS]


def _first(nvml: Any, handle: Any, queries: Sequence[Query]) -> object:
    """The value of the first query that is not refused, "" if all are. From a list, refused queries are removed.

    Raises NVML's error if the GPU or the driver is gone.
    """
    # NVMLLibraryMismatchError of pynvml: the driver is older than the function. AttributeError: pynvml is.
    refusals = (nvml.NVMLError, getattr(nvml, "NVMLLibraryMismatchError", nvml.NVMLError), AttributeError)
    for query in tuple(queries):
        try:
            return query(nvml, handle)
        except refusals as error:  # noqa: PERF203 each query may be refused
            if getattr(error, "value", None) in (
                nvml.NVML_ERROR_GPU_IS_LOST, nvml.NVML_ERROR_RESET_REQUIRED, nvml.NVML_ERROR_DRIVER_NOT_LOADED,
                nvml.NVML_ERROR_UNINITIALIZED,
            ):  # fmt: skip
                raise
            if isinstance(queries, list):
                queries.remove(query)
    return ""


def _opened() -> tuple[Any, str]:
    """The pynvml module with NVML initialised; or None and the reason."""
    try:
        import pynvml  # noqa: PLC0415 a recording on a machine without a GPU needs none of it
    except ImportError:
        return None, "pynvml (nvidia-ml-py) is not installed"
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        updated = "the NVIDIA driver was updated: it needs a restart of the machine"
        known = {
            pynvml.NVML_ERROR_LIBRARY_NOT_FOUND: "no NVIDIA driver here (libnvidia-ml was not found)",
            pynvml.NVML_ERROR_DRIVER_NOT_LOADED: "the NVIDIA driver is not loaded",
            pynvml.NVML_ERROR_NO_PERMISSION: "not permitted to use the NVIDIA driver",
            pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH: updated,
        }
        return None, known.get(getattr(error, "value", 0), _message(error))
    return pynvml, ""


def _handles(nvml: Any) -> tuple[dict[int, Any], str]:
    """The GPUs that may be queried, by index, and the reason if there are none. A container may see only some."""
    found, trouble = {}, "no GPU"
    with suppress(nvml.NVMLError):
        for index in range(nvml.nvmlDeviceGetCount()):
            try:
                found[index] = nvml.nvmlDeviceGetHandleByIndex(index)
            except nvml.NVMLError as error:  # noqa: PERF203 the next GPU may be allowed
                trouble = f"no GPU may be queried: {_message(error)}"
    return found, "" if found else trouble


def _close(nvml: Any) -> None:
    with suppress(nvml.NVMLError):  # an error of the shutdown changes nothing
        nvml.nvmlShutdown()


def _nvlink_kib(nvml: Any, gpu: Any, field: int) -> int:
    """KiB that went over all NVLinks of a GPU since its driver was loaded, despite the field's name."""
    (answer,) = nvml.nvmlDeviceGetFieldValues(gpu, [(field, _ALL_LINKS)])
    if answer.nvmlReturn:
        raise nvml.NVMLError(answer.nvmlReturn)
    return int(answer.value.ullVal)


def _hashed(uuid: str | bytes) -> str:
    raw = uuid if isinstance(uuid, bytes) else uuid.encode()
    return hashlib.sha256(raw).hexdigest()[:8]


def _message(error: Exception) -> str:
    return str(error).strip() or type(error).__name__
