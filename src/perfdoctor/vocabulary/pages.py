"""Which pages of numbers has a report, in which order? `views/pages/` has one module for each, by its name."""

from __future__ import annotations

from collections.abc import Mapping

#: By name, which is also the page's address in a report: its title.
PAGES: Mapping[str, str] = {
    "timeline": "Timeline",
    "kernels": "Kernels",
    "ops": "Ops and code",
    "communication": "Communication",
    "copies": "Copies",
    "roofline": "Roofline",
    "memory": "Memory",
    "steps": "Steps",
    "ranks": "Ranks",
    "device": "Device",
}
