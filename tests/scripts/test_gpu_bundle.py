"""Does the bundle try perfdoctor where there is nothing but a Python and no network, and leave its results?"""

from __future__ import annotations

import io
import json
import lzma
import os
import shutil
import signal
import subprocess
import sys
import tarfile
import time
import zipfile
from pathlib import Path
from typing import Any

import pytest
import scrub
import typer
from folders import ROOT
from torch_python import torch_python

from perfdoctor.diagnosis.engine import diagnose
from perfdoctor.readers.open import read
from perfdoctor.vocabulary.rulebook import load_rules

#: Without a network but for the machine itself, where torchrun's processes meet.
ALONE = ["unshare", "-rn", "sh", "-c", 'ip link set lo up 2>/dev/null; exec "$@"', "sh"]
NO_NAMESPACES = "this machine grants no network namespace"


def alone() -> list[str]:
    """What stands before a command that must not reach any network."""
    if shutil.which("unshare") is None or subprocess.run(["unshare", "-rn", "true"], check=False).returncode:
        pytest.skip(NO_NAMESPACES)
    return ALONE


def bare_environment(folder: Path) -> dict[str, str]:
    """Nothing that leads to the checkout, its environment or its tools."""
    folder.mkdir(parents=True, exist_ok=True)
    return {"PATH": "/usr/bin:/bin:/usr/sbin:/sbin", "HOME": str(folder), "TMPDIR": str(folder)}


