"""Are stacks sampled from outside, in the recorded steps alone, by the real py-spy, and does nothing of it stay?"""

from __future__ import annotations

import gzip
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import textwrap
import time
from pathlib import Path

import pytest
from launched import wait_for

from perfdoctor.recording.sampling import sampler, stacks
from perfdoctor.recording.sampling.counts import cores_used
from perfdoctor.recording.sampling.session import SamplerProcess
from perfdoctor.recording.tools import py_spy
from perfdoctor.recording.tools.torch_profiler import AGENT

pytestmark = pytest.mark.skipif(
    bool(py_spy.find().trouble) and "CI" not in os.environ, reason=f"no py-spy: {py_spy.find().trouble}"
)

#: Two functions take turns. One of them spins for three quarters of the window, and longer where it loses its core:
#: how long each really took is kept in `took.json`.
PROGRAM = """
    import json, os, sys, threading, time
    sys.path.insert(0, {agent!r})
    from perfdoctor_agent.sampling import Sampling

    def busy(seconds):
        end = time.perf_counter() + seconds
        while time.perf_counter() < end:
            pass

    def costly():
        busy(0.03)
        total = sum(
            number for number in range(10)
        )

    def cheap():
        busy(0.01)

    def before():
        busy(0.3)

    sampling = Sampling({settings!r})
    sampling.begin(10_000_000, 1)
    before()
    sampling.steps_begin()
    took = dict(costly=0.0, cheap=0.0)
    for _ in range({rounds}):
        for function in (costly, cheap):
            begin = time.perf_counter()
            function()
            took[function.__name__] += time.perf_counter() - begin
    with open(os.path.join(os.path.dirname(__file__), "took.json"), "w") as file:
        json.dump(took, file)
    {end}
"""


def started(
    folder: Path, tool: SamplerProcess, rounds: int = 40, end: str = "sampling.end()"
) -> subprocess.Popen[bytes]:
    text = PROGRAM.format(agent=str(AGENT), settings=tool.settings, rounds=rounds, end=end)
    program = folder / "program.py"
    program.write_text(textwrap.dedent(text), "utf-8")
    old = time.time() - 60
    os.utime(program, (old, old))  # else its text may have changed since
    return subprocess.Popen([sys.executable, program])


@pytest.fixture
def tool():
    made = SamplerProcess(py_spy.find())
    yield made
    made.end()
    made.close()


def kept(tool: SamplerProcess, folder: Path, *, with_source: bool = True, notes: int = 0) -> list[dict]:
    tool.end()
    tool.with_source = with_source
    assert len(list(tool.keep(folder / "stacks", "torch", folder))) == notes
    return [json.loads(gzip.decompress(file.read_bytes())) for file in sorted((folder / "stacks").iterdir())]


def lines_of(document: dict) -> dict[str, int]:
    """ns by own function: of each stack the innermost frame in the program's file."""
    found: dict[str, int] = {}
    samples = document["samples"]
    for start, end, stack in zip(samples["start_unix_ns"], samples["end_unix_ns"], samples["stack"], strict=True):
        names = [document["frames"][frame] for frame in document["stacks"][stack]]
        own = [name.rpartition(": ")[2] for name in names if name.startswith("program.py(")]
        caller = next((name for name in reversed(own) if name in ("costly", "cheap", "before")), "")
        found[caller] = found.get(caller, 0) + end - start
    return found


def test_functions_have_their_share_of_the_window_and_what_was_before_it_is_left_out(tool, tmp_path):
    assert started(tmp_path, tool).wait(60) == 0
    (document,) = kept(tool, tmp_path)
    found = lines_of(document)
    took = json.loads((tmp_path / "took.json").read_text("utf-8"))
    sampled = found["costly"] / (found["costly"] + found.get("cheap", 0))
    samples = sum(document["samples"]["count"]) or len(document["samples"]["count"])
    # Four standard errors of a share, at most: one of so many independent samples.
    assert abs(sampled - took["costly"] / (took["costly"] + took["cheap"])) < 4 * 0.5 / samples**0.5
    assert found.get("before", 0) < 0.1 * sum(found.values())
    assert document["is_worker"] is False
    assert document["threads"] == [{"tid": document["pid"], "name": "MainThread"}]
    counts, samples = document["samples"]["count"], document["samples"]
    assert min(counts) >= 1 or not any(counts)  # unknown, where py-spy hardly ever had a core
    window_s = (max(samples["end_unix_ns"]) - min(samples["start_unix_ns"])) / 1e9
    assert sum(counts) < 1.5 * window_s * document["hertz"]


