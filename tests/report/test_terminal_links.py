"""Which words in the terminal are links, and which never are?"""

from __future__ import annotations

import io
import re

import pytest
from msgspec.structs import replace
from report.samples import INPUT_BOUND, POISON, POISONED
from rich.console import Console

from perfdoctor.records.findings import Rows
from perfdoctor.report import html, terminal
from perfdoctor.report.terminal_links import TerminalLinks

LINK = re.compile(r"\x1b\]8;(?:id=\d+)?;([^\x1b]*)\x1b\\")


class Screen(io.StringIO):
    """Looks like a terminal to a program."""

    encoding = "utf-8"

    def isatty(self):
        return True


@pytest.fixture(autouse=True)
def _real_terminal(monkeypatch, tmp_path):
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.chdir(tmp_path)
    for name in ("NO_COLOR", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def page(tmp_path):
    path = tmp_path / "a report's #1 page.html"
    path.write_text("<!doctype html>")
    return path


def console(file=None, **how):
    return Console(file=file or Screen(), width=80, legacy_windows=False, **{"color_system": "truecolor", **how})


def addresses(text):
    return [address for address in LINK.findall(text) if address]


def printed(diagnosis, page, where=None):
    where = where or console()
    terminal.render(diagnosis, where, page=page)
    return where.file.getvalue()


def at_line(line):
    table = Rows("Reads", ("line", "idle"), ("text", "ns"), ((line, 3),))
    first, *others = INPUT_BOUND.findings
    return replace(INPUT_BOUND, findings=(replace(first, evidence=(table,)), *others))


def test_a_finding_leads_to_its_place_on_the_page(page):
    base = "a%20report%27s%20%231%20page.html"
    found = addresses(printed(INPUT_BOUND, page))
    assert [address.rpartition("/")[2] for address in dict.fromkeys(found)] == [
        f"{base}#finding-1",
        f"{base}#finding-2",
    ]
    assert all(address.startswith("file:///") for address in found)
    ids = re.findall(r'id="(finding-\d+)"', html.render(INPUT_BOUND))
    assert ids[:2] == ["finding-1", "finding-2"]


def test_the_last_line_leads_to_the_page(page):
    where = console()
    terminal.print_report_path(page, where)
    assert addresses(where.file.getvalue()) == [page.as_uri()]
    assert LINK.sub("", where.file.getvalue()) == f"Report: {page}\n"


def test_without_a_page_nothing_can_be_clicked(tmp_path):
    assert "\x1b]" not in printed(INPUT_BOUND, None)
    assert "\x1b]" not in printed(INPUT_BOUND, tmp_path / "not-written.html")


def test_only_a_terminal_in_colour_gets_links(page, monkeypatch):
    assert "\x1b]" in printed(INPUT_BOUND, page)
    piped = console(io.StringIO(), force_terminal=True)
    assert "\x1b]" not in printed(INPUT_BOUND, page, piped)
    assert "\x1b]" not in printed(INPUT_BOUND, page, console(color_system=None))
    assert "\x1b]" not in printed(INPUT_BOUND, page, console(no_color=True))
    for term in ("dumb", "linux"):
        monkeypatch.setenv("TERM", term)
        assert "\x1b]" not in printed(INPUT_BOUND, page)


@pytest.mark.parametrize("written", ["src/train.py(42): step", "src/train.py:42", "./src/train.py(42)"])
def test_a_source_line_of_this_folder_can_be_opened(written, tmp_path):
    (tmp_path / "src").mkdir()
    source = tmp_path / "src" / "train.py"
    source.touch()
    assert set(addresses(printed(at_line(written), None))) == {f"{source.as_uri()}#42"}
    assert set(addresses(printed(at_line(f"{source}(42)"), None))) == {f"{source.as_uri()}#42"}


@pytest.mark.parametrize(
    "written",
    [
        "gone.py(42)",
        "../outside.py(1)",
        "/etc/hostname.py:1",
        "//host/share/train.py:1",
        "file:///etc/train.py:1",
        "folder.py(1)",
        "train.py",
        "train.py(42)x",
        "train.sh:1",
        "train.py:99999999999",
        "\x1b]8;;https://example.org\x1b\\train.sh\x1b]8;;\x1b\\",
        POISON,
    ],
)
def test_no_other_text_of_a_trace_can_be_opened(written, tmp_path):
    (tmp_path.parent / "outside.py").touch()
    (tmp_path / "folder.py").mkdir()
    for name in ("train.py", "train.sh"):
        (tmp_path / name).touch()
    assert "\x1b]" not in printed(at_line(written), None)


def test_paths_elsewhere_are_not_even_looked_up(monkeypatch):
    asked = []
    monkeypatch.setattr("pathlib.Path.is_file", lambda self: asked.append(str(self)) or True)
    list(TerminalLinks(console()).to_source("/net/host/train.py(1) ../train.py(1) //host/train.py:1"))
    assert asked == []


def test_a_poisoned_run_leads_nowhere_but_to_our_page(page):
    output = printed(POISONED, page)
    assert addresses(output)
    assert all(address.startswith(f"{page.as_uri()}#finding-") for address in addresses(output))
    assert LINK.sub("", output).count("\x1b]") == 0


@pytest.mark.parametrize(
    ("address", "leads"),
    [
        ("https://docs.pytorch.org/docs", True),
        ("http://example.org/a#b", True),
        ("javascript:alert(1)", False),
        ("https://example.org/\x1b\\", False),
        ("https://a b", False),
        ("Goto and van de Geijn, 2008", False),
    ],
)
def test_a_reference_is_a_link_if_it_is_an_address(address, leads):
    assert bool(TerminalLinks(console()).to_web(address)) == leads
