"""Do a rule's document and its detector keep what they promise each other?

Read from the sources, so that a threshold or a placeholder which no test reaches is still held to it.
"""

from __future__ import annotations

import ast
import itertools
import re
import shutil
import string
import subprocess
import sys
from collections import Counter
from functools import cache
from html import unescape
from pathlib import Path
from textwrap import dedent

import msgspec
import pytest
from fix_needs import covers, needs_of
from folders import ROOT
from formulas import is_of_each, names_in
from rule_trainings import content_of, healthy, pages, status, with_its_fault
from saving_literals import name_of, unnamed_numbers
from tables import of_each

from perfdoctor.vocabulary.categories import CATEGORIES, PAGES
from perfdoctor.vocabulary.derivations import plain
from perfdoctor.vocabulary.names.frameworks import NOT
from perfdoctor.vocabulary.places import GPU
from perfdoctor.vocabulary.rulebook import load_rules, rules_folder, shared_thresholds
from perfdoctor.vocabulary.sentences import CLAUSE
from perfdoctor.vocabulary.signals import NEEDS

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

DETECTORS = ROOT / "src" / "perfdoctor" / "detectors"
FILES = sorted((ROOT / "rules").rglob("*.toml"))
DOCUMENTS = {path.stem: tomllib.loads(path.read_text("utf-8")) for path in FILES}

#: Ids that users and scripts rely on: none is renamed or goes. Other rules come and go freely.
PROMISED = {
    "input-wait", "host-syncs", "launch-bound", "host-work", "allocator-churn", "blocking-checkpoint",
    "garbage-collection", "recompilation", "idle-unknown", "exposed-communication", "rank-skew", "small-collectives",
    "slow-links", "exposed-copies", "pageable-copies", "fp32-matmuls", "misaligned-matmuls", "small-kernels",
    "elementwise-chains", "unfused-optimizer", "unfused-attention", "recomputation", "memory-growth", "memory-headroom",
    "device-throttling", "step-outliers",
}  # fmt: skip
KNOWN_FIELDS = {
    "id", "title", "category", "since", "status", "needs", "summary", "summaries", "clauses", "why", "not_a_problem_when",
    "references", "thresholds", "fix", "symptom_of", "hidden_by", "action",
    "needs_without_gpu", "doubt", "doubts", "verdict", "when", "inference", "derivation", "planted",
    "without_gpu", "without_torch",
}  # fmt: skip
MAY_BE_LEFT_OUT = {
    "summaries",
    "clauses",
    "symptom_of",
    "hidden_by",
    "action",
    "needs_without_gpu",
    "doubt",
    "doubts",
    "verdict",
    "when",
    "inference",
    "without_gpu",
    "without_torch",
    "derivation",
    "planted",
}

#: Rules whose fault is not planted, and why it cannot be.
_OF_CORES = "training threads that wait for a core stand still in ops and Python alike: a planted fault is one stretch"
NOT_PLANTED = {
    "one-time-costs": "its time comes once, before the steps: a planted fault makes every step longer",
    "one-long-step": "a planted fault is in every step",
    "busy-machine": _OF_CORES,
    "cpu-oversubscription": _OF_CORES,
    "cpu-threads-unused": "planted trainings use a GPU",
    "small-batch": "planted trainings use a GPU",
    "unused-gpu": "planted trainings use a GPU",
    **dict.fromkeys(
        (
            "long-evaluations",
            "long-checkpoints",
            "long-logging",
            "long-plotting",
            "long-rollouts",
            "slow-epoch-starts",
            "long-learning-rate-searches",
            "long-pauses",
        ),
        "a planted fault makes a step longer, and what comes between steps is known of a whole run alone",
    ),
}

PLANT_IT = (
    'plant it in the module of fixtures/planted/ whose first line fits: @fault("{}"); or draw it in tests/rule_trainings.py'
    " (_DRAWN), and give the reason in NOT_PLANTED of tests/test_contract.py"
)

#: What speaks to users of torch.compile, DDP and FSDP alone.
COMPILES = re.compile(r"torch\.compile\b")
OF_DDP = re.compile(r"DistributedDataParallel|register_comm_hook|bucket_cap_mb|no_sync\(")
OF_FSDP = re.compile(r"fully_shard|FullyShardedDataParallel|set_modules_to_\w+_prefetch")