def test_the_text_of_own_lines_is_kept_with_its_whole_statement_or_not_at_all(tool, tmp_path):
    assert started(tmp_path, tool, rounds=20).wait(60) == 0
    (document,) = kept(tool, tmp_path)
    assert "while time.perf_counter() < end:" in {text for lines in document["source"].values() for text in lines}
    shutil.rmtree(tmp_path / "stacks")
    (document,) = kept(tool, tmp_path, with_source=False)
    assert document["source"] == {}


def children_of(pid: int) -> list[str]:
    found = subprocess.run(["ps", "-o", "pid=", "--ppid", str(pid)], capture_output=True, text=True, check=False)
    return found.stdout.split()


@pytest.mark.parametrize("end", ["os._exit(0)", "os.kill(os.getpid(), 9)", "os.abort()", "time.sleep(600)"])
def test_however_the_program_ends_nothing_is_left_and_what_was_sampled_is_kept(tool, tmp_path, end):
    program = started(tmp_path, tool, rounds=20, end=end)
    if "sleep" in end:
        wait_for((tmp_path / "took.json").exists)  # a busy machine takes its time
        program.send_signal(signal.SIGTERM)
    program.wait(60)
    (document,) = kept(tool, tmp_path)
    assert lines_of(document)["costly"] > 0
    assert tool.process.poll() is not None


def test_when_perfdoctor_is_killed_sampler_and_py_spy_end_and_the_program_goes_on(tmp_path):
    """The sampler is a child of a process that is killed."""
    parent = subprocess.Popen(
        [
            sys.executable, "-c",
            PARENT,
        ],
        stdout=subprocess.PIPE,
    )  # fmt: skip
    assert parent.stdout is not None
    settings = json.loads(parent.stdout.readline())

    class Started:
        def __init__(self) -> None:
            self.settings = settings

    program = started(tmp_path, Started(), rounds=60)  # type: ignore[arg-type]
    try:
        spies = wait_for(lambda: children_of(settings["sampler"]))
        parent.kill()
        parent.wait()
        wait_for(lambda: not any(Path(f"/proc/{pid}/cmdline").is_file() and is_alive(pid) for pid in spies))
        wait_for(lambda: not is_alive(settings["sampler"]))
        assert not Path(settings["ready"]).exists()
        assert program.wait(60) == 0
    finally:
        program.kill()
        shutil.rmtree(settings["ready"], ignore_errors=True)


PARENT = """
import json, time
from perfdoctor.recording.sampling.session import SamplerProcess
from perfdoctor.recording.tools import py_spy
print(json.dumps(SamplerProcess(py_spy.find()).settings), flush=True)
time.sleep(600)
"""


def is_alive(pid: int | str) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def test_a_sampler_that_cannot_be_started_leaves_no_folder(tmp_path, monkeypatch):
    def refuses(*_, **__):
        raise BlockingIOError(11, "Resource temporarily unavailable")

    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(subprocess, "Popen", refuses)
    opened = Path("/proc/self/fd")
    before = len(list(opened.iterdir()))
    with pytest.raises(BlockingIOError):
        SamplerProcess(py_spy.PySpy(path="/nowhere"))
    assert list(tmp_path.iterdir()) == []
    assert len(list(opened.iterdir())) == before


def test_a_request_that_makes_no_sense_does_no_harm(tool, tmp_path):
    for line in (
        b"begin\n",
        b"begin x y\n",
        b"\xff\n",
        b"end 1 2\n",
        b"begin 999999999 1\n",
        b"stop everything\n",
        b"\n",
    ):
        target = os.open(tool.requests, os.O_WRONLY | os.O_NONBLOCK)
        os.write(target, line)
        os.close(target)
    assert started(tmp_path, tool, rounds=10).wait(60) == 0
    tool.end()
    (note,) = tool.keep(tmp_path / "stacks", "torch", tmp_path)
    assert "process 999999999" in note
    (document,) = kept(tool, tmp_path, notes=1)
    assert lines_of(document)["costly"] > 0


