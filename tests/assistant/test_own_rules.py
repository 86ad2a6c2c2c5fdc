"""Does a server use the rules that were named when it was started, and no others?"""

from __future__ import annotations

import os
import shutil
import subprocess

import own_rule_files
import pytest
from folders import FIXTURES

from assistant.client import Assistant, assistant, command

TORCH = "unfused-optimizer/torch"
#: Its detector leaves a file beside it when it is loaded, so that it is seen whether it was.
TRACED = own_rule_files.DETECTOR + "\nopen(__file__ + '.was-run', 'w').close()\n"
FOREVER = '"""It never returns."""\n\nimport time\n\n\ndef detect(run, at):\n    while True:\n        time.sleep(0.001)\n    yield\n'

pytestmark = pytest.mark.skipif(os.name != "posix", reason="timers as on Linux and macOS")


@pytest.fixture
def rules(tmp_path):
    return own_rule_files.write(tmp_path / "rules", detector=TRACED)


@pytest.fixture
def root(tmp_path):
    """With rules in it, which nobody named."""
    shutil.copytree(FIXTURES / TORCH, tmp_path / "root")
    own_rule_files.write(tmp_path / "root" / "perf", detector=TRACED, name="slow-root")
    (tmp_path / "root" / "pyproject.toml").write_text('[tool.perfdoctor]\nrules = ["perf"]\n', "utf-8")
    return tmp_path / "root"


def found(client: Assistant) -> dict[str, float]:
    """Findings of rules that are not ours, with the ns that each saves."""
    every = client.ask("findings", path=".", limit=20)["findings"]
    return {each["rule"]: each["saving_ns"]["likely"] for each in every if each.get("origin")}


def test_rules_named_at_the_start_are_in_every_answer(root, rules, monkeypatch):
    monkeypatch.chdir(rules.parent)  # a client starts it somewhere, and its worker is in a folder of its own
    with assistant(root, "--rules", "rules") as client:
        assert found(client)["acme/slow-add"] > 0
        assert client.ask("explain", rule="acme/slow-add")["origin"] == "rules"
        (one,) = client.ask("findings", path=".", rule="acme/slow-add")["findings"]
        assert one["fixes"][0]["title"] == "Add less"
        asked = client.ask("what_if", path=".", changes="acme/slow-add")
        assert asked["fixed"] == ["acme/slow-add"]
        assert asked["step_ns"]["likely"] < asked["now_ns"]
        assert client.ask("compare", before=".", after=".")["verdict"] == "no change"


def test_a_rule_that_is_written_meanwhile_is_used_as_it_is_now(root, rules):
    with assistant(root, "--rules", str(rules)) as client:
        saved = found(client)["acme/slow-add"]
        text = (rules / "slow-add.toml").read_text("utf-8")
        halved = 'value = 0.25\nunit = "share of the adds"\nwhy = "Half'
        (rules / "slow-add.toml").write_text(
            text.replace('value = 0.5\nunit = "share of the adds"\nwhy = "Half', halved)
        )
        assert found(client)["acme/slow-add"] == pytest.approx(saved / 2, rel=0.01)


def test_a_config_brings_rules_and_thresholds(root, rules):
    config = rules.parent / "pyproject.toml"
    config.write_text(
        '[tool.perfdoctor]\nrules = ["rules"]\n[tool.perfdoctor.thresholds."acme/slow-add"]\nmin_share_of_step = 1\n'
    )
    with assistant(root, "--config", str(config)) as client:
        (least,) = [each for each in client.ask("explain", rule="acme/slow-add")["thresholds"] if "min" in each["name"]]
        assert least["value"] == 1
        assert found(client) == {}
    assert (rules / "slow_add.py.was-run").exists()


def test_without_an_option_no_code_is_run_whatever_lies_in_the_root_and_whatever_a_call_says(root, rules, monkeypatch):
    monkeypatch.setenv("PERFDOCTOR_CONFIG", str(root / "pyproject.toml"))
    monkeypatch.chdir(root)
    with assistant(root) as client:
        assert found(client) == {}
        for key in ("rules", "own_rules", "config"):
            answer = client.call("analyze", {"path": ".", key: str(rules)})
            assert answer.is_error
            assert "does not take" in answer.text
        assert client.call("explain", {"rule": "acme/slow-root"}).is_error
    assert not list(root.parent.rglob("*.was-run"))


def test_a_rule_that_never_returns_ends_the_call_and_not_the_server(root, rules):
    own_rule_files.write(rules, detector=FOREVER, name="slow-forever")
    with assistant(root, "--rules", str(rules), "--timeout", "8") as client:
        assert "8 s" in client.call("analyze", {"path": "."}).text
        (rules / "slow-forever.toml").unlink()
        assert found(client)["acme/slow-add"] > 0


def test_a_broken_rule_is_named_when_the_server_starts_and_rules_that_are_not_there_are_an_error(root, rules):
    (rules / "slow-add.toml").write_text(own_rule_files.DOCUMENT.replace('title = "Adds take too long"\n', ""))
    program = [*command(root, "--rules", str(rules)), "--timeout", "30"]
    done = subprocess.run(program, input="", capture_output=True, text=True, check=False)
    assert "the rule acme/slow-add cannot be used: slow-add.toml: there is no field 'title'" in done.stderr
    assert done.returncode == 0
    gone = subprocess.run(command(root, "--rules", "nowhere"), input="", capture_output=True, text=True, check=False)
    assert gone.returncode == 2
    assert "nowhere does not exist" in gone.stderr