def builder() -> Any:
    sys.path.insert(0, str(ROOT / "scripts" / "gpu_bundle"))
    try:
        import build  # noqa: PLC0415
    finally:
        sys.path.pop(0)
    return build


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One for this Python that takes the dependencies from where they are: to fetch and compress them takes a minute."""
    common, tag = io.BytesIO(), f"cp{sys.version_info.major}{sys.version_info.minor}"
    with tarfile.open(fileobj=common, mode="w") as archive:
        for source, name in (("src/perfdoctor", ""), ("rules", "/rules"), ("examples", "/examples")):
            archive.add(ROOT / source, f"perfdoctor{name}")
        for package in Path(typer.__file__).parents[1].iterdir():
            link = tarfile.TarInfo(package.name)
            link.type, link.linkname = tarfile.SYMTYPE, str(package)
            archive.addfile(link)
    parts = {"common": lzma.compress(common.getvalue(), preset=0), tag: lzma.compress(b"\0" * 10240)}
    file = tmp_path_factory.mktemp("bundle") / "perfdoctor-gpu-bundle.sh"
    file.write_bytes(builder().bundle(parts))
    return file


def test_what_only_another_python_needs_is_fetched_for_it(tmp_path: Path) -> None:
    """pip reads conditions as if for the Python that it runs in, whatever it downloads for."""
    with zipfile.ZipFile(tmp_path / "one-1.0-py3-none-any.whl", "w") as wheel:
        needs = ["tomli>=2.0; python_version < '3.11'", "Two_Words>=1", "three; extra == 'pandas'"]
        wheel.writestr("one-1.0.dist-info/METADATA", "".join(f"Requires-Dist: {need}\n" for need in needs) + "\n")
    assert builder().missing("3.12", tmp_path) == ["Two_Words>=1"]
    with zipfile.ZipFile(tmp_path / "two_words-1.0-py3-none-any.whl", "w") as wheel:
        wheel.writestr("two_words-1.0.dist-info/METADATA", "Name: two-words\n\n")
    assert builder().missing("3.12", tmp_path) == []
    assert builder().missing("3.10", tmp_path) == ["tomli>=2.0"]


def test_without_torch_it_says_so_and_leaves_results(bundle: Path, tmp_path: Path) -> None:
    base = getattr(sys, "_base_executable", sys.executable)
    if subprocess.run([base, "-c", "import torch"], check=False, capture_output=True).returncode == 0:
        pytest.skip("the Python below this environment has torch")
    command = [*alone(), "sh", str(bundle), "--python", base, "--output", str(tmp_path / "results"), "--quick"]
    done = subprocess.run(command, env=bare_environment(tmp_path / "home"), capture_output=True, text=True, check=False)
    assert done.returncode == 1, done.stdout + done.stderr
    results = json.loads((tmp_path / "results" / "selftest.json").read_text("utf-8"))
    assert [(check["name"], check["verdict"]) for check in results["checks"]] == [("torch", "does not work")]
    assert "has no torch" in (tmp_path / "results" / "selftest.txt").read_text("utf-8")
    assert "perfdoctor" in (tmp_path / "results" / "environment.txt").read_text("utf-8")
    with tarfile.open(tmp_path / "results" / "packed" / "results-1.tar.gz") as packed:
        assert {"results/selftest.json", "results/environment.txt", "results/timings.json"} <= set(packed.getnames())
    assert not list((tmp_path / "home").glob("perfdoctor-bundle-*")), "what was unpacked is removed"


def test_a_python_that_it_was_not_built_for_is_named(bundle: Path, tmp_path: Path) -> None:
    other = tmp_path / "python"
    other.write_text('#!/bin/sh\n[ "$1" = -c ] && echo \'{"version": [3, 99], "base": "/python"}\' && exit\nexec ' + f'{sys.executable} "$@"\n')  # fmt: skip
    other.chmod(0o755)
    command = ["sh", str(bundle), "--python", str(other), "--output", str(tmp_path / "results")]
    done = subprocess.run(command, env=bare_environment(tmp_path / "home"), capture_output=True, text=True, check=False)
    assert done.returncode == 3
    assert "is Python 3.99, and this bundle was built for cp3" in done.stderr


@pytest.mark.torch
def test_what_is_there_stays_when_it_is_ended(bundle: Path, tmp_path: Path) -> None:
    results, python = tmp_path / "results", torch_python()
    command = ["sh", str(bundle), "--python", python, "--output", str(results), "--quick"]
    with subprocess.Popen(
        command, env=bare_environment(tmp_path / "home"), stdout=subprocess.PIPE, text=True
    ) as process:
        deadline = time.monotonic() + 120
        while not (results / "selftest.json").exists() and process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.1)
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=60)
    assert process.returncode == 128 + signal.SIGTERM
    with tarfile.open(results / "packed" / "results-1.tar.gz") as packed:
        assert "results/selftest.json" in packed.getnames()
    assert not list((tmp_path / "home").glob("perfdoctor-bundle-*"))


@pytest.mark.thorough
@pytest.mark.torch
def test_built_from_wheels_it_records_without_a_network(tmp_path: Path) -> None:
    python, results = torch_python(), tmp_path / "results"
    asked = [python, "-c", "import sys; print('%d.%d' % sys.version_info[:2])"]
    version = subprocess.run(asked, check=True, capture_output=True, text=True).stdout.strip()
    file = tmp_path / "bundle.sh"
    build = [ROOT / "scripts" / "gpu-bundle", "--fast", "--without-nsys", "--python", version, "--output", file]
    made = subprocess.run(
        build, env={**os.environ, "PYTHON": sys.executable}, capture_output=True, text=True, check=False
    )
    assert made.returncode == 0, made.stdout + made.stderr
    command = [*alone(), "sh", str(file), "--python", python, "--output", str(results), "--quick"]
    done = subprocess.run(command, env=bare_environment(tmp_path / "home"), capture_output=True, text=True, check=False)
    checks = {
        each["name"]: each["verdict"] for each in json.loads((results / "selftest.json").read_text("utf-8"))["checks"]
    }
    assert checks["torch.profiler"] == "works", done.stdout + done.stderr
    diagnosis = diagnose(read([results / "runs" / "slow_input-torch"]), list(load_rules().values()))
    assert diagnosis.findings[0].rule == "input-wait"
    files = [path for path in (results / "runs").rglob("*") if path.is_file()]
    assert {str(path): found for path in files if (found := scrub.private(path))} == {}
    assert all(path.stat().st_size <= 15 << 20 for path in (results / "packed").iterdir())
