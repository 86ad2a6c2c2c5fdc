"""What a run folder keeps, and what it must not keep."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from secret_kinds import KINDS

from perfdoctor.errors import PerfdoctorError
from perfdoctor.system.masking import masked_command, masked_text
from perfdoctor.system.run_folder import Manifest, PassRecord, RunFolder, below, recorded_environment

KEY = "Xy9ZpQ4rT7vW2kLm"


@pytest.mark.parametrize(
    ("words", "shown"),
    [
        (["--api-key", "abc"], ["--api-key", "***"]),
        (["--api_key=abc"], ["--api_key=***"]),
        (["WANDB_API_KEY=abc", "python"], ["WANDB_API_KEY=***", "python"]),
        (["--hf-token", "abc", "--lr", "1"], ["--hf-token", "***", "--lr", "1"]),
        (["--password", "--lr", "1"], ["--password", "--lr", "1"]),
        (["s3://user:pw@bucket/x"], ["s3://***@bucket/x"]),
        (["--name", "hf_abcdefghijklmnopqrst"], ["--name", "***"]),
        (["sk-abcdefghijklmnopqrstuvwx"], ["***"]),
        (["0123456789abcdef0123456789abcdef01234567"], ["***"]),
        (["--lr", "3e-4", "--config", "configs/llama.yaml"], ["--lr", "3e-4", "--config", "configs/llama.yaml"]),
        (["git@github.com:org/repo"], ["git@github.com:org/repo"]),
        ([f"--pass={KEY}", f"--pwd={KEY}", "-p", KEY], ["--pass=***", "--pwd=***", "-p", "***"]),
        ([f"+logger.api_key={KEY}", f"db.passwd={KEY}"], ["+logger.api_key=***", "db.passwd=***"]),
        ([f"http://h/x?a=1&token={KEY}"], ["http://h/x?a=1&token=***"]),
        ([f"http://h/x?sig={KEY}&b=2"], ["http://h/x?sig=***&b=2"]),
        ([f'{{"api_key": "{KEY}", "lr": 1}}'], ['{"api_key": "***", "lr": 1}']),
        (["-H", f"Authorization: Bearer {KEY}"], ["-H", "Authorization: ***"]),
        (["-H", f"X-Api-Key: {KEY}"], ["-H", "X-Api-Key: ***"]),
        ([f"nvapi-{KEY}", f"AIza{KEY}{KEY}", f"glpat-{KEY}", f"wandb_v1_{KEY}"], ["***"] * 4),
        (["ASIAABCDEFGH12345678", f"npm_{KEY}{KEY}", f"sk_live_{KEY}"], ["***"] * 3),
        (["--run", "xK9mP2vQ8rT5wY3zB6nC4dF7gH1jL0sA"], ["--run", "***"]),
        *(
            ([word, *values], [word, *values])
            for word, *values in (
                ("--max_tokens=512",),
                ("--max-new-tokens", "512"),
                ("--tokenizer=gpt2",),
                ("--tokenizer", "gpt2"),
                ("--key_dim=64",),
                ("--n-keys", "4"),
                ("--author=me",),
                ("--passes=nsys,torch",),
                ("-p", "8080"),
                ("mkdir", "-p", "a/b"),
                ("--attention=flash",),
                ("--pad_token_id=0",),
                ("--signal=5",),
                ("srun", "-p", "gpu", "python", "train.py"),
                ("srun", "-p", "H100PCIe80GB"),
                ("python", "-u", "train.py"),
                ("torchrun", "-u", "node17:29500"),
                ("--layer", "MXFP8SynclessAllToAllExpertMajor"),
                ("/data/Checkpoints/llama-3-8B-Instruct-v2_step_001000_epoch_12",),
                ("run-20261128_083000-ABCDEFGHijklmnop1234",),
                ("123e4567-e89b-12d3-a456-426614174000",),
            )
        ),
    ],
)
def test_secrets_in_a_command_are_masked_and_nothing_else_is(words: list[str], shown: list[str]) -> None:
    assert masked_command(words) == shown


@pytest.mark.parametrize(("words", "secret"), KINDS.values(), ids=KINDS)
def test_secrets_of_many_kinds_are_masked(words: list[str], secret: str) -> None:
    assert secret not in " ".join(masked_command(words))
    assert secret not in masked_text(" ".join(words))


@pytest.mark.parametrize(
    "piece", ["a", "a.", "key", "&key", "bearer ", "A1a", "hf_", "eyJa", "SG.a.", "1:AA", "a+/", "a:"]
)
def test_a_long_word_is_masked_soon(piece: str) -> None:
    begun = time.process_time()
    masked_command([piece * (200_000 // len(piece))])
    assert time.process_time() - begun < 2


@given(st.lists(st.text(max_size=30), max_size=6))
def test_masking_keeps_the_number_of_words(words: list[str]) -> None:
    assert len(masked_command(words)) == len(words)


def test_of_the_environment_only_what_affects_speed_is_recorded() -> None:
    recorded = recorded_environment({
        "CUDA_VISIBLE_DEVICES": "0,1", "OMP_NUM_THREADS": "1", "RANK": "0", "AWS_SECRET_ACCESS_KEY": "x", "HOME": "/me",
        "USER": "me", "NCCL_AUTH_TOKEN": "x", "TORCH_LOGS": "dynamo",
    })  # fmt: skip
    assert recorded == {
        "CUDA_VISIBLE_DEVICES": "0,1", "NCCL_AUTH_TOKEN": "***", "OMP_NUM_THREADS": "1", "RANK": "0", "TORCH_LOGS": "dynamo",
    }  # fmt: skip


def test_what_was_written_is_read_again(tmp_path: Path) -> None:
    manifest = Manifest(perfdoctor="0", command=["a"], passes=[PassRecord("torch", seconds=1.5, notes=["x"])])
    RunFolder.create(tmp_path / "run", manifest)
    found = RunFolder.open(tmp_path / "run")
    assert found is not None
    assert found.manifest == manifest


def test_a_folder_with_files_is_not_taken(tmp_path: Path) -> None:
    (tmp_path / "mine").touch()
    with pytest.raises(PerfdoctorError, match="not empty"):
        RunFolder.create(tmp_path, Manifest())


def test_a_folder_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(PerfdoctorError, match="cannot be written"):
        RunFolder.create(tmp_path / "file" / "run", Manifest())


@pytest.mark.parametrize("text", ["", "{", "[]", '{"format": 1}', "null"])
def test_another_programs_run_json_is_no_run(tmp_path: Path, text: str) -> None:
    (tmp_path / "run.json").write_text(text)
    assert RunFolder.open(tmp_path) is None


def test_a_run_of_a_later_format_is_refused_with_its_version(tmp_path: Path) -> None:
    (tmp_path / "run.json").write_text('{"format": 2, "perfdoctor": "9.0"}')
    with pytest.raises(PerfdoctorError, match=r"9\.0"):
        RunFolder.open(tmp_path)


def test_fields_of_a_newer_version_are_ignored(tmp_path: Path) -> None:
    (tmp_path / "run.json").write_text(
        '{"format": 1, "perfdoctor": "1", "new": 1, "passes": [{"name": "nsys", "new": 2}]}'
    )
    found = RunFolder.open(tmp_path)
    assert found is not None
    assert [record.name for record in found.manifest.passes] == ["nsys"]


def test_process_reports_come_by_rank_and_damaged_ones_not_at_all(tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path / "run", Manifest())
    agents = folder.path / "agents"
    for rank, pid in ((1, 11), (0, 12), (1 << 70, 13)):
        report = {
            "pass": "torch",
            "pid": pid,
            "rank": rank,
            "steps_seen": 3,
            "trace": "../../etc/passwd",
            "notes": [1, "x"],
        }
        (agents / f"torch-{pid}.json").write_text(json.dumps(report))
    (agents / "torch-14.json").write_text("{")
    (agents / "nsys-15.json").write_text("{}")
    found = folder.reports("torch")
    assert [report.pid for report in found] == [12, 11, 13]
    assert found[2].rank is None  # no column holds that number
    assert found[0].trace == "passwd"
    assert found[0].notes == ("1", "x")


@pytest.mark.parametrize(
    "memory",
    [
        None, 7, [], {"kind": "heap"}, {"kind": "disk", "device": -1, "samples": [[1, 2, 3]]},
        {"kind": "heap", "device": "0", "samples": [[1, 2, 3]]}, {"kind": "heap", "device": -1, "samples": [[1, 2]]},
        {"kind": "heap", "device": -1, "samples": [[1, 2, 3], [4, 5.5, 6]]}, {"kind": ["heap"], "device": -1},
        {"kind": "heap", "device": -1, "samples": [[1, True, 3]]}, {"kind": "heap", "device": -1, "samples": [[1, -2, 3]]},
        {"kind": "heap", "device": -1, "samples": [[1, 1 << 70, 3]]}, {"kind": "heap", "device": -1, "samples": 5},
    ],
)  # fmt: skip
def test_memory_that_is_not_what_the_agent_writes_is_none(tmp_path: Path, memory: object) -> None:
    folder = RunFolder.create(tmp_path / "run", Manifest())
    (folder.path / "agents" / "torch-5.json").write_text(json.dumps({"pass": "torch", "memory": memory}))
    (found,) = folder.reports("torch")
    assert found.memory.samples == ()


def test_memory_that_a_process_reported_is_read(tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path / "run", Manifest())
    memory = {"kind": "cuda", "device": 2, "samples": [[1, 2, 3], [4, 5, 6]]}
    (folder.path / "agents" / "torch-5.json").write_text(json.dumps({"pass": "torch", "memory": memory}))
    (found,) = folder.reports("torch")
    assert (found.memory.kind, found.memory.device, found.memory.samples) == ("cuda", 2, ((1, 2, 3), (4, 5, 6)))


WHOLE = {"batches": 9, "workers": 2, "tensors": 3, "bytes": 40, "epoch": 0}


@pytest.mark.parametrize(
    "loaders",
    [
        None, 7, {}, [7], [{**WHOLE, "bytes": -1}], [{**WHOLE, "bytes": 1 << 70}], [{**WHOLE, "workers": "2"}], [{"batches": 9}],
    ],
)  # fmt: skip
def test_loaders_that_are_not_what_the_agent_writes_are_left_out(tmp_path: Path, loaders: object) -> None:
    folder = RunFolder.create(tmp_path / "run", Manifest())
    (folder.path / "agents" / "torch-5.json").write_text(json.dumps({"pass": "torch", "loaders": loaders}))
    (found,) = folder.reports("torch")
    assert found.loaders == ()


def test_rank_2_comes_before_rank_10(tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path / "run", Manifest())
    for rank in (10, 2, 1):
        (folder.make("torch") / f"rank{rank}.pt.trace.json").touch()
    assert [file.name[4:-14] for file in folder.files("torch", "*.json")] == ["1", "2", "10"]


TAKEN = {"workers": 1, "batch_ns": 9, "cpu_ns": 2, "own_cpu_ns": 1, "start_ns": 5}
TRIAL = {"makes": 3, "make_ns": 8, "make_cpu_ns": 2, "slowest_ns": 9, "taken": [TAKEN], "left_out": "", "wall_ns": 7}


@pytest.mark.parametrize(
    ("trial", "is_known"),
    [
        (TRIAL, True),
        ({**TRIAL, "receive_ns": 4, "taken": []}, True),
        ({"left_out": "the loader was hardly waited for", "wall_ns": 7}, False),
        ({**TRIAL, "make_ns": 0}, False),
        ({**TRIAL, "makes": "3"}, False),
        ({**TRIAL, "taken": [{**TAKEN, "batch_ns": 0}]}, False),
        ({**TRIAL, "taken": [{**TAKEN, "delay_ns": 3}]}, True),
        ({**TRIAL, "taken": [{"workers": 1}]}, False),
        ({**TRIAL, "taken": [TAKEN, 7]}, False),
        ([TRIAL], False),
    ],
)
def test_a_trial_is_read_if_it_is_what_the_agent_writes(tmp_path: Path, trial: object, is_known: bool) -> None:
    folder = RunFolder.create(tmp_path / "run", Manifest())
    (folder.path / "agents" / "torch-5.json").write_text(json.dumps({"pass": "torch", "loader_trial": trial}))
    (found,) = folder.reports("torch")
    assert (found.loader_trial is not None) == is_known
    if found.loader_trial and found.loader_trial.taken:
        assert (found.loader_trial.make_ns, found.loader_trial.taken[0].batch_ns) == (8, 9)


def test_runs_below_a_folder_are_found_at_the_nearest_depth_and_not_inside_of_runs(tmp_path):
    for place in ("perfdoctor-runs/first", "perfdoctor-runs/second", "perfdoctor-runs/second/torch/inner"):
        RunFolder.create(tmp_path / place, Manifest(perfdoctor="1", command=["python", "train.py"]))
    assert {path.name for path in below(tmp_path)} == {"first", "second"}
    assert {path.name for path in below(tmp_path / "perfdoctor-runs")} == {"first", "second"}
    assert below(tmp_path / "perfdoctor-runs/second") == [], "a run folder is no folder of runs"
    assert below(tmp_path / "none") == []
