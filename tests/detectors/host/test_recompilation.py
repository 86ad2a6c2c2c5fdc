"""recompilation: code is compiled, tuned or loaded in steady steps."""

from __future__ import annotations

import pytest
from builders import findings
from idle_cause_cases import COMPILES


@pytest.mark.parametrize(
    "name",
    [
        "flashinfer/autotuner.py(400): choose_one",
        "triton/runtime/autotuner.py(214): run",
        "triton/compiler/compiler.py(470): launch_metadata",
        "Torch-Compiled Region: 0/0",
    ],
)
def test_it_stays_silent_where_a_tuner_looks_up_what_it_knows(name):
    assert findings("recompilation", COMPILES.step(10, "z", legend={"z": ("functions", name)})) == []


@pytest.mark.parametrize(
    "name",
    [
        "triton/runtime/autotuner.py(150): _bench",
        "triton/compiler/compiler.py(280): compile",
        "_compile.compile_inner (dynamo_timed)",
        "torch/_dynamo/convert_frame.py(1300): __call__",
    ],
)
def test_names_of_compilers_at_work(name):
    assert len(findings("recompilation", COMPILES.step(10, "z", legend={"z": ("functions", name)}))) == 1
