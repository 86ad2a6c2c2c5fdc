"""What the process beside a training gives to others, and when."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from perfdoctor.cli import watch_process
from perfdoctor.cli.watch_process import Orders, _Beside
from perfdoctor.system.run_folder import Manifest, RunFolder
from perfdoctor.watching.watcher import Policy


@pytest.mark.parametrize(("given", "built"), [({}, 0), ({"metrics": "a.prom"}, 3), ({"summaries": "left"}, 1)])
def test_what_is_known_is_put_together_only_where_somebody_gets_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: dict[str, Any], built: int
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(watch_process.time, "monotonic", lambda: 1000.0)
    run = RunFolder.create(tmp_path / "run", Manifest(perfdoctor="test", command=["train"]))
    beside = _Beside(Orders(str(run.path), Policy(), **given), run)
    made, document = [], beside.watcher.document
    monkeypatch.setattr(beside.watcher, "document", lambda *a, **k: made.append(a) or document(*a, **k))
    for _ in range(3):
        beside.publish()
    assert len(made) == built
