"""What did the GPUs do meanwhile? Clocks, power, memory and links, asked of the driver (NVML) beside a recording.

The sampler is a thread of perfdoctor's own process: nothing of it runs in the training. NVML does not know
CUDA_VISIBLE_DEVICES, and that is wanted: a launcher gives each rank another value, so perfdoctor's own says nothing
about the training, and a neighbour's work on another GPU of the machine is worth seeing too. Every GPU is sampled.

A value that a GPU or its driver refuses stays empty, and is not asked for again. An empty value therefore means "not
told", or, in the columns that are asked for once a second, "not asked for in this row".

The module is long because a third of it is a table: which value is asked for how, and how often.
"""

from __future__ import annotations

import csv
import hashlib
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

COLUMNS = (
    "unix_ns", "device", "uuid", "power_mw", "power_limit_mw", "sm_clock_mhz", "memory_clock_mhz", "max_sm_clock_mhz",
    "temperature_c", "utilization_percent", "memory_used_bytes", "memory_total_bytes", "throttle_reasons",
    "pcie_rx_kb_per_s", "pcie_tx_kb_per_s", "pcie_generation", "pcie_width", "max_pcie_generation", "max_pcie_width",
    "nvlink_rx_kib", "nvlink_tx_kib", "processes",
)  # fmt: skip

#: One way to ask for a value: (the pynvml module, a GPU's handle) → the value. Several ways to ask for the same value
#: stand in order: a driver has only the functions of its time, so what is new is tried first.
Way = Callable[[Any, Any], object]

