"""A diagnosis for experiment trackers: one module a tracker, run in a process of its own (`__main__`)."""

from __future__ import annotations

from typing import TypedDict


class TrackerRequest(TypedDict):
    """`folder`: for files of TensorBoard. `numbers`: by name. `text`: the report in Markdown; `page`: the HTML file."""

    tracker: str
    name: str
    folder: str
    recorded_unix_s: float
    numbers: dict[str, float]
    tags: dict[str, str]
    text: str
    page: str
