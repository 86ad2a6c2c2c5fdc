"""The documented views say what the facts say: to sqlite3, and to Datasette without any setting."""

from __future__ import annotations

import json
import re
import sqlite3
import subprocess
import sys

import pytest
from folders import ROOT
from history.histories import STEP_NS, facts, history

from perfdoctor.history import runs, schema, store

PAGE = (ROOT / "docs" / "history.md").read_text("utf-8")
#: The view, and its columns, of each row of the page.
DOCUMENTED = {
    view: re.findall(r"`(\w+)`", columns)
    for view, columns in re.findall(r"^\| `(\w+)` \| [^|]* \| (.*) \|$", PAGE, re.MULTILINE)
}


@pytest.fixture
def file(tmp_path):
    every = [facts(n, git_commit="c" * 40, git_dirty=1) for n in range(3)]
    path = history(tmp_path / "history.db", every)
    with store.written(path) as db:
        runs.tag(db, "nightly", every[2].id)
        runs.pin(db, "main", [every[2].id])
    return path


def rows(file, query):
    with sqlite3.connect(file) as connection:
        connection.row_factory = sqlite3.Row
        return [dict(row) for row in connection.execute(query)]


def test_the_page_names_every_view_with_every_column(file):
    assert set(DOCUMENTED) == set(schema.views())
    for view, columns in DOCUMENTED.items():
        if view != "latest":
            assert list(rows(file, f"select * from {view}")[0]) == columns


def test_the_views_say_what_was_stored(file):
    first = rows(file, "select * from overview")[0]
    assert (first["step_ms"], first["mfu_percent"], first["commit_id"], first["dirty"]) == (100.0, 40.0, "c" * 10, 1)
    assert (first["first_finding"], first["tags"], first["pins"]) == ("input-wait", "nightly", "main")
    parts = rows(file, f"select part, ms_per_step, percent from partition where run_id = '{first['id']}' order by part")
    assert [tuple(each.values()) for each in parts] == [("compute", 83.333, 83.33), ("input_wait", 16.667, 16.67)]
    times = rows(file, f"select step, ms from step_times where run_id = '{first['id']}' order by step")
    assert [tuple(each.values()) for each in times] == [
        (1, (STEP_NS - 1000) / 1e6),
        (2, 100.0),
        (3, (STEP_NS + 1000) / 1e6),
    ]
    [promise] = rows(file, f"select * from promises where run_id = '{first['id']}'")
    assert (promise["rule"], promise["likely_ms"], promise["step_ms"]) == ("input-wait", 16.667, 100.0)


def test_only_the_last_analysis_of_a_recording_is_among_the_latest(tmp_path):
    again = [facts(2, recording="x", stored_at=f"2026-05-0{day}T00:00:00.000Z") for day in (3, 1, 2)]
    other_part = facts(2, recording="x", part="steps 1..2")
    file = history(tmp_path / "history.db", [*again, other_part, facts(3, recording=None), facts(4, recording=None)])
    found = [row["id"] for row in rows(file, "select id from latest")]
    assert again[0].id in found
    assert other_part.id in found
    assert len(found) == 4


def test_nothing_about_the_page_query_is_wrong(file):
    query = re.search(r'sqlite3 \S+ "(select [^"]+)"', PAGE)[1]
    assert len(rows(file, query)) == 3


def in_any_order(found):
    return sorted(json.dumps(row, sort_keys=True) for row in found)


#: One process for all pages: it prints what `datasette FILE` serves at each address.
SERVED = """
import asyncio, json, sys
from datasette.app import Datasette

async def served():
    client = Datasette([sys.argv[1]]).client
    for address in sys.argv[2:]:
        answer = await client.get(address)
        assert answer.status_code == 200, answer.text
        print(json.dumps(answer.text))

asyncio.run(served())
"""


def test_datasette_opens_it_and_shows_each_view(file):
    pytest.importorskip("datasette")
    names = (*schema.views(), "runs", "parts", "findings", "tags", "notes", "pins")
    addresses = [f"/history/{name}.json?_shape=array" for name in names]
    command = [sys.executable, "-c", SERVED, str(file), *addresses, "/history/findings"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    *answers, page = (json.loads(line) for line in done.stdout.splitlines())
    for name, answer in zip(names, answers, strict=True):
        assert in_any_order(json.loads(answer)) == in_any_order(rows(file, f"select * from {name}")), name
    assert re.search(r'href="/history/runs/[0-9a-f]{12}"', page)  # by the foreign key
