"""Which categories of rules are there? Their order is the way of a batch through a step."""

from __future__ import annotations

from collections.abc import Mapping

#: By the name that a rule's document and its folder have: the heading in the documentation.
CATEGORIES: Mapping[str, str] = {
    "input": "Input",
    "host": "Host",
    "kernels": "Kernels",
    "copies": "Copies",
    "communication": "Communication",
    "memory": "Memory",
    "device": "Device",
}
