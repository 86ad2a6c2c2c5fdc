"""Files in Google Cloud Storage: in an emulator of it on the loopback, which answers the real gcsfs."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
from folders import FIXTURES
from typer.testing import CliRunner

from perfdoctor.cli.main import app
from perfdoctor.errors import PerfdoctorError
from perfdoctor.scale.read import read_run
from perfdoctor.system import remote
from perfdoctor.system.progress import silent

TRACES = FIXTURES / "straggler" / "torch"


@pytest.fixture(scope="module")
def gcsfs() -> Iterator[ModuleType]:
    """Without its other protocol (gRPC), which the emulator does not speak."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT", "false")
        yield pytest.importorskip("gcsfs")


@pytest.fixture
def bucket(gcsfs: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[object]:
    """A file system with the traces in gs://job/traces; there is nothing else in the server."""
    emulator = pytest.importorskip("gcp_storage_emulator.server")
    server = emulator.create_server("127.0.0.1", 0, in_memory=True, default_bucket="job")
    server.start()
    host, port = server._api._httpd.server_address
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", f"http://{host}:{port}")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules["fsspec"].config.conf, "gs", {"token": "anon"})  # as FSSPEC_GS_TOKEN=anon does
    gcsfs.GCSFileSystem.clear_instance_cache()
    system = gcsfs.GCSFileSystem()
    for file in TRACES.iterdir():
        system.pipe_file(f"job/traces/{file.name}", file.read_bytes())
    yield system
    gcsfs.GCSFileSystem.clear_instance_cache()
    server.stop()


def diagnosis(*given: object) -> str:
    result = CliRunner().invoke(app, ["analyze", *map(str, given), "--json", "-", "--no-html"])
    assert result.exit_code == 0, result.output
    return result.stdout


@pytest.mark.parametrize("given", ["gs://job/traces", "gs://job/traces/*", "gs://job/trac*/r*.gz"])
def test_traces_in_a_bucket_give_the_same_bytes_as_here(bucket: object, given: str) -> None:
    assert diagnosis(given) == diagnosis(TRACES)


def test_a_folder_is_listed_and_nothing_of_it_read(bucket: object, tmp_path: Path) -> None:
    with remote.at_hand(["gs://job/traces"], spread=True) as files:
        assert not (tmp_path / "cache").exists()
        assert sorted(file.name for file in files) == sorted(file.name for file in TRACES.iterdir())
        assert [file.size for file in files] == [(TRACES / file.name).stat().st_size for file in files]
        run = read_run(files, silent)
    assert len(run.places) < len(run.job.places) == len(files)


def test_a_file_is_fetched_once_and_again_when_it_changed(bucket: object, tmp_path: Path) -> None:
    for content in (b"one", b"two", b"two"):
        bucket.pipe_file("job/note.txt", content)
        bucket.invalidate_cache()
        with remote.at_hand(["gs://job/note.txt"]) as (path,):
            assert path.read_bytes() == content
    kept = [file.read_bytes() for file in (tmp_path / "cache").rglob("note.txt")]
    assert sorted(kept) == [b"one", b"two"]


@pytest.mark.parametrize(
    ("url", "what"),
    [
        ("gs://job/missing.json", "gs://job/missing.json does not exist"),
        ("gs://job/*.none", "gs://job/*.none matches no file"),
    ],
)
def test_what_is_not_there_is_said_in_one_line(bucket: object, url: str, what: str) -> None:
    with pytest.raises(PerfdoctorError) as caught, remote.at_hand([url]):
        pass
    assert caught.value.what == what
