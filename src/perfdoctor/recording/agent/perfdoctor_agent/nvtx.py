"""How do our ranges reach Nsight Systems from any Python, without an installed package?

NVTX is a protocol: a tool names its library in NVTX_INJECTION64_PATH; a client loads that library, calls
`InitializeInjectionNvtx2` and passes a function that lists its entry points, which the tool then fills in
(nvtx3/nvtxDetail/nvtxInit.h and nvtxTypes.h). `torch.cuda.nvtx` exists in CUDA builds only, and some versions of the
package `nvtx` lose every range under some versions of nsys: so this implements the protocol itself.
"""

from __future__ import annotations

import ctypes
import os
from typing import Any

#: Export tables that a tool may request, and the module whose functions we call (nvtxTypes.h).
_CALLBACKS, _VERSION_INFO = 1, 3
_CORE, _CORE_WITH_DOMAINS = 1, 5  # nsys refuses a client that lacks either
_SLOTS = 16  # both modules have functions 1 to 15
_RANGE_START_A, _RANGE_END = 5, 7
_VERSION = 3

_MODULE_TABLE = ctypes.CFUNCTYPE(
    ctypes.c_int, ctypes.c_int, ctypes.POINTER(ctypes.POINTER(ctypes.c_void_p)), ctypes.POINTER(ctypes.c_uint)
)
_SET_VERSION = ctypes.CFUNCTYPE(None, ctypes.c_uint32)
_EXPORT_TABLE = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_uint32)


class _Callbacks(ctypes.Structure):
    _fields_ = [("size", ctypes.c_size_t), ("module_table", _MODULE_TABLE)]


class _VersionInfo(ctypes.Structure):
    _fields_ = [
        ("size", ctypes.c_size_t), ("version", ctypes.c_uint32), ("reserved", ctypes.c_uint32),
        ("set_version", _SET_VERSION),
    ]  # fmt: skip


class Nvtx:
    """The default NVTX domain of the attached tool. Keeps references to everything that the tool was given."""

    def __init__(self, library: str) -> None:
        self._slots = {module: (ctypes.c_void_p * _SLOTS)() for module in (_CORE, _CORE_WITH_DOMAINS)}
        self._entries = {module: _entries(slots) for module, slots in self._slots.items()}
        self._module_table = _MODULE_TABLE(self._give_module)
        self._callbacks = _Callbacks(ctypes.sizeof(_Callbacks), self._module_table)
        self._set_version = _SET_VERSION(lambda _version: None)
        self._version = _VersionInfo(ctypes.sizeof(_VersionInfo), _VERSION, 0, self._set_version)
        self._export = _EXPORT_TABLE(self._give_table)
        self._library = ctypes.CDLL(library)
        initialize = self._library.InitializeInjectionNvtx2
        initialize.restype, initialize.argtypes = ctypes.c_int, [_EXPORT_TABLE]
        if initialize(self._export) != 1:
            raise OSError("the tool's NVTX library refused")
        self.start_range = self._function(_RANGE_START_A, ctypes.c_uint64, ctypes.c_char_p)
        self.end_range = self._function(_RANGE_END, None, ctypes.c_uint64)

    def _give_table(self, wanted: int) -> int:
        if wanted == _CALLBACKS:
            return ctypes.addressof(self._callbacks)
        return ctypes.addressof(self._version) if wanted == _VERSION_INFO else 0

    def _give_module(self, module: int, table: Any, size: Any) -> int:
        entries = self._entries.get(module)
        if entries is None:
            return 0
        table[0] = ctypes.cast(entries, ctypes.POINTER(ctypes.c_void_p))
        if size:
            size[0] = ctypes.sizeof(entries)
        return 1

    def _function(self, slot: int, result: Any, *arguments: Any) -> Any:
        address = self._slots[_CORE][slot]
        if not address:
            raise OSError("the tool records no ranges")
        return ctypes.CFUNCTYPE(result, *arguments)(address)


def _entries(slots: ctypes.Array[ctypes.c_void_p]) -> ctypes.Array[ctypes.c_void_p]:
    """Where the tool writes its functions: a pointer to each slot, none for slot 0, and a null pointer at the end."""
    entries = (ctypes.c_void_p * (_SLOTS + 1))()
    for index in range(1, _SLOTS):
        entries[index] = ctypes.addressof(slots) + index * ctypes.sizeof(ctypes.c_void_p)
    return entries


def attach() -> Nvtx | None:
    """The tool that records NVTX in this process; None where there is none or it refuses."""
    library = os.environ.get("NVTX_INJECTION64_PATH")
    if not library:
        return None
    try:
        return Nvtx(library)
    except (OSError, AttributeError):
        return None
