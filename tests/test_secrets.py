"""Secrets of many kinds are planted wherever a run stores text: none of them gets into anything that is made of it."""

from __future__ import annotations

import gzip
import json
import shlex
import sqlite3
import time
import types
from multiprocessing import process
from pathlib import Path

import pytest
from assistant.client import assistant
from folders import FIXTURES
from secret_kinds import KINDS
from typer.testing import CliRunner

from perfdoctor.cli.main import app
from perfdoctor.recording.agent.perfdoctor_agent import identity
from perfdoctor.system import masking
from perfdoctor.system.masking import masked_command, masked_text
from perfdoctor.system.run_folder import Manifest, PassRecord, RunFolder, recorded_environment

TRACE = FIXTURES / "cpu-slow-input" / "torch" / "rank0.pt.trace.json.gz"
WORDS = [word for words, _ in KINDS.values() for word in words]
SECRETS = {name: secret for name, (_, secret) in KINDS.items()}


def run(*arguments: object):
    return CliRunner().invoke(app, list(map(str, arguments)), catch_exceptions=False)


def planted_trace(target: Path) -> None:
    """A recording whose ranges and whose thread are named with each of the secrets."""
    trace = json.loads(gzip.decompress(TRACE.read_bytes()))
    events = trace["traceEvents"]
    like = next(event for event in events if event.get("cat") == "user_annotation")
    events += [{**like, "name": f"load {' '.join(words)}"} for words, _ in KINDS.values()]
    named = {
        "ph": "M",
        "name": "thread_name",
        "pid": like["pid"],
        "tid": like["tid"],
        "args": {"name": SECRETS["hugging face"]},
    }
    target.write_bytes(gzip.compress(json.dumps({**trace, "traceEvents": [named, *events]}).encode()))


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """A run as `perfdoctor run` leaves it, by the functions that write it."""
    path = tmp_path_factory.mktemp("runs") / "run"
    environment = {f"NCCL_{number}": shlex.join(words) for number, (words, _) in enumerate(KINDS.values())}
    notes = [f"ValueError: {' '.join(words)}" for words, _ in KINDS.values()]
    record = PassRecord("torch", command=masked_command(WORDS), state="done", notes=notes)
    manifest = Manifest(
        perfdoctor="1", command=masked_command(["python", "train.py", *WORDS]), notes=notes, passes=[record],
        environment=recorded_environment(environment), left_out={"nsys": notes[0]},
    )  # fmt: skip
    run_folder = RunFolder.create(path, manifest)
    planted_trace(run_folder.make("torch") / "rank0.pt.trace.json.gz")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sys.argv", ["train.py", *WORDS[:38]])
        patch.setattr(process, "current_process", lambda: types.SimpleNamespace(name=WORDS[0]))
        facts = identity.facts(masking.__file__)
    report = {
        "pass": "torch",
        "pid": 1,
        "rank": 0,
        "steps_seen": 5,
        "trace": "rank0.pt.trace.json.gz",
        "notes": notes,
        **facts,
    }
    (path / "agents" / "torch-1.json").write_text(json.dumps({**report, "notes": []}))
    return path


def test_the_run_folder_holds_no_secret_beside_its_recordings(folder: Path) -> None:
    for file in (folder / "run.json", folder / "agents" / "torch-1.json"):
        assert [name for name, secret in SECRETS.items() if secret in file.read_text("utf-8")] == []