@pytest.mark.skipif(os.geteuid() != 0, reason="only root attaches to the programs of others")
def test_another_users_program_may_ask_and_put_nothing_beside_the_samples(tool, tmp_path):
    tool.admit(65534)
    attempt = f"""
import os
os.setgroups([]), os.setgid(65534), os.setuid(65534)
os.write(os.open({str(tool.requests)!r}, os.O_WRONLY | os.O_NONBLOCK), b"begin 999999999 1\\n")
try:
    open({str(tool.folder / "window-1")!r}, "x")
except PermissionError:
    print("refused")
"""
    done = subprocess.run([sys.executable, "-S", "-c", attempt], capture_output=True, text=True, cwd="/", check=False)
    assert done.stdout == "refused\n", done.stderr
    wait_for(lambda: list(tool.folder.glob("*.log")))
    tool.end()
    files = [each for each in tool.folder.iterdir() if each != tool.requests]
    assert {each.suffix for each in files} >= {".log", ".jsonl"}
    assert {(each.stat().st_uid, each.stat().st_mode & 0o077) for each in files if each.suffix} == {(0, 0)}


def test_without_a_listener_the_program_goes_on_at_once(tool, tmp_path):
    tool.end()
    assert started(tmp_path, tool, rounds=1).wait(60) == 0
    tool.close()
    assert started(tmp_path, tool, rounds=1).wait(60) == 0


@pytest.mark.parametrize(("budget", "processes", "rate"), [(0.04, 1, 64), (0.04, 3, 18), (1.28, 24, 101), (1, 1, 200)])
def test_the_rate_keeps_to_the_budget(budget, processes, rate):
    assert sampler.hertz(budget, processes) == rate
    assert rate * processes * sampler.SAMPLE_S + cores_used(processes) <= budget or rate == sampler.LEAST_HERTZ


CELL = "rows = [\n    slow(\n        n) for n in x]\nlogin('hf_abcdefghijklmnopqrstuvwxyz0123456789')\n"
NOTEBOOK = """
    import json, linecache, os, sys, types
    sys.path.insert(0, {agent!r})
    from perfdoctor_agent.sampling import Sampling

    name = "/tmp/ipykernel_1/99.py"
    linecache.cache[name] = (0, None, {text!r}.splitlines(True), name)
    shell = types.SimpleNamespace(compile=types.SimpleNamespace({numbers}))
    sys.modules["IPython"] = types.SimpleNamespace(get_ipython=lambda: shell)
    sampling = Sampling({settings!r})
    sampling.begin(10_000_000, 1)
    sampling.steps_begin()
    while not os.path.exists(os.path.join({settings!r}["ready"], "enough")):
        exec(compile("import time\\ntime.sleep(0.01)", name, "exec"))
    sampling.end()
"""


@pytest.mark.parametrize("numbers", ["_filename_map={name: 3}", "other=0", "_filename_map={name: 'x'}"])
@pytest.mark.parametrize("with_source", [True, False])
def test_cells_of_a_notebook_have_their_number_and_text(tool, tmp_path, numbers, with_source):
    tool.with_source = with_source
    text = NOTEBOOK.format(agent=str(AGENT), settings=tool.settings, text=CELL, numbers=numbers)
    (tmp_path / "kernel.py").write_text(textwrap.dedent(text), "utf-8")
    program = subprocess.Popen([sys.executable, "kernel.py"], cwd=tmp_path)
    wait_for((tool.folder / f"ready-{program.pid}").exists)
    time.sleep(0.3)
    (tool.folder / "enough").touch()
    assert program.wait(60) == 0
    written = [file.read_text("utf-8") for file in tool.folder.glob("cells-*.json")]
    assert any("slow(" in each for each in written) == ("3}" in numbers and with_source)
    (document,) = kept(tool, tmp_path, with_source=with_source)
    is_known = "3}" in numbers
    assert any(frame.startswith("Cell In[3](2): ") for frame in document["frames"]) == is_known
    assert any("ipykernel_1" in frame for frame in document["frames"]) != is_known
    statement = ["rows = [", "    slow(", "        n) for n in x]"]
    shown = {line: text for line, text in document["source"].items() if "Cell" in line}
    shown.pop("Cell In[3](1)", None)  # the import, which is seldom seen: a line of the same statement
    assert shown == ({"Cell In[3](2)": statement} if is_known and with_source else {})
    assert not [text for lines in document["source"].values() for text in lines if "abcdefghijkl" in text]


