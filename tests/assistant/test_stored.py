"""Is a diagnosis whose recording is no more answered from what was stored?"""

from __future__ import annotations

import shutil

import pytest
from folders import FIXTURES

import perfdoctor
from assistant.client import assistant

TORCH = FIXTURES / "unfused-optimizer" / "torch"


@pytest.fixture
def root(tmp_path):
    shutil.copytree(TORCH, tmp_path / "whole")
    (tmp_path / "gone").mkdir()
    (tmp_path / "gone" / "diagnosis.json").write_text(perfdoctor.analyze(tmp_path / "whole").to_json(), "utf-8")
    return tmp_path


def test_it_answers_as_the_recording_does(root):
    with assistant(root) as client:
        listed = {each["path"]: each["kind"] for each in client.ask("recordings")["recordings"]}
        assert listed["gone/diagnosis.json"] == "diagnosis"
        for path in ("gone", "gone/diagnosis.json"):
            assert client.ask("analyze", path=path) == client.ask("analyze", path="whole")
            whole = client.ask("findings", path="whole", rule="unfused-optimizer")
            assert client.ask("findings", path=path, rule="unfused-optimizer") == whole
            assert client.ask("compare", before="whole", after=path)["verdict"] == "no change"
            assert "Leave out range and steps" in client.call("analyze", {"path": path, "steps": "1..2"}).text
            for tool, more in {"kernels": {}, "query": {"sql": "SELECT 1"}, "what_if": {"changes": "batch=2x"}}.items():
                refused = client.call(tool, {"path": path, **more})
                assert refused.is_error
                assert "ass " in refused.text  # "Pass a recording …", or "pass the recording …"
                assert len(refused.text.splitlines()) == 2