def test_nothing_that_is_made_of_a_run_holds_a_secret(folder: Path, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    history = tmp_path / "history.db"
    monkeypatch.setenv("PERFDOCTOR_HISTORY", str(history))
    said = [
        run("analyze", folder, "--html", "page.html", "--json", "diagnosis.json", "--all", "--save"),
        *(run("analyze", folder, "--no-html", "--format", form) for form in ("markdown", "brief", "json")),
        run("analyze", "diagnosis.json", "--format", "brief"),
        run("history", "show", "last", "--json"),
        run("history", "trend", "--csv"),
        run("export", folder, "--perfetto", "run.pftrace", "--sqlite", "run.db"),
        run("query", folder, "SELECT * FROM ranges", "--csv"),
        run("summarize", folder, "-o", "left"),
        run("scrub", folder, "-o", "clean"),
        run("scrub", "diagnosis.json", "-o", "clean.json"),
    ]
    assert [result.output for result in said if result.exit_code] == []
    made = {str(file.relative_to(tmp_path)): file.read_bytes() for file in tmp_path.rglob("*") if file.is_file()}
    made |= {name: gzip.decompress(content) for name, content in made.items() if name.endswith(".gz")}
    made["the terminal"] = "".join(result.output for result in said).encode()
    assert {
        "page.html",
        "diagnosis.json",
        "run.pftrace",
        "run.db",
        "clean/run.json",
        "clean.json",
        "history.db",
    } <= made.keys()
    assert b"load" in made["run.pftrace"]
    shown = {json.dumps(secret)[1:-1].encode() for secret in SECRETS.values()} | {
        each.encode() for each in SECRETS.values()
    }
    found = {secret: name for name, content in made.items() for secret in shown if secret in content}
    assert found == {}
    with sqlite3.connect(tmp_path / "run.db") as database:
        assert database.execute("SELECT count(*) FROM ranges WHERE name LIKE '%***%'").fetchone()[0] >= len(KINDS) / 2


def test_no_answer_to_an_assistant_holds_a_secret(folder: Path) -> None:
    asked = [("analyze", {}), ("query", {"sql": "SELECT name FROM ranges WHERE name LIKE 'load %'"})]
    with assistant(folder.parent) as client:
        answers = [client.call(tool, {"path": folder.name, **more}) for tool, more in asked]
    assert [answer.text for answer in answers if answer.is_error] == []
    assert "***" in answers[1].everything
    assert [name for name, secret in SECRETS.items() for answer in answers if secret in answer.everything] == []


# --- what is masked, and what stays ---


@pytest.mark.parametrize(
    ("words", "shown"),
    [
        (["sh", "-c", "A_TOKEN=x python  t.py --lr 1"], ["sh", "-c", "A_TOKEN=*** python  t.py --lr 1"]),
        (["bash", "-lc", "t.py \\\n --password \\\n x\n"], ["bash", "-lc", "t.py \\\n --password \\\n ***\n"]),
        (["sh", "-c", "sh -c 't.py --password \"x y\" -v'"], ["sh", "-c", "sh -c 't.py --password *** -v'"]),
        (["--password=correct horse", "--lr", "1"], ["--password=***", "--lr", "1"]),
        (["srun", "--export=ALL,A_KEY=x,B=1"], ["srun", "--export=ALL,A_KEY=***,B=1"]),
        (["python", "-c", "login(token='x y', n=1)"], ["python", "-c", "login(token='***', n=1)"]),
        (['{"password": ["x", "y"], "lr": 1}'], ['{"password": ["***"], "lr": 1}']),
        (["--image-key", "hf_abcdefghijklmnopqrst"], ["--image-key", "***"]),
        (["--sort-key=Xk3jd82HsdA81kLq", "--key", "12345678"], ["--sort-key=***", "--key", "***"]),
        (["--image-key=a,password=x", "--tokens", "abc"], ["--image-key=***", "--tokens", "***"]),
        (["--video_key", "0123456789abcdef0123"], ["--video_key", "***"]),
        (["curl", "-ume:x", "--user=me:y", "-unode17:29500"], ["curl", "-ume:***", "--user=me:***", "-unode17:29500"]),
        *(
            ([word, *values], [word, *values])
            for word, *values in (
                ("--num-key-value-heads", "8", "--max-tokens", "512", "--lr", "3e-4"),
                ("--bypass-cache", "x", "--max-tokens-to-sample", "4000000", "--tokens-per-batch", "4000000"),
                ("pack.py", "train.tokens", "server.key", "val.tokens"),
                ("env", "-u", "WANDB_API_KEY", "python", "train.py"),
                ("docker", "-v", "/home/auth:/auth", "-p", "8080:80"),
                ("git+https://github.com/org/repo.git@v1.0", "http://host:8080/x@y"),
                ("sh", "-c", "f(key=g, lr=1) && mkdir -p a/b"),
                ("--global-batch-tokens", "4194304", "--total-tokens=10B", "data.tokens=10_000_000", "--tokens=3e9"),
                ("--image-key", "image", "+data.text_key=txt", "--pad_token", "<pad>", "--eos-token=</s>"),
                ('{"image_key": "jpg", "total_tokens": 4194304, "pad_token": "<|pad|>", "eos_token_id": 128001}',),
                ("--model-args=pretrained=x,max_tokens=512", "f(num_keys=64)", "TOKENIZERS_PARALLELISM=false"),
            )
        ),
    ],
)
def test_of_a_command_only_secrets_are_masked(words: list[str], shown: list[str]) -> None:
    assert masked_command(words) == shown


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("Command '['a', '--password', 'x', '-v']' failed", "Command '['a', '--password', '***', '-v']' failed"),
        ("Command 'a --password x -v' failed", "Command 'a --password *** -v' failed"),
        ('std::f<int> {"password":"a::b c"} g<a>', 'std::f<int> {"password":"***"} g<a>'),
        ("--password a<b c", "--password *** c"),
        ("""sh -c 'f(token='"'"'x y'"'"')'""", """sh -c 'f(token='"'"'***'"'"')'"""),
        (r"sh -c 'f(token='\''x y'\'')'", r"sh -c 'f(token='\''***'\'')'"),
        ("run --password  x y", "run --password  *** y"),
        ('{"a": ["--password", "x"], "b": "--password", "c": 1}', '{"a": ["--password", "***"], "b": "--password", "c": 1}'),
        ('curl -H "Authorization: Token x" https://h', 'curl -H "Authorization: ***" https://h'),
        *(
            (text, text)
            for text in (
                "void at::native::radix_sort_keys::policy<int, Key>(int)",
                "foo<a, b> std::map<Key, Token> x",
                "void sort<float>(Key) [with Key = unsigned int; int N = 3]",
                "Missing keys: ['a.weight', 'b.weight']",
                "don't pass through; it's a key, read 'a b' \"c\"\n of nsys",
                "12 tokens per second",
                "prefill tokens=4194304 image_key=jpg",
                "f(tokens=4194304)",
                "login(api_key=***)",
            )
        ),
    ],
)  # fmt: skip
def test_of_a_text_only_secrets_are_masked(text: str, shown: str) -> None:
    assert masked_text(text) == shown


@pytest.mark.parametrize(
    "piece",
    [
        "'\\'", '\\"', '"\\ ', "['", "['a',", '"a", ', "key='", 'key=\\"', "key: ['a',", "=key=", "/key", "-max-a-tokens", "'a ",
        "\"' ", "::", "a<b ", "://a:", "://a:b@", "--key ", "A.", "DB.PASS ", "authorization: ", "key=['',", 'key["', "\\ ",
    ],
)  # fmt: skip
def test_a_text_of_any_length_is_masked_soon(piece: str) -> None:
    text = piece * (100_000 // len(piece))
    begun = time.process_time()
    masked_text(text)
    masked_command([text])
    masked_command(["sh", "-c", text])
    assert time.process_time() - begun < 5
