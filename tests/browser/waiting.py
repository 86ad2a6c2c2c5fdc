"""How does a test wait for a page whose policy forbids the `eval` that Playwright's own waiting needs?"""

from __future__ import annotations

import time
from typing import Any

_PATIENCE_S = 20


def until(page: Any, expression: str) -> Any:
    """Asks the page again and again until the expression is true; its value."""
    deadline = time.monotonic() + _PATIENCE_S
    while not (value := page.evaluate(expression)):
        assert time.monotonic() < deadline, f"never true: {expression}"
        page.wait_for_timeout(20)
    return value
