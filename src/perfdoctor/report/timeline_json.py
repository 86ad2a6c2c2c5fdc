"""How does a page carry the timeline? Columns of whole numbers, starts as differences, defaults left out."""

from __future__ import annotations

from typing import Any

from perfdoctor.views import TimelineView


def document(view: TimelineView) -> dict[str, Any]:
    """The view as JSON's lists; times are ns from the window's first event."""
    return {}