#: What nobody wants to read who does not use PyTorch.
OF_TORCH = re.compile(
    r"torch|DataLoader|\.item\(|pin_memory|autograd|autocast|\bnn\.|\bDDP\b|FSDP|DeepSpeed|Megatron|vLLM|SGLang|channels_last"
    r"|non_blocking|num_workers|zero_grad|GradScaler|optimizer|state_dict|\.backward\(|expandable",
    re.IGNORECASE,
)
#: What proves these situations is PyTorch's: its loader, whose batches JAX may use as well; its ops, its compiler.
SITUATIONS_OF_TORCH = {
    ("input-wait", "single-process"), ("input-wait", "cheap-batches"), ("input-wait", "workers"),
    ("input-wait", "handed-over"), ("host-work", "compiled-call"), ("fp32-matmuls", "host-limited"),
}  # fmt: skip
#: C++, where a program has no Python.
CPP = re.compile(r"^//|;\s*(//.*)?$", re.MULTILINE)

#: A fix with a command in it is not all Python.
SHELL = re.compile(
    r"^(python|taskset|mpirun|unset|nsys|ncu|NCCL_DEBUG=\w+|nvidia-smi|perfdoctor|torchrun) ", re.MULTILINE
)

every_rule = of_each("rule_id", {rule_id: rule_id for rule_id in sorted(DOCUMENTS)})


def module(rule_id: str) -> Path:
    return DETECTORS / DOCUMENTS[rule_id]["category"] / f"{rule_id.replace('-', '_')}.py"


@cache
def tree(rule_id: str) -> ast.Module:
    return ast.parse(module(rule_id).read_text("utf-8"))


def placeholders(template: str) -> set[str]:
    return {name for _, name, _, _ in string.Formatter().parse(template) if name}


def thresholds_read(rule_id: str) -> list[re.Pattern[str]]:
    """What the detector looks up in `at`: each name, and each family of names: of an f-string, of `shares(at, …)`."""
    found = []
    for node in ast.walk(tree(rule_id)):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "shares":
            _, name = node.args
            assert isinstance(name, ast.Constant), f"{rule_id}: shares(at, …) without a name"
            found += [re.compile(f"{name.value}_low"), re.compile(f"{name.value}_(likely|high)")]
        if isinstance(node, ast.Subscript) and isinstance(node.value, ast.Name) and node.value.id == "at":
            key = node.slice
            if isinstance(key, ast.Constant):
                found.append(re.compile(re.escape(key.value)))
            else:
                assert isinstance(key, ast.JoinedStr), f"{rule_id}: at[...] with neither a name nor an f-string"
                parts = [re.escape(p.value) if isinstance(p, ast.Constant) else r"\w+" for p in key.values]
                found.append(re.compile("".join(parts)))
    return found


def findings_made(rule_id: str) -> list[dict[str, ast.expr]]:
    """The keywords of each `Finding(…)`, and of each `finding(…)` of a shape that detectors share."""
    calls = (node for node in ast.walk(tree(rule_id)) if isinstance(node, ast.Call))
    return [
        {keyword.arg: keyword.value for keyword in call.keywords if keyword.arg}
        for call in calls
        if isinstance(call.func, (ast.Name, ast.Attribute)) and name_of(call.func) in ("Finding", "finding")
    ]


def keys_of(values: ast.expr, rule_id: str, of: str = "") -> set[str]:
    """Those of a literal, and of the one that a method of shapes or metrics returns: `**found.copy_values()`.

    `of`: the text that was given to that method, where its keys begin with it: `**found.time_values("lost")`.
    """
    if isinstance(values, ast.IfExp):  # only some situations have them
        return keys_of(values.body, rule_id, of)
    if isinstance(values, ast.Call):
        assert isinstance(values.func, ast.Attribute), f"{rule_id}: values must be a literal, or a method's"
        first = values.args[0] if values.args else None
        named = first.value if isinstance(first, ast.Constant) else ""
        return keys_of(returned_by(values.func.attr), rule_id, named)
    assert isinstance(values, ast.Dict), f"{rule_id}: values must be a literal, or a method's"
    found: set[str] = set()
    for key, value in zip(values.keys, values.values, strict=True):
        if key is None:
            found |= keys_of(value, rule_id)
        elif isinstance(key, ast.JoinedStr):
            found.add("".join(part.value if isinstance(part, ast.Constant) else of for part in key.values))
        else:
            assert isinstance(key, ast.Constant), f"{rule_id}: keys must be literals"
            found.add(key.value)
    return found


