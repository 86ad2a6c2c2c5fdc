"""Templates are compiled once for the user, and a page is the same without that."""

from __future__ import annotations

from pathlib import Path

import pytest
from jinja2 import DictLoader, Environment

from perfdoctor.report.templates import compiled_pages


def rendered(text: str) -> str:
    environment = Environment(loader=DictLoader({"page": text}), autoescape=True, bytecode_cache=compiled_pages())
    return environment.get_template("page").render(name="<b>")


def test_a_template_is_compiled_again_only_where_its_text_differs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert rendered("one {{ name }}") == "one &lt;b&gt;"
    (kept,) = tmp_path.rglob("*.bin")
    before = kept.read_bytes()
    assert rendered("one {{ name }}") == "one &lt;b&gt;"
    assert kept.read_bytes() == before
    assert rendered("two {{ name }}") == "two &lt;b&gt;"
    assert kept.read_bytes() != before


def test_a_page_is_rendered_where_nothing_can_be_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert rendered("{{ name }}") == "&lt;b&gt;"


@pytest.mark.parametrize("damage", [b"", b"j2", b"\0" * 100])
def test_a_damaged_file_is_made_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, damage: bytes):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    rendered("{{ name }}")
    (kept,) = tmp_path.rglob("*.bin")
    kept.write_bytes(damage)
    assert rendered("{{ name }}") == "&lt;b&gt;"
