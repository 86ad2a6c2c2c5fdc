"""Memory snapshots made by hand, as torch writes them, call by call.

```
made = Recording()
weights = made.alloc(4 * MIB, line="model.py:3 __init__")     # a segment is asked from the driver where none is free
made.begin()                                                 # what came before is not in the trace
made.alloc(2 * MIB, line="train.py:9 loss")
made.free(weights)
made.write(path)
```
The allocator is a simple one of this file's own: first fit in segments of 20 MiB, or of the request if that is larger.
"""

from __future__ import annotations

import pickle
from dataclasses import dataclass, field
from pathlib import Path

MIB = 1 << 20
FIRST_ADDRESS = 0x7F0000000000
START_US = 1_700_000_000_000_000


def frame(text: str) -> dict[str, object]:
    """`folder/file.py:7 function` as torch writes a frame; what has no file is C++."""
    place, _, name = text.rpartition(" ") if ".py:" in text else ("", "", text)
    file, _, line = place.rpartition(":")
    return {"filename": file or "??", "line": int(line or 0), "name": name}


def frames(*texts: str) -> list[dict[str, object]]:
    return [frame(text) for text in texts]


@dataclass
class Recording:
    device: int = 0
    segment_bytes: int = 20 * MIB
    segments: dict[int, int] = field(default_factory=dict)
    blocks: dict[int, dict] = field(default_factory=dict)
    events: list[dict] = field(default_factory=list)
    marks: list[dict] = field(default_factory=list)
    now_us: int = START_US

    def _event(self, action: str, **more: object) -> None:
        self.now_us += 10
        self.events.append({"action": action, "stream": 0, "time_us": self.now_us, **more})

    def begin(self) -> None:
        self.events, self.marks = [], []
        for block in self.blocks.values():
            block["frames"] = []

    def alloc(self, size: int, *lines: str) -> int:
        """The address of so many bytes, asked for by the innermost of these lines."""
        occupied = max(-(-size // 512), 1) * 512
        address = next((at for at, free in self.free_pieces() if free >= occupied), None)
        if address is None:
            address = self.segment(max(self.segment_bytes, occupied))
        self.blocks[address] = {
            "address": address, "size": occupied, "requested_size": size, "state": "active_allocated",
            "frames": frames(*lines),
        }  # fmt: skip
        self._event("alloc", addr=address, size=size, frames=frames(*lines))
        return address

    def segment(self, size: int) -> int:
        address = max((at + length for at, length in self.segments.items()), default=FIRST_ADDRESS) + (64 << 20)
        self.segments[address] = size
        self._event("segment_alloc", addr=address, size=size, frames=[])
        return address

    def free(self, address: int, *, completed: bool = True) -> None:
        size = self.blocks[address]["requested_size"]
        self._event("free_requested", addr=address, size=size, frames=[])
        if not completed:
            self.blocks[address]["state"] = "active_awaiting_free"
            return
        del self.blocks[address]
        self._event("free_completed", addr=address, size=size, frames=[])

    def release(self, address: int) -> None:
        """Give an empty segment back to the driver."""
        self._event("segment_free", addr=address, size=self.segments.pop(address), frames=[])

    def fail(self, size: int, device_free: int, *lines: str) -> None:
        self._event("oom", size=size, device_free=device_free, frames=frames(*lines))

    def mark(self, name: str = "Optimizer.step#AdamW.step") -> None:
        self.now_us += 10
        self.marks += [
            {"stage": stage, "name": name, "device": self.device, "time_us": self.now_us + number}
            for number, stage in enumerate(("START", "END"))
        ]

    def free_pieces(self) -> list[tuple[int, int]]:
        """(address, bytes) of what is free in each segment."""
        found = []
        for start, size in sorted(self.segments.items()):
            at = start
            inside = sorted(each for each in self.blocks if start <= each < start + size)
            for address in inside:
                if address > at:
                    found.append((at, address - at))
                at = address + self.blocks[address]["size"]
            if start + size > at:
                found.append((at, start + size - at))
        return found

    @property
    def active_bytes(self) -> int:
        return sum(block["size"] for block in self.blocks.values())

    @property
    def reserved_bytes(self) -> int:
        return sum(self.segments.values())

    def written_segments(self) -> list[dict]:
        written = []
        for start, size in sorted(self.segments.items()):
            inside = [block for at, block in self.blocks.items() if start <= at < start + size]
            free = [
                {"address": at, "size": length, "requested_size": 0, "state": "inactive", "frames": []}
                for at, length in self.free_pieces()
                if start <= at < start + size
            ]
            handed_out = [block for block in inside if block["state"] == "active_allocated"]
            written.append({
                "device": self.device, "address": start, "total_size": size, "stream": 0, "segment_type": "large",
                "segment_pool_id": (0, 0), "is_expandable": False, "frames": [],
                "allocated_size": sum(block["size"] for block in handed_out),
                "active_size": sum(block["size"] for block in inside),
                "requested_size": sum(block["requested_size"] for block in inside),
                "blocks": sorted([*inside, *free], key=lambda block: block["address"]),
            })  # fmt: skip
        return written

    def snapshot(self) -> dict[str, object]:
        traces = [[] for _ in range(self.device)] + [self.events]
        return {
            "segments": self.written_segments(), "device_traces": traces, "allocator_settings": {},
            "external_annotations": self.marks,
        }  # fmt: skip

    def write(self, path: Path, protocol: int | None = None) -> Path:
        path.write_bytes(pickle.dumps(self.snapshot(), protocol))
        return path
