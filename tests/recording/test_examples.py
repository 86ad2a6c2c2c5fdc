"""Does every slow example run, beside a fixed twin that trains the same?

They need torch, which perfdoctor does not (torch_python.py).
"""

from __future__ import annotations

import ast
import os
import random
import re
import signal
import socket

import pytest
from folders import EXAMPLES
from tables import of_each
from warm_torch import ALL_AT_ONE, Program

from perfdoctor.vocabulary.examples import load_examples
from perfdoctor.vocabulary.rulebook import load_rules

pytestmark = [pytest.mark.torch, ALL_AT_ONE]
SCRIPTS = sorted(path.stem for path in EXAMPLES.glob("*.py") if path.stem != "training")
SLOW = [name for name in SCRIPTS if not name.endswith("_fixed")]

every_script = pytest.mark.parametrize("name", SCRIPTS)
MEDIAN = re.compile(r"^median step \d+\.\d\d ms$", re.MULTILINE)
LOSS = re.compile(r"^step +0  loss ([\d.]+)$", re.MULTILINE)


def started(name: str, *words: str, steps: int, **environment: str) -> Program:
    return Program([EXAMPLES / f"{name}.py", "--steps", str(steps), *words], EXAMPLES, {**os.environ, **environment})


def run(name: str, *words: str, steps: int = 2) -> str:
    code, output, errors = started(name, *words, steps=steps).finish()
    assert code == 0, output + errors
    return output


def first_loss(output: str) -> float:
    (loss,) = LOSS.findall(output)
    return float(loss)


def free_port() -> str:
    """One that no connection is given by chance before the first rank listens on it: those come from 32768 on.

    Linux: `net.ipv4.ip_local_port_range`; a process that connects there while nobody listens may even meet itself.
    """
    for port in random.sample(range(20_000, 32_000), 100):
        with socket.socket() as trial:
            if trial.connect_ex(("localhost", port)):
                return str(port)
    raise OSError("no free port")


def docstring(name: str) -> str:
    return ast.get_docstring(ast.parse((EXAMPLES / f"{name}.py").read_text("utf-8"))) or ""


def test_every_slow_example_has_a_fixed_twin_and_every_fixed_one_a_slow():
    assert {f"{name}_fixed" for name in SLOW} == set(SCRIPTS) - set(SLOW)


def test_the_table_of_faults_names_every_slow_example_and_a_rule_for_it():
    assert sorted(load_examples()) == sorted(SLOW)
    assert {example.rule for example in load_examples().values()} <= set(load_rules())
    assert all(example.slow.is_file() and example.fixed.is_file() for example in load_examples().values())


@every_script
def test_an_example_documents_how_to_run_it(name):
    assert re.search(rf"^ *(python|torchrun --nproc-per-node 2) examples/{name}\.py", docstring(name), re.MULTILINE)


@of_each("name", SLOW)
def test_the_twins_point_to_each_other(name):
    assert f"{name}_fixed.py" in docstring(name)
    assert docstring(f"{name}_fixed").startswith(f"{name}.py, fixed: ")


@pytest.mark.parametrize("name", SLOW)
def test_the_twins_run_and_train_the_same(name):
    slow, fixed = run(name), run(f"{name}_fixed")
    assert len(MEDIAN.findall(slow)) == len(MEDIAN.findall(fixed)) == 1
    if not load_examples()[name].sizes_change:
        assert first_loss(slow) == pytest.approx(first_loss(fixed), rel=0.01)


@pytest.mark.parametrize("name", ["exposed_communication", "exposed_communication_fixed"])
def test_two_ranks_run_and_one_of_them_prints(name):
    """Started as torchrun starts them; under torchrun itself they run in test_record.py."""
    given = {"WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2", "MASTER_ADDR": "localhost", "MASTER_PORT": free_port()}
    first, second = [started(name, steps=4, RANK=rank, LOCAL_RANK=rank, **given) for rank in ("0", "1")]
    ended = [first.finish()]
    if ended[0][0]:
        second.send_signal(signal.SIGKILL)  # it would wait for the first one for minutes
    ended.append(second.finish())
    assert [code for code, _, _ in ended] == [0, 0], ended
    output = "".join(output for _, output, _ in ended)
    assert len(MEDIAN.findall(output)) == 1
    assert "nothing to communicate" not in output


def test_one_rank_prints_that_there_is_nothing_to_communicate():
    assert "nothing to communicate" in run("exposed_communication", steps=1)


def test_a_run_shorter_than_the_warm_up_is_timed_all_the_same():
    assert len(MEDIAN.findall(run("blocking_checkpoints", steps=1))) == 1


def test_an_example_records_itself(tmp_path):
    trace = tmp_path / "trace.json.gz"
    run("slow_input", "--trace", str(trace), steps=14)
    assert trace.stat().st_size > 0
