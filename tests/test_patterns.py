"""Are expressions that are compiled late what they would have been at once?"""

from __future__ import annotations

import ast
import gc
import importlib
import pickle
import pkgutil
import re
import time

import pytest
from folders import ROOT

import perfdoctor
from perfdoctor.patterns import Regex, regex
from perfdoctor.readers.machine import dcgm_exporter
from perfdoctor.report import brief
from perfdoctor.report.words.code_lines import SOURCE_LINE
from perfdoctor.vocabulary.names import cuda, kernels, loaders, nccl, serving, torch, xla

SOURCE = ROOT / "src" / "perfdoctor"
#: They run in the user's process, without the rest of perfdoctor, or start it.
GUESTS = (
    "perfdoctor.recording.agent", "perfdoctor.recording.measuring", "perfdoctor.recording.launch.child_entry",
    "perfdoctor.integrations.",  # each imports a trainer that need not be there
)  # fmt: skip


def all_modules():
    for found in pkgutil.walk_packages(perfdoctor.__path__, "perfdoctor."):
        if not found.name.startswith((*GUESTS, "perfdoctor.__main__")):
            yield importlib.import_module(found.name)


# --- numbers in texts ---


def test_what_is_asked_for_digits_is_a_number():
    """`"²".isdigit()` is true, and `int("²")` raises: `isdecimal` means what int() reads."""
    asked = [file for file in SOURCE.rglob("*.py") if ".isdigit(" in file.read_text("utf-8")]
    assert asked == []


# --- expressions ---


def test_every_expression_is_valid():
    """A wrong one would show only in the recording that needs it."""
    modules = list(all_modules())
    expressions = [each for each in gc.get_objects() if type(each) is Regex]
    assert len(modules) > 300
    assert len(expressions) > 200
    for each in expressions:
        assert re.compile(each.pattern, each._flags)


def test_an_expression_has_what_a_compiled_one_has():
    late, compiled = regex(r"a(b+)", re.IGNORECASE), re.compile(r"a(b+)", re.IGNORECASE)
    assert late.search("xABBx").group(1) == "BB"
    assert late.sub("-", "abab") == "--"
    assert late.flags == compiled.flags
    assert late.groups == 1
    assert late.pattern == compiled.pattern
    assert regex(b"a").search(b"ba")


def test_an_expression_is_compiled_when_it_is_first_used():
    wrong = regex("(")
    with pytest.raises(re.error):
        wrong.search("")


def test_an_expression_goes_to_another_process():
    used = regex("a+", re.IGNORECASE)
    used.search("a")
    assert pickle.loads(pickle.dumps(used)).search("A")


def test_no_module_compiles_at_its_import():
    """But those that a user's process loads as well, which has the standard library alone."""
    for path in SOURCE.rglob("*.py"):
        if not {"agent", "measuring", "patterns.py", "masking.py"} & set(path.parts):
            calls = [node for node in ast.walk(ast.parse(path.read_text("utf-8"))) if isinstance(node, ast.Attribute)]
            assert "re.compile" not in {ast.unparse(node) for node in calls}, path


# --- time ---


#: An expression, and what a stranger writes into a name to make it slow.
SLOW = (
    (serving.TRAINS, "_"), (serving.TRAINS, "aten::backward"), (loaders.INPUT_WAIT, "_"), (loaders.INPUT_WAIT, "loader"),
    (loaders.INPUT_WAIT, "SingleProcess"), (brief._ASSIGNED, "_"), (brief._ASSIGNED, "key"), (brief._ASSIGNED, "key="),
    (dcgm_exporter._LABEL, "a"), (dcgm_exporter._LABEL, 'a="'), (kernels._TENSILE, "Cijk_Aa_Bb_"),
    (kernels._XMMA, "xmma_f16f16_"), (xla.KERNEL, "gemm_fusion_"), (cuda._VERSION, "_v0"), (torch.COMPILATION, "_compile."),
    (nccl.ON_HOST, "DistributedDataParallel"), (nccl.COLLECTIVE, "allreduce"), (SOURCE_LINE, "a.py"), (SOURCE_LINE, "a/"),
)  # fmt: skip


def seconds(expression, text):
    taken = []
    for _ in range(3):
        begun = time.process_time()
        expression.sub("", text)
        taken.append(time.process_time() - begun)
    return min(taken)


@pytest.mark.parametrize(("expression", "piece"), SLOW, ids=lambda each: each if isinstance(each, str) else "")
def test_the_time_that_an_expression_takes_grows_as_the_text_does(expression, piece):
    """Eight times the text takes about eight times as long, and not 64 times: names are as long as strangers like."""
    few, many = (piece * (length // len(piece)) + "\x01" for length in (4_000, 32_000))
    assert seconds(expression, many) < 24 * seconds(expression, few) + 0.01
