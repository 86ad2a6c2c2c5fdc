"""One program is known wherever its checkout lies and whatever only one run is called by; two programs are two."""

from __future__ import annotations

import subprocess

import pytest

from perfdoctor.system.project import program_of, project_from, project_of
from perfdoctor.system.run_folder import started_in


def git(folder, *words):
    return subprocess.run(
        ["git", "-C", folder, "-c", "user.name=a", "-c", "user.email=a@b", *words], check=True, capture_output=True
    )


@pytest.fixture
def repository(tmp_path):
    root = tmp_path / "vision"
    (root / "models").mkdir(parents=True)
    for file in ("train.py", "models/train.py"):
        (root / file).write_text("")
    git(root, "init", "-q")
    git(root, "add", ".")
    git(root, "commit", "-qm", "first")
    return root


def test_clones_worktrees_and_shallow_checkouts_of_a_repository_are_one_project(repository, tmp_path):
    git(tmp_path, "clone", "-q", "--depth", "1", f"file://{repository}", "other")
    git(repository, "worktree", "add", "-q", tmp_path / "before")
    places = [repository, tmp_path / "other", tmp_path / "before"]
    assert {project_of(place).name for place in places} == {"vision"}
    assert len({project_of(place).id for place in places}) == 1


def test_folders_of_one_repository_and_folders_of_one_name_are_other_projects(repository, tmp_path):
    inside = project_of(repository / "models")
    assert (inside.name, inside.id == project_of(repository).id) == ("vision/models", False)
    places = [tmp_path / parent / "exp" for parent in ("a", "b")]
    for place in places:
        place.mkdir(parents=True)
    one, other = map(project_of, places)
    assert (one.name, other.name, one.id == other.id) == ("exp", "exp", False)


def test_neither_name_nor_program_holds_a_users_name(tmp_path, monkeypatch):
    home = tmp_path / "home" / "ada"
    (home / "work").mkdir(parents=True)
    monkeypatch.setenv("HOME", str(home))
    data = home / "data" / "x"
    found = project_of(home, [f"{home}/venv/bin/python3.12", "train.py", str(data), "--token", "abc"])
    assert (found.name, found.program) == ("~", "python train.py ~/data/x --token ***")
    assert project_of(home / "work").name == "work"
    monkeypatch.chdir(home / "work")
    assert started_in(home / "runs" / "1") == "~/work"
    assert started_in(home / "work" / "runs" / "1") == "../.."


def test_a_script_is_one_however_its_path_is_written(repository):
    words = (["./train.py"], [str(repository / "train.py")], ["train.py"])
    assert {project_of(repository, ["python", *each]).program for each in words} == {"python train.py"}


@pytest.mark.parametrize(
    "words",
    [
        "--seed {}", "--seed={}", "trainer.seed={}", "--manualSeed {}", "--output-dir runs/{}", "--out_dir=runs/{}",
        "hydra.run.dir=out/{}", "-o runs/{}", "--logdir logs/{}", "--log-file {}.log", "--run-name try{}", "--run-id {}",
        "+exp.name=try{}", "--master_port {}", "--rdzv-id={}", "--resume runs/{}/last.pt", "--wandb-project p{}",
        "--data /tmp/tmpabcdefg{}/x", "runs/2026-11-2{}_10-30-00", "--save model{}.pt",
    ],
)  # fmt: skip
def test_what_only_one_run_is_called_by_makes_no_other_program(words):
    one, other = (program_of(["python", "train.py", *words.format(n).split(), "--lr", "1"]) for n in (3, 4))
    assert one == other
    assert one.endswith("--lr 1")


@pytest.mark.parametrize(
    "words",
    [
        "--batch-size {}", "--workers={}", "--model net{}", "--name net{}", "--output {}", "--out-channels {}",
        "--log-interval {}", "--save-every {}", "--lora-rank {}", "--exp_file exps/{}.py", "--use-seed {}.py",
        "--checkpoint_dir models/{}", "data{}", "--steps {}", "optimizer.lr={}",
    ],
)  # fmt: skip
def test_what_may_change_a_step_does(words):
    one, other = (program_of(["python", "train.py", *words.format(n).split()]) for n in (3, 4))
    assert one != other


def test_a_damaged_manifest_has_no_project():
    assert project_from({"name": "a", "id": 3, "program": ""}) is project_from([]) is project_from({}) is None