_ONCE: Mapping[str, tuple[Way, ...]] = {
    "uuid": (lambda nvml, gpu: _hashed(nvml.nvmlDeviceGetUUID(gpu)),),
    "power_limit_mw": (lambda nvml, gpu: nvml.nvmlDeviceGetEnforcedPowerLimit(gpu),),
    "max_sm_clock_mhz": (lambda nvml, gpu: nvml.nvmlDeviceGetMaxClockInfo(gpu, nvml.NVML_CLOCK_SM),),
    "memory_total_bytes": (lambda nvml, gpu: nvml.nvmlDeviceGetMemoryInfo(gpu).total,),
    "max_pcie_generation": (lambda nvml, gpu: nvml.nvmlDeviceGetMaxPcieLinkGeneration(gpu),),
    "max_pcie_width": (lambda nvml, gpu: nvml.nvmlDeviceGetMaxPcieLinkWidth(gpu),),
}
_EACH_TICK: Mapping[str, tuple[Way, ...]] = {
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
# The driver counts PCIe traffic over 20 ms while the caller waits, each direction by itself, and walks through all
# processes for their list: that is too dear for every tick.
_EACH_SECOND: Mapping[str, tuple[Way, ...]] = {
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
#: A call into the driver of a GPU that was lost may never return: the thread is then left to itself.
_JOIN_TIMEOUT_S = 2.0


@dataclass(frozen=True)
class Gpu:
    """One GPU as the driver counts them. `uuid`: a hash of 8 hex digits, since the real one identifies the machine."""

    index: int
    name: str
    uuid: str
    memory_bytes: int


@dataclass(frozen=True)
class Devices:
    """The GPUs here. `driver`: its version, "" if none; `trouble`: why there are no GPUs, "" if there are."""

    gpus: tuple[Gpu, ...] = ()
    driver: str = ""
    trouble: str = ""


def look() -> Devices:
    """Which GPUs are here, and which driver? Never raises: what is missing is said in `trouble`."""
    nvml, trouble = _opened()
    if nvml is None:
        return Devices(trouble=trouble)
    driver, found = "", tuple[Gpu, ...]()
    with _closing(nvml):
        try:
            driver = str(nvml.nvmlSystemGetDriverVersion())
            handles, trouble = _handles(nvml)
            found = tuple(_gpu(nvml, index, handle) for index, handle in handles.items())
        except nvml.NVMLError as error:
            trouble = _said(error)
    return Devices(found, driver, trouble)


def gpus() -> tuple[Gpu, ...]:
    """The GPUs of this machine; none where NVML cannot be asked."""
    return look().gpus


def _gpu(nvml: Any, index: int, handle: Any) -> Gpu:
    name = _first(nvml, handle, (lambda nvml, gpu: nvml.nvmlDeviceGetName(gpu),))
    memory = _first(nvml, handle, _ONCE["memory_total_bytes"])
    return Gpu(index, str(name), str(_first(nvml, handle, _ONCE["uuid"])), int(str(memory or 0)))


class DeviceSampler:
    """Writes one row a GPU and tick into the CSV file `target` until it is stopped.

    Each row is handed to the system as soon as it is whole: what was sampled is there even if perfdoctor is killed.
    `trouble` says why sampling ended before it was stopped, "" if it did not.
    """

    def __init__(self, target: Path, hertz: float = 10.0) -> None:
        assert hertz > 0
        self.trouble = ""
        self._target = target
        self._period_ns = int(_SECOND_NS / hertz)
        self._rows = 0
        self._asked = 0
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> str:
        """Begin to sample; "" if that worked, else why not, in a few words, and then no file is written."""
        nvml, trouble = _opened()
        if nvml is None:
            return trouble
        try:
            watched, trouble = self._watched(nvml)
            if not trouble:
                # One write a line, so that a process killed in between leaves whole lines.
                file = self._target.open("w", newline="", encoding="utf-8", buffering=1)
        except OSError as error:
            trouble = f"{self._target.name} cannot be written: {error.strerror or error}"
        except nvml.NVMLError as error:
            trouble = _said(error)
        if trouble:
            _close(nvml)
            return trouble
        # A daemon: a call that the driver never answers must not keep perfdoctor from ending.
        self._thread = threading.Thread(
            target=self._sample, args=(nvml, watched, file), name="perfdoctor-device", daemon=True
        )
        self._thread.start()
        return ""

    def stop(self) -> int:
        """End sampling; the number of rows written. May be called again, and never raises."""
        self._stopping.set()
        if self._thread is not None:
            self._thread.join(_JOIN_TIMEOUT_S)
        return self._rows

    def _watched(self, nvml: Any) -> tuple[list[_WatchedGpu], str]:
        handles, trouble = _handles(nvml)
        # The dear questions to the GPUs of one machine are spread over different ticks.
        now_ns = time.monotonic_ns()
        dues_ns = (now_ns + place * self._period_ns for place in range(len(handles)))
        return [
            _WatchedGpu(nvml, index, handle, due_ns)
            for (index, handle), due_ns in zip(handles.items(), dues_ns, strict=True)
        ], trouble

    def _sample(self, nvml: Any, watched: list[_WatchedGpu], file: TextIO) -> None:
        try:
            with file, _closing(nvml):
                rows = csv.writer(file, lineterminator="\n")
                rows.writerow(COLUMNS)
                self._sample_each_tick(watched, rows.writerow)
        except OSError as error:
            self.trouble = f"{self._target.name} cannot be written: {error.strerror or error}"
        except nvml.NVMLError as error:
            self.trouble = f"GPU {self._asked}: {_said(error)}"

    def _sample_each_tick(self, watched: list[_WatchedGpu], write: Callable[[list[object]], object]) -> None:
        due_ns = time.monotonic_ns()
        while not self._stopping.wait(max(0, due_ns - time.monotonic_ns()) / _SECOND_NS):
            for gpu in watched:
                self._asked = gpu.index
                write(gpu.row())
                self._rows += 1
            # Ticks that were missed are skipped: made up for, they would all show the same moment.
            late_ns = time.monotonic_ns() - due_ns
            due_ns += (late_ns // self._period_ns + 1) * self._period_ns


class _WatchedGpu:
    """One GPU and what it still answers to."""

    def __init__(self, nvml: Any, index: int, handle: Any, second_due_ns: int) -> None:
        self.index = index
        self._nvml = nvml
        self._handle = handle
        self._second_due_ns = second_due_ns
        self._ways = {column: list(ways) for column, ways in {**_EACH_TICK, **_EACH_SECOND}.items()}
        self._constant = {"device": index, **{column: _first(nvml, handle, ways) for column, ways in _ONCE.items()}}

    def row(self) -> list[object]:
        # Each GPU has a time of its own: the one before it may have taken 40 ms to answer.
        values = {"unix_ns": time.time_ns(), **self._constant}
        for column in self._asked_now():
            values[column] = _first(self._nvml, self._handle, self._ways[column])
        return [values.get(column, "") for column in COLUMNS]

    def _asked_now(self) -> list[str]:
        now_ns = time.monotonic_ns()
        if now_ns < self._second_due_ns:
            return list(_EACH_TICK)
        self._second_due_ns = now_ns + _SECOND_NS
        return [*_EACH_TICK, *_EACH_SECOND]


def _first(nvml: Any, handle: Any, ways: Sequence[Way]) -> object:
    """The answer of the first way that is not refused, "" if all are. From a list, refused ways are taken out.

    Raises NVML's error where it says that the GPU or the driver is gone.
    """
    for way in tuple(ways):
        try:
            return way(nvml, handle)
        except _refusals(nvml) as error:  # noqa: PERF203 each way has its own refusal
            if getattr(error, "value", None) in _gone(nvml):
                raise
            if isinstance(ways, list):
                ways.remove(way)
    return ""


def _refusals(nvml: Any) -> tuple[type[Exception], ...]:
    # NVMLLibraryMismatchError: the driver is older than the function, said by pynvml itself. AttributeError: pynvml is.
    return (nvml.NVMLError, getattr(nvml, "NVMLLibraryMismatchError", nvml.NVMLError), AttributeError)


def _gone(nvml: Any) -> tuple[int, ...]:
    return (
        nvml.NVML_ERROR_GPU_IS_LOST,
        nvml.NVML_ERROR_RESET_REQUIRED,
        nvml.NVML_ERROR_DRIVER_NOT_LOADED,
        nvml.NVML_ERROR_UNINITIALIZED,
    )


def _opened() -> tuple[Any, str]:
    """The pynvml module with NVML initialised, or None and why not."""
    try:
        import pynvml  # noqa: PLC0415 a recording on a machine without a GPU needs none of it
    except ImportError:
        return None, "pynvml (nvidia-ml-py) is not installed"
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        return None, _why_not_opened(pynvml, error)
    return pynvml, ""


def _why_not_opened(nvml: Any, error: Exception) -> str:
    return {
        nvml.NVML_ERROR_LIBRARY_NOT_FOUND: "no NVIDIA driver here (libnvidia-ml was not found)",
        nvml.NVML_ERROR_DRIVER_NOT_LOADED: "the NVIDIA driver is not loaded",
        nvml.NVML_ERROR_NO_PERMISSION: "not permitted to ask the NVIDIA driver",
        nvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH: "the NVIDIA driver was updated: it needs a restart of the machine",
    }.get(getattr(error, "value", 0), _said(error))


def _handles(nvml: Any) -> tuple[dict[int, Any], str]:
    """The GPUs that may be asked, by index, and why there are none. A container may see a part of them only."""
    found, trouble = {}, "no GPU"
    with suppress(nvml.NVMLError):
        for index in range(nvml.nvmlDeviceGetCount()):
            try:
                found[index] = nvml.nvmlDeviceGetHandleByIndex(index)
            except nvml.NVMLError as error:  # noqa: PERF203 the next GPU may be allowed
                trouble = f"no GPU may be asked: {_said(error)}"
    return found, "" if found else trouble


@contextmanager
def _closing(nvml: Any) -> Iterator[None]:
    try:
        yield
    finally:
        _close(nvml)


def _close(nvml: Any) -> None:
    with suppress(nvml.NVMLError):  # a driver that refuses even this is no one's concern
        nvml.nvmlShutdown()


def _nvlink_kib(nvml: Any, gpu: Any, field: int) -> int:
    """The data that went over all NVLinks of a GPU since its driver was loaded, despite the field's name."""
    (answer,) = nvml.nvmlDeviceGetFieldValues(gpu, [(field, _ALL_LINKS)])
    if answer.nvmlReturn:
        raise nvml.NVMLError(answer.nvmlReturn)
    return int(answer.value.ullVal)


def _hashed(uuid: str | bytes) -> str:
    raw = uuid if isinstance(uuid, bytes) else uuid.encode()
    return hashlib.sha256(raw).hexdigest()[:8]


def _said(error: Exception) -> str:
    return str(error).strip() or type(error).__name__
