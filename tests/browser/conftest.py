"""A real browser: pages opened here fail their test on any error, warning or request but the file itself."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import sync_playwright

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
HERE = Path(__file__).parent
WIDE = {"width": 1280, "height": 900}


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.is_relative_to(HERE):
            item.add_marker(pytest.mark.chromium)


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    """Chromium, driven by Playwright; skips without one, fails where PERFDOCTOR_REQUIRE_CHROMIUM is set."""
    if CHROMIUM is None:
        if os.environ.get("PERFDOCTOR_REQUIRE_CHROMIUM"):
            pytest.fail("Chromium is needed here")
        pytest.skip("no chromium here")
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"])
        yield chromium
        chromium.close()


@pytest.fixture
def open_page(browser: Any, tmp_path: Path) -> Iterator[Callable[..., Any]]:
    """`open_page(html, "#timeline", **context options)`: the page, which must stay silent and load nothing else."""
    wrong: list[str] = []
    with ExitStack() as opened:

        def open_(html: str, address: str = "", **options: Any) -> Any:
            path = tmp_path / f"report{len(list(tmp_path.glob('report*.html')))}.html"
            path.write_text(html, "utf-8")
            context = browser.new_context(**{"viewport": WIDE, **options})
            opened.callback(context.close)
            page = context.new_page()
            page.on("console", lambda said: wrong.append(f"{said.type}: {said.text}"))
            page.on("pageerror", lambda error: wrong.append(f"error: {error}"))
            page.on("request", lambda request: request.url.split("#")[0] == path.as_uri() or wrong.append(request.url))
            page.goto(path.as_uri() + address)
            return page

        yield open_
    assert wrong == []
