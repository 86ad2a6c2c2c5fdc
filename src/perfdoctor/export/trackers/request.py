"""What is a tracker asked to log?"""

from __future__ import annotations

from typing import TypedDict


class Request(TypedDict):
    """`folder`: for files of TensorBoard. `numbers`: by name. `text`: the report in Markdown; `page`: the HTML file."""

    tracker: str
    name: str
    folder: str
    recorded_unix_s: float
    numbers: dict[str, float]
    tags: dict[str, str]
    text: str
    page: str
