"""Are the answers to the benchmark's questions in the first texts of the tools?"""

from __future__ import annotations

import asyncio
import importlib.util
from concurrent.futures import ThreadPoolExecutor

import pytest
from folders import FIXTURES, ROOT

pytest.importorskip("mcp")

from perfdoctor.assistant.arguments import DEFAULT_TOKENS


@pytest.fixture(scope="module")
def benchmark():
    """By its path: these tests have its name."""
    spec = importlib.util.spec_from_file_location("benchmark_of_assistant", ROOT / "benchmarks" / "assistant.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_questions_about_fixtures_are_answered_by_first_texts_alone(benchmark):
    asked = [question for question in benchmark.QUESTIONS if benchmark.folder_of(question, None) == FIXTURES]
    with ThreadPoolExecutor(1) as apart:  # a browser's tests leave a loop in the thread of all tests
        found = apart.submit(asyncio.run, benchmark.answered(asked, FIXTURES)).result()
    assert [(each.question["ask"], each.found, each.right) for each in found if not each.is_right] == []
    assert max(each.tokens for each in found) <= DEFAULT_TOKENS
    assert len(benchmark.QUESTIONS) >= 20