@cache
def functions_of_metrics() -> list[ast.FunctionDef]:
    """And of the shapes that detectors share."""
    paths = [*DETECTORS.glob("*.py"), *(ROOT / "src" / "perfdoctor" / "metrics").rglob("*.py")]
    nodes = (node for path in paths for node in ast.walk(ast.parse(path.read_text("utf-8"))))
    return [node for node in nodes if isinstance(node, ast.FunctionDef)]


def returned_by(method: str) -> ast.expr:
    """What the one method of this name in shapes and metrics returns."""
    (found,) = (node for node in functions_of_metrics() if node.name == method)
    (returned,) = (node.value for node in ast.walk(found) if isinstance(node, ast.Return))
    return returned


def situations_named(rule_id: str) -> set[str]:
    """Strings in the detector, in the shapes that detectors share, and in what they ask for the situation."""
    loader = ROOT / "src" / "perfdoctor" / "metrics" / "host" / "feeding.py"
    kinds = ROOT / "src" / "perfdoctor" / "vocabulary" / "names" / "python_code.py"
    sources = [module(rule_id), loader, kinds, *DETECTORS.glob("*.py")]
    return {
        node.value
        for path in sources
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    }


def summaries(rule_id: str) -> list[str]:
    document = DOCUMENTS[rule_id]
    return [document["summary"], *document.get("summaries", {}).values()]


FIXES = {
    f"{rule_id}: {fix['title']}": (document, fix)
    for rule_id, document in DOCUMENTS.items()
    for fix in document.get("fix", ())
}
#: Those that rules state themselves, and those that they have in common.
THRESHOLDS = {
    f"{rule_id}.{name}": (name, entry)
    for rule_id, document in DOCUMENTS.items()
    for name, entry in document.get("thresholds", {}).items()
    if not isinstance(entry, str)
} | {name: (name, msgspec.structs.asdict(entry)) for name, entry in shared_thresholds().items()}


def planted() -> set[str]:
    """The rules in `@fault("my-rule")` of fixtures/planted/."""
    paths = (ROOT / "fixtures" / "planted").glob("*.py")
    calls = [node for path in paths for node in ast.walk(ast.parse(path.read_text("utf-8"))) if is_fault(node)]
    return {ast.literal_eval(call.args[0]) for call in calls}


