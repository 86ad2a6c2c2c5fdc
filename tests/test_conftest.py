"""What holds for all tests: are examples the same in each run, and are files that are begun early there?"""

from __future__ import annotations

import importlib.util

from folders import ROOT
from hypothesis import given, settings
from hypothesis import strategies as st


def drawn():
    examples = []

    @settings(max_examples=300)
    @given(st.integers(), st.text())
    def draw(number, text):
        examples.append((number, text))

    draw()
    return examples


def test_a_module_that_is_imported_meanwhile_changes_no_example(tmp_path, monkeypatch):
    before = drawn()
    file = tmp_path / "imported" / "constants.py"
    file.parent.mkdir()
    file.write_text(
        "".join(f"number_{n}, text_{n} = {n}9182736455463728190, 'seldom {n}'\n" for n in range(1, 100)), "utf-8"
    )
    spec = importlib.util.spec_from_file_location("constants_of_ours", file)
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(importlib.sys.modules, spec.name, module)
    spec.loader.exec_module(module)
    assert drawn() == before


def test_every_file_that_is_begun_early_exists(pytestconfig):
    conftest = pytestconfig.pluginmanager.get_plugin(str(ROOT / "tests" / "conftest.py"))
    assert conftest.LONGEST
    assert [file for file in conftest.LONGEST if not file.is_file()] == []