def place_of(file: str, project: Path) -> tuple[str, bool, bool]:
    found = stacks.place_of(file, project)
    return found.path, found.is_inside, found.is_own


@pytest.mark.parametrize(
    ("file", "shown", "is_own"),
    [
        ("/home/me/env/lib/python3.11/site-packages/torch/nn/x.py", "site-packages/torch/nn/x.py", False),
        ("/opt/conda/envs/a/lib/python3.13t/json/decoder.py", "lib/python3.13t/json/decoder.py", False),
        ("/usr/lib64/python3.11/queue.py", "lib64/python3.11/queue.py", False),
        ("/usr/lib/python3/dist-packages/numpy/core.py", "dist-packages/numpy/core.py", False),
        ("<string>", "<string>", False),
        ("<frozen runpy>", "<frozen runpy>", False),
        ("<ipython-input-3-1f>", "<ipython-input-3-1f>", True),
        ("/tmp/ipykernel_12/345.py", "/tmp/ipykernel_12/345.py", True),
        ("/elsewhere/tools/train.py", "/elsewhere/tools/train.py", True),
    ],
)
def test_files_elsewhere_are_cut_at_the_folder_of_packages_and_nobody_reads_them(tmp_path, file, shown, is_own):
    assert place_of(file, tmp_path) == (shown, False, is_own)


def test_files_of_the_project_are_own_whatever_they_are_called_unless_they_were_installed(tmp_path):
    project = tmp_path / "project"
    for folder, mark in ((".venv", "pyvenv.cfg"), ("conda", "conda-meta")):
        (project / folder).mkdir(parents=True)
        (project / folder / mark).touch()
    for own in ("src/train.py", "logging/wandb.py", "copy.py", "_train.py", "lightning_modules/model.py", "bin/train"):
        assert place_of(f"{project}/{own}", project) == (own, True, True)
    for installed in (
        ".venv/src/editable/model.py", ".venv/bin/torchrun", "conda/lib/python3.12/site-packages/x/y.py", "conda/bin/x",
    ):  # fmt: skip
        assert place_of(f"{project}/{installed}", project) == (installed, True, False)


def test_a_path_with_dots_or_links_is_where_it_leads(tmp_path):
    project = tmp_path / "project"
    project.mkdir()
    (project / "train.py").touch()
    (tmp_path / "link").symlink_to(project)
    assert place_of(f"{project}/scripts/../src/model.py", project) == ("src/model.py", True, True)
    assert place_of(f"{tmp_path}/link/train.py", project) == ("train.py", True, True)
    assert place_of("train.py", project) == ("train.py", True, True)  # Python 3.8
    assert place_of(f"{project}/../secret.py", project)[1] is False


def test_a_statement_is_shown_whole_up_to_five_lines_and_its_secrets_are_hidden(tmp_path):
    file = tmp_path / "train.py"
    file.write_text(
        "def f():\n    for x in (1,\n              2):\n        g(\n            a,\n            b,\n            c,\n"
        "            d,\n            e,\n        )\n    login(key='hf_abcdefghijklmnopqrstuvwxyz0123456789')\n",
        "utf-8",
    )
    wanted = {f"train.py({line})": (file, line) for line in (3, 6, 11)}
    found = stacks.source(wanted, before_unix_ns=file.stat().st_mtime_ns)
    assert found["train.py(3)"] == ["for x in (1,", "          2):"]
    assert found["train.py(6)"] == ["g(", "    a,", "    b,", "    c,", "    d,"]
    assert "abcdefghijklmnop" not in found["train.py(11)"][0]
    assert stacks.source(wanted, before_unix_ns=file.stat().st_mtime_ns - 1) == {}