def is_fault(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and name_of(node.func) == "fault"


# Pairs


def test_an_id_is_that_of_one_document():
    """Of two with one name, one would replace the other without a word."""
    by_id: dict[str, list[str]] = {}
    for path in FILES:
        by_id.setdefault(path.stem, []).append(path.relative_to(ROOT).as_posix())
    twice = [f"two documents have the id {rule}: {', '.join(paths)}" for rule, paths in by_id.items() if len(paths) > 1]
    assert twice == [], "; ".join(twice)


def test_every_rule_has_a_detector_and_every_detector_a_rule():
    asked = {module(rule_id) for rule_id in DOCUMENTS}
    there = {path for path in DETECTORS.glob("*/*.py") if path.name != "__init__.py"}
    assert relative(asked - there) == [], "write this detector, or put the document's `category` right"
    assert relative(there - asked) == [], "write its document: rules/<category>/<name with hyphens>.toml"


def relative(paths):
    return sorted(path.relative_to(ROOT).as_posix() for path in paths)


@pytest.mark.parametrize("rule_id", DOCUMENTS)
def test_every_rule_fires_on_a_training_with_its_fault(rule_id):
    if rule_id not in {*planted(), *NOT_PLANTED}:
        pytest.fail(PLANT_IT.format(rule_id), pytrace=False)
    assert status(with_its_fault(rule_id), rule_id) == "found", (
        f"a training with its fault has no such finding: python fixtures/plant.py {rule_id}=0.3 -o DIR, then "
        "perfdoctor analyze DIR/nsys --all"
    )


@every_rule
def test_every_rule_looks_at_a_healthy_training_and_finds_nothing(rule_id):
    """Skipped is not silent: in one of them all that the rule needs was recorded."""
    statuses = {name: status(examination, rule_id) for name, examination in healthy().items()}
    assert "clear" in statuses.values(), "draw a healthy training in tests/rule_trainings.py that has what it needs"
    found = {name: each for name, each in statuses.items() if each not in ("clear", "skipped")}
    assert found == {}, "healthy trainings of tests/rule_trainings.py in which it is found, or fails"


def test_every_planted_fault_is_that_of_a_rule():
    assert sorted(planted() - set(DOCUMENTS)) == [], "@fault(…) in fixtures/planted/ names no rule"


def test_every_rule_has_a_planted_fault_or_a_reason_to_have_none():
    lacking = sorted(set(DOCUMENTS) - planted() - set(NOT_PLANTED))
    assert lacking == [], PLANT_IT.format(lacking[0])
    assert sorted(planted() & set(NOT_PLANTED)) == [], "is planted: take it out of NOT_PLANTED"


@every_rule
def test_the_id_is_the_name_of_the_file_and_of_the_findings(rule_id):
    assert DOCUMENTS[rule_id]["id"] == rule_id
    assert {ast.literal_eval(made["rule"]) for made in findings_made(rule_id)} == {rule_id}


def test_ids_that_users_rely_on_stay():
    assert sorted(PROMISED - set(DOCUMENTS)) == [], "users rely on these ids: bring them back"


@every_rule
def test_a_detector_has_a_name_that_the_engine_finds(rule_id):
    functions = {node.name for node in tree(rule_id).body if isinstance(node, ast.FunctionDef)}
    assert "detect" in functions
    assert ast.get_docstring(tree(rule_id))


@every_rule
def test_a_finding_that_names_its_work_is_replayed(rule_id):
    """As `perfdoctor rules check` asks of others: without an action no replay limits its saving."""
    names_work = any(isinstance(node, ast.keyword) and node.arg == "work" for node in ast.walk(tree(rule_id))) or any(
        isinstance(node, ast.Attribute) and node.attr == "finding" for node in ast.walk(tree(rule_id))
    )
    assert "action" in DOCUMENTS[rule_id] or not names_work, "write `action`, a key of SHRINKS in vocabulary/parts.py"


def test_the_program_loads_the_rules_of_this_checkout():
    assert rules_folder() == ROOT / "rules"
    assert list(load_rules()) == sorted(DOCUMENTS)


@every_rule
def test_a_detector_that_is_not_always_sure_says_why(rule_id):
    levels = {node.value for node in ast.walk(tree(rule_id)) if isinstance(node, ast.Constant)} & {"low", "medium"}
    assert bool(levels) == ("doubt" in DOCUMENTS[rule_id]), "`doubt` says why the confidence is not high, and only then"
    doubts = DOCUMENTS[rule_id].get("doubts", {})
    named = {node.value for node in ast.walk(tree(rule_id)) if isinstance(node, ast.Constant)}
    assert set(doubts) <= {*DOCUMENTS[rule_id].get("summaries", {}), *named}, (
        "[doubts] has names that neither [summaries] nor the detector has"
    )
    for doubt in (DOCUMENTS[rule_id].get("doubt", "half a sentence"), *doubts.values()):
        assert doubt[0].islower(), f"half a sentence begins with a small letter: {doubt}"
        assert not doubt.endswith("."), f"half a sentence has no full stop: {doubt}"


@pytest.mark.parametrize("page", PAGES)
def test_every_page_of_the_report_is_filled_and_drawn(page):
    """By `view(run, diagnosis)` of views/pages/<page>.py, from one of the trainings at least."""
    assert [failed for shown, _ in pages() for failed in shown.failed] == [], "this page raised an error"
    filled = [(titles, report) for shown, report in pages() if (titles := content_of(shown, page))]
    assert filled, "add a training to tests/rule_trainings.py in which something of what it shows was recorded"
    for titles, report in filled:
        section = re.search(rf'<section class="page[^>]*id="{page}".*?(?=<section class="page)', report, re.DOTALL)
        assert section, "it has content, and the report has no such page"
        assert [title for title in titles if title not in unescape(section[0])] == []


# Thresholds


@every_rule
def test_every_threshold_is_used_and_every_one_used_is_declared(rule_id):
    declared, read = set(DOCUMENTS[rule_id]["thresholds"]), thresholds_read(rule_id)
    unused = {name for name in declared if not any(pattern.fullmatch(name) for pattern in read)}
    undeclared = {pattern.pattern for pattern in read if not any(pattern.fullmatch(name) for name in declared)}
    assert undeclared == set(), "the detector reads at[…] of these: write them under [thresholds] in the document"
    assert unused == set(), "the detector reads at[…] of none of these: use them, or take them out of the document"


@every_rule
def test_numbers_that_judge_stand_in_the_document(rule_id):
    """A comparison with a literal number other than 0, 1 and 2 in a detector is a threshold that nobody can read."""
    hidden = [
        ast.unparse(node)
        for node in ast.walk(tree(rule_id))
        if isinstance(node, ast.Compare)
        for side in node.comparators
        if isinstance(side, ast.Constant) and isinstance(side.value, (int, float)) and side.value not in (0, 1, 2)
    ]
    assert hidden == [], "write the number under [thresholds] in the document, and compare with at[…]"


@of_each("name,entry", THRESHOLDS)
def test_a_threshold_has_value_unit_and_reason(name, entry):
    assert set(entry) == {"value", "unit", "why"}, "a threshold has value, unit and why"
    assert isinstance(entry["value"], (int, float)), "value is a number"
    assert not isinstance(entry["value"], bool), "value is a number"
    assert entry["unit"].strip(), "write the unit"
    assert entry["why"].strip(), "write the reason"
    assert "share" not in name or 0 < entry["value"] <= 1, "a share lies between 0 and 1"


def test_a_threshold_that_rules_have_in_common_is_written_once():
    entries = [entry for document in DOCUMENTS.values() for entry in document["thresholds"].values()]
    named = Counter(entry for entry in entries if isinstance(entry, str))
    shared = set(shared_thresholds())
    assert sorted(set(named) - shared) == [], f"vocabulary/thresholds.toml has only {', '.join(sorted(shared))}"
    assert sorted(shared - set(named)) == [], "no rule names it"
    assert [name for name, times in named.items() if times < 2] == [], "one rule's own belongs into its document"
    stated: dict[tuple[object, ...], list[str]] = {}
    for name, (_, entry) in THRESHOLDS.items():
        if name not in named:
            stated.setdefault(tuple(entry.values()), []).append(name)
    twice = [names for names in stated.values() if len(names) > 1]
    assert twice == [], "\n".join(
        f"stated in {', '.join(names)}: move it into vocabulary/thresholds.toml and name it in both" for names in twice
    )


def test_every_number_that_reaches_a_saving_has_a_name_and_a_reason():
    assert unnamed_numbers(ROOT / "src") == [], (
        "give it a name with a `#:` comment, or put it in the rule's [thresholds] and read at[…]"
    )


def test_all_planted_numbers_that_reach_a_saving_are_listed(tmp_path):
    files = {
        "detectors/kernels/planted.py": """
            from perfdoctor.detectors.shape import Shares
            from perfdoctor.metrics.planted import lost_ns
            from perfdoctor.records.findings import Finding
            _UNEXPLAINED = 0.7
            #: Measured on two GPUs.
            _EXPLAINED = 0.3
            def _half(ns):
                return ns // 2
            def detect(run, at):
                shown = run.share(3)
                low = int(_half(run) * 1e9 * _EXPLAINED)
                yield Finding(
                    saving_ns_per_step=Shares(low, at["likely"] * _UNEXPLAINED, 0.9).of(lost_ns(run)), values=[shown, 5]
                )
            """,
        "detectors/shape.py": """
            class Shares:
                def of(self, ns):
                    return self.low * 1.5
            """,
        "metrics/planted.py": """
            def lost_ns(run):
                def of_place(place):
                    return place.rows[2] * 0.25 if len(place.rows) > 4 else 0
                return run.mean(of_place)
            """,
    }
    for name, text in files.items():
        (tmp_path / "perfdoctor" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "perfdoctor" / name).write_text(dedent(text), "utf-8")
    assert [each.split(" in ")[0] for each in unnamed_numbers(tmp_path)] == [
        "perfdoctor/detectors/kernels/planted.py:14: 0.9",
        "perfdoctor/detectors/kernels/planted.py:5: _UNEXPLAINED has no comment",
        "perfdoctor/detectors/kernels/planted.py:9: 2",
        "perfdoctor/detectors/shape.py:4: 1.5",
        "perfdoctor/metrics/planted.py:4: 0.25",
    ]


# Words


@every_rule
def test_every_placeholder_is_delivered_and_every_value_used(rule_id):
    delivered = [keys_of(made["values"], rule_id) for made in findings_made(rule_id)]
    assert delivered, "no Finding"
    clauses = DOCUMENTS[rule_id].get("clauses", {})
    every = [placeholders(text) for text in (*summaries(rule_id), *clauses.values())]
    used = {name.removesuffix(CLAUSE) for names in every for name in names if name.endswith(CLAUSE)}
    assert used == set(clauses), "a clause that no sentence has, or the other way round"
    wanted = [{name.removesuffix(CLAUSE) for name in names} - set(GPU) for names in every]
    wanted += [set(re.findall(r"\{(\w+)\|", fix["how"])) for fix in DOCUMENTS[rule_id]["fix"]]
    wanted.append(inputs_of(rule_id))
    for values in delivered:
        assert set().union(*wanted) - values == set(), "the document names these, and the Finding has no such `values`"
        assert values - set().union(*wanted) == set(), "`values` of the Finding that no sentence and no formula names"


@every_rule
def test_a_summary_has_the_two_numbers_that_convince(rule_id):
    for text in summaries(rule_id):
        assert len(placeholders(text)) >= 2, f"name two {{values}} of the finding: {text}"


@every_rule
def test_only_words_and_situations_that_exist_are_named(rule_id):
    document = DOCUMENTS[rule_id]
    named = situations_named(rule_id) | {""}
    assert set(document.get("summaries", {})) - named == set(), "situations of [summaries] that no detector names"
    for fix in document["fix"]:
        assert set(fix.get("situations", [])) - named == set(), f"situations that no detector names: {fix['title']}"


@every_rule
def test_every_situation_has_a_fix(rule_id):
    document = DOCUMENTS[rule_id]
    situations = {
        "",
        *document.get("summaries", {}),
        *(s for fix in document["fix"] for s in fix.get("situations", [])),
    }
    if document["fix"] and all(fix.get("situations") and "" not in fix["situations"] for fix in document["fix"]):
        situations.discard("")  # a rule whose detector always names the situation
    rule = load_rules()[rule_id]
    named_facts = {condition.removeprefix(NOT) for each in (rule, *rule.fixes) for condition in each.when}
    for situation, facts in itertools.product(situations, every_program(named_facts)):
        assert not rule.applies(facts) or any(fix.fits(situation, facts) for fix in rule.fixes), (
            f"no fix is left in situation {situation!r} for a program with {sorted(facts) or 'none of FACTS'}"
        )


def every_program(named_facts):
    """Which of these facts may be known of a program, in every combination: others decide nothing."""
    of_torch = (frozenset(("torch", *some)) for some in combined(named_facts - {"torch", "jax"}))
    return {facts & named_facts for facts in (*of_torch, *of_others())}


@cache
def of_others():
    """What may be known of programs without PyTorch."""
    some = list(combined({"gpu", "inference", "cuda-graphs", "gloo", "sends-16-bit"}))
    return [frozenset((*each, *jax)) for each in some for jax in ((), ("jax",))]


def combined(facts):
    return itertools.chain.from_iterable(itertools.combinations(sorted(facts), size) for size in range(len(facts) + 1))


@every_rule
def test_nothing_is_said_of_torch_where_there_is_none(rule_id):
    """Nor of its loader, its modules and its servers: title, sentences, reasons and fixes."""
    for facts in of_others():
        rule = load_rules()[rule_id].in_words_of(facts)
        if not rule.applies(facts):
            continue
        said = [rule.title, rule.summary, rule.why, rule.not_a_problem_when, rule.doubt, *rule.references]
        said += [text for situation, text in rule.summaries.items() if (rule_id, situation) not in SITUATIONS_OF_TORCH]
        said += [*rule.doubts.values(), *rule.clauses.values()]
        said += [
            fix.title + fix.how for fix in rule.fixes if any(fix.fits(each, facts) for each in ("", *rule.summaries))
        ]
        assert [text for text in said if OF_TORCH.search(text)] == [], (
            f'said to a program without PyTorch ({sorted(facts)}): write when = ["torch"] at the rule or the fix, or '
            "other words under [without_torch]"
        )
        assert rule.references, "every reference is PyTorch's: add one for other programs"


@of_each("document,fix", FIXES)
def test_advice_of_a_framework_is_for_programs_that_have_it(document, fix):
    """Who compiles is not asked to compile; what DDP's and FSDP's own classes do is no help without them."""
    text, when = fix["title"] + fix["how"], fix.get("when", [])
    adopts_ddp = document["id"] in ("data-parallel", "uneven-gpus")
    assert not COMPILES.search(text) or "not compiled" in when, 'it names torch.compile: when = ["not compiled"]'
    assert not OF_DDP.search(text) or "ddp" in when or adopts_ddp or document["id"] == "broadcast-buffers", (
        'it names what DDP has: when = ["ddp"]'
    )
    assert not OF_FSDP.search(text) or "fsdp" in when, 'it names what FSDP has: when = ["fsdp"]'


@of_each("document,fix", FIXES)
def test_a_fix_names_what_its_code_needs(document, fix):
    named = set(fix.get("needs", []))
    missing = {need for need in needs_of(fix) if not covers(named, need)}
    assert missing == set(), f"its code shows that it needs these: write needs = {sorted(named | missing)}"


@every_rule
def test_a_document_has_all_it_must_and_nothing_unheard_of(rule_id):
    document = DOCUMENTS[rule_id]
    assert sorted(set(document) - KNOWN_FIELDS) == [], "no fields of Rule in vocabulary/rulebook.py"
    assert sorted(KNOWN_FIELDS - MAY_BE_LEFT_OUT - set(document)) == [], "fields that no rule leaves out"
    assert document["category"] in CATEGORIES
    assert document["status"] in ("stable", "preview")
    assert re.fullmatch(r"\d+\.\d+\.\d+", document["since"]), "`since` is a version: 0.1.0"
    assert document["why"].strip()
    assert document["not_a_problem_when"].strip()
    assert document["references"]
    assert all(reference.startswith("https://") for reference in document["references"]), (
        "a reference is an https:// link"
    )
    assert not document["title"].endswith("."), "a title has no full stop"
    assert document["thresholds"], "a rule has one threshold at least"
    assert set(document.get("hidden_by", [])) <= {"loader", "host"}, "`hidden_by` names loader and host alone"
    unknown = set(document.get("verdict", [])) - set(document.get("summaries", {}))
    assert unknown == set(), "`verdict` names situations that [summaries] has not"
    assert set(document.get("symptom_of", [])) - (set(DOCUMENTS) - {rule_id}) == set(), (
        "`symptom_of` names no other rule"
    )


@every_rule
def test_needs_are_signals_steps_places_or_ranks(rule_id):
    needs, without_gpu = DOCUMENTS[rule_id]["needs"], DOCUMENTS[rule_id].get("needs_without_gpu", [])
    assert needs
    unknown = {choice for need in (*needs, *without_gpu) for choice in need.split("|")} - NEEDS.keys()
    assert unknown == set(), (
        f"not among steps, places, ranks and the signals of vocabulary/signals.toml: {sorted(NEEDS)}"
    )


def test_no_symptom_is_the_cause_of_its_cause():
    for rule_id, document in DOCUMENTS.items():
        for cause in document.get("symptom_of", []):
            assert not DOCUMENTS[cause].get("symptom_of"), (
                f"{rule_id} is a symptom of {cause}, which is a symptom itself"
            )


# Fixes


@every_rule
def test_a_rule_has_a_fix(rule_id):
    assert DOCUMENTS[rule_id]["fix"]


@of_each("document,fix", FIXES)
def test_a_fix_says_what_to_do_how_and_at_what_price(document, fix):
    unknown = set(fix) - {"title", "how", "effort", "changes_numerics", "situations", "when", "needs"}
    assert unknown == set(), "no fields of Fix in records/findings.py"
    assert fix["effort"] in ("minutes", "hours", "days")
    assert isinstance(fix["changes_numerics"], bool), "`changes_numerics` is true or false"
    assert fix["how"].strip(), "`how` is code to paste"
    assert fix["title"] != document["title"], "the title says what to do, that of the rule what is wrong"


@of_each("document,fix", FIXES)
def test_the_title_of_a_fix_is_an_imperative(document, fix):
    first, *_ = fix["title"].split()
    assert first[0].isupper(), "a title begins with a capital letter"
    assert not re.search(r"(ing|ed|s)$", first), "a verb, and in its plain form"
    assert not fix["title"].endswith("."), "a title has no full stop"


def is_python(fix):
    is_cpp = "not torch" in fix.get("when", []) and CPP.search(fix["how"])
    return not SHELL.search(fix["how"]) and not is_cpp


@of_each("document,fix", {name: fix for name, fix in FIXES.items() if is_python(fix[1])})
def test_python_in_a_fix_can_be_parsed(document, fix):
    compile(fix["how"], fix["title"], "exec", ast.PyCF_ONLY_AST)


@of_each("document,fix", FIXES)
def test_code_of_a_fix_has_no_dots_in_place_of_code(document, fix):
    """`x[..., :3]` is Python for the other dimensions; anything else with dots cannot be pasted."""
    dotted = [line for line in fix["how"].splitlines() if re.search(r"(?<!\[)\.\.\.|=\s*…", line)]
    assert dotted == [], "write what stands there, or a name for it"


@of_each("document,fix", FIXES)
def test_what_only_a_program_that_answers_requests_does_is_no_fix_of_a_training(document, fix):
    serves = re.search(r"inference_mode\(|\bvllm\b|\bsglang\b|\.generate\(|kv.?cache", fix["how"], re.IGNORECASE)
    assert not serves or any("inference" in condition for condition in fix.get("when", []))


@of_each("document,fix", FIXES)
def test_no_fix_asks_for_stacks_where_they_were_recorded(document, fix):
    asks = re.search(r"with_stack=True|--python-sampling|py-spy", fix["how"])
    of_other_programs = {"not stacks", "not torch"} & set(fix.get("when", []))
    assert not asks or of_other_programs, 'add when = ["not stacks"]'


# Derivations


def can_save(rule_id: str) -> bool:
    """Does any of its findings say that a fix saves time?"""
    savings = [ast.unparse(made.get("saving", made.get("saving_ns_per_step"))) for made in findings_made(rule_id)]
    return any(saving != "NO_SAVING" for saving in savings)


def formulas(rule_id: str) -> list[str]:
    """All that its document states, without those of situations that are as usual."""
    how = DOCUMENTS[rule_id].get("derivation", {})
    return [
        table[case]
        for table in (how, *how.get("situations", {}).values())
        for case in ("formula", "low", "high")
        if case in table
    ]


def inputs_of(rule_id: str) -> set[str]:
    how = DOCUMENTS[rule_id].get("derivation", {})
    return {name for table in (how, *how.get("situations", {}).values()) for name in table.get("inputs", {})}


@every_rule
def test_a_rule_that_predicts_time_says_how_and_no_other_does(rule_id):
    assert can_save(rule_id) == ("derivation" in DOCUMENTS[rule_id]), "write [derivation] as a neighbour has it"


@every_rule
def test_a_formula_has_inputs_that_the_finding_or_the_rule_has(rule_id):
    """That the finding has them, `test_every_placeholder_is_delivered_and_every_value_used` says."""
    thresholds = set(DOCUMENTS[rule_id]["thresholds"])
    read = {name for formula in formulas(rule_id) for name in placeholders(formula)}
    assert read - thresholds - inputs_of(rule_id) == set(), "named in a formula, and neither input nor threshold"
    assert inputs_of(rule_id) - read == set(), "inputs that no formula names"
    assert inputs_of(rule_id) & thresholds == set(), "a threshold brings its own reason"


@every_rule
def test_a_formula_is_one_line_of_plain_arithmetic(rule_id):
    for formula in formulas(rule_id):
        assert "\n" not in formula, f"one line: {formula}"
        assert is_of_each(formula) or names_in(plain(formula)) == placeholders(formula), formula


@every_rule
def test_a_formula_of_a_situation_is_of_one_that_the_detector_names(rule_id):
    of_formulas = set(DOCUMENTS[rule_id].get("derivation", {}).get("situations", {}))
    assert of_formulas - situations_named(rule_id) == set(), "[derivation.situations] that no detector names"


@every_rule
def test_why_a_planted_fault_costs_more_or_less_is_one_sentence(rule_id):
    planted_why = DOCUMENTS[rule_id].get("planted", "As it is.")
    assert planted_why[0].isupper()
    assert planted_why.endswith(".")
    assert ". " not in planted_why


# Layers


def test_no_room_looks_back():
    program = shutil.which("lint-imports", path=str(Path(sys.executable).parent)) or shutil.which("lint-imports")
    if program is None:
        pytest.skip("import-linter is not installed")
    done = subprocess.run([program, "--no-cache"], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
