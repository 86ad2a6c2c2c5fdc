"""Files that lie elsewhere: in a real S3 server and behind a real web server, both on the loopback."""

from __future__ import annotations

import http.server
import os
import shutil
import sys
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from folders import FIXTURES
from typer.testing import CliRunner

from perfdoctor.cli.main import app
from perfdoctor.errors import PerfdoctorError, UsageError
from perfdoctor.scale.read import read_run
from perfdoctor.system import remote
from perfdoctor.system.progress import BYTES, ProgressText, silent

TRACES = FIXTURES / "straggler" / "torch"
KEYS = {"AWS_ACCESS_KEY_ID": "AKIATESTKEY", "AWS_SECRET_ACCESS_KEY": "very-secret", "AWS_DEFAULT_REGION": "us-east-1"}


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    return tmp_path / "cache" / "perfdoctor" / "remote"


@pytest.fixture(scope="module")
def s3_server() -> Iterator[str]:
    pytest.importorskip("s3fs")
    moto = pytest.importorskip("moto.server")
    server = moto.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()


@pytest.fixture
def bucket(s3_server: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[object]:
    """A file system with the traces in s3://job/traces; there is nothing else in the server."""
    s3fs = sys.modules["s3fs"]
    for name, value in {**KEYS, "AWS_ENDPOINT_URL": s3_server}.items():
        monkeypatch.setenv(name, value)
    s3fs.S3FileSystem.clear_instance_cache()
    system = s3fs.S3FileSystem()
    system.mkdir("job")
    for file in TRACES.iterdir():
        system.put_file(str(file), f"job/traces/{file.name}")
    yield system
    system.rm("job", recursive=True)
    s3fs.S3FileSystem.clear_instance_cache()


@pytest.fixture
def web(tmp_path: Path) -> Iterator[str]:
    pytest.importorskip("aiohttp")
    shutil.copytree(TRACES, tmp_path / "www" / "traces")

    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *_: object) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(tmp_path / "www")))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


def diagnosis(*given: object) -> str:
    result = CliRunner().invoke(app, ["analyze", *map(str, given), "--json", "-", "--no-html"])
    assert result.exit_code == 0, result.output
    return result.stdout


def refused(url: str) -> PerfdoctorError:
    with pytest.raises(PerfdoctorError) as caught, remote.at_hand([url]):
        pass
    return caught.value


def bytes_of(folder: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in sorted(folder.rglob("*")) if file.is_file()}


@pytest.mark.parametrize("given", ["s3://job/traces", "s3://job/traces/", "s3://job/traces/*", "s3://job/trac*/r*.gz"])
def test_traces_in_a_bucket_give_the_same_bytes_as_here(bucket: object, given: str) -> None:
    assert diagnosis(given) == diagnosis(TRACES)


def test_traces_behind_a_web_server_give_the_same_bytes_as_here(web: str) -> None:
    expected = diagnosis(TRACES)
    assert diagnosis(f"{web}/traces/") == expected
    assert diagnosis(*(f"{web}/traces/{file.name}" for file in sorted(TRACES.iterdir()))) == expected


def test_workers_of_a_cluster_read_their_own_files_from_a_bucket(bucket: object) -> None:
    pytest.importorskip("distributed")
    assert diagnosis("s3://job/traces", "--cluster", "local[2]") == diagnosis(TRACES, "--cluster", "local[2]")


def test_addresses_and_patterns_of_this_machine_need_no_packages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "fsspec", None)
    expected = diagnosis(TRACES)
    assert diagnosis(TRACES.as_uri()) == expected
    assert diagnosis(TRACES / "*.gz") == expected
    assert "no file is named like" in refused(str(TRACES / "*.none")).what


def test_whatever_fsspec_reads_is_read() -> None:
    fsspec = pytest.importorskip("fsspec")
    memory = fsspec.filesystem("memory")
    for file in TRACES.iterdir():
        memory.pipe_file(f"/job/traces/{file.name}", file.read_bytes())
    expected = diagnosis(TRACES)
    assert diagnosis("memory://job/traces") == diagnosis("memory://job/traces/*.gz") == expected
    memory.rm("/job", recursive=True)


def test_nothing_is_read_that_workers_read_themselves(bucket: object, cache: Path) -> None:
    """Each worker fetches its own file, and what is read in full alone is kept here."""
    with remote.at_hand(["s3://job/traces"], spread=True) as files:
        assert not cache.exists()
        assert sorted(file.name for file in files) == sorted(file.name for file in TRACES.iterdir())
        run = read_run(files, silent)
    assert len(run.places) < len(run.job.places) == len(files)
    assert len(bytes_of(cache)) == len(run.places)


def test_a_file_is_fetched_once_and_again_when_it_changed(bucket: object, cache: Path) -> None:
    bucket.pipe_file("job/note.txt", b"one")
    for content in (b"one", b"two", b"two"):
        bucket.pipe_file("job/note.txt", content)
        bucket.invalidate_cache()
        with remote.at_hand(["s3://job/note.txt"]) as (path,):
            assert path.name == "note.txt"
            assert path.read_bytes() == content
    assert sorted(bytes_of_all(cache)) == [b"one", b"two"]


def bytes_of_all(folder: Path) -> list[bytes]:
    return [file.read_bytes() for file in folder.rglob("*") if file.is_file()]


def test_the_cache_lets_go_what_was_used_longest_ago(
    bucket: object, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(remote.CACHE_GB, "0.000002")  # 2,000 bytes: two of them
    for name in "abc":
        bucket.pipe_file(f"job/{name}", name.encode() * 1000)
    for number, name in enumerate("abac"):
        with remote.at_hand([f"s3://job/{name}"]) as (path,):
            os.utime(path.parent, (number, number))
    assert sorted(content[:1] for content in bytes_of_all(cache)) == [b"a", b"c"]
    assert "the cache may have" in refused_kept(bucket).what


def refused_kept(bucket: object) -> PerfdoctorError:
    bucket.pipe_file("job/large", b"x" * 3000)
    return refused("s3://job/large")


def test_a_folder_too_large_for_the_cache_stays_where_it_is(bucket: object, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(remote.CACHE_GB, "0.000001")
    with remote.at_hand(["s3://job/traces"]) as files:
        assert all(isinstance(file, remote.RemoteFile) for file in files)


def test_a_recorded_run_is_a_folder_here_too_and_its_report_is_written_where_one_works(
    bucket: object, tmp_path: Path
) -> None:
    bucket.pipe_file("job/run-7/run.json", b"{}")
    bucket.pipe_file("job/run-7/torch/a.json", b"[]")
    with remote.at_hand(["s3://job/run-7"], spread=True) as (folder,):
        assert folder.name == "run-7"
        assert bytes_of(folder) == {"run.json": b"{}", "a.json": b"[]"}
        assert remote.is_view(folder)
    assert not folder.exists()


def test_small_files_in_a_bucket_are_read_as_they_are_now_and_not_kept(bucket: object, cache: Path) -> None:
    for content in (b"first", b"later"):
        for rank in (0, 8):
            remote.write("s3://job/shared", f"watch-rank{rank}.json", content + b"%d" % rank)
        found = remote.read_all("s3://job/shared/watch-rank*.json")
        assert found == {"watch-rank0.json": content + b"0", "watch-rank8.json": content + b"8"}
    assert not cache.exists()
    assert remote.read_all("s3://job/nothing/watch-rank*.json") == {}


def test_progress_counts_bytes(bucket: object) -> None:
    said: list[str] = []
    with remote.at_hand(["s3://job/traces"], said.append):
        pass
    assert all(isinstance(text, ProgressText) and text.unit == BYTES for text in said)
    assert said[0].of == sum(file.stat().st_size for file in TRACES.iterdir())


@pytest.mark.parametrize(
    ("url", "what"),
    [
        ("s3://job/missing.json", "s3://job/missing.json does not exist"),
        ("s3://nowhere/", "s3://nowhere/ does not exist"),
        ("s3://job/*.none", "s3://job/*.none matches no file"),
        ("nothing://job/a", "nothing://job/a: no such kind of address is known"),
    ],
)
def test_what_is_not_there_is_said_in_one_line(bucket: object, url: str, what: str) -> None:
    assert refused(url).what == what


def test_a_web_server_without_the_file_or_no_server_is_said_without_secrets(web: str) -> None:
    secret = web.replace("://", "://me:hidden@") + "/none.json?X-Amz-Signature=hidden"
    assert refused(secret).what == f"{web}/none.json does not exist"
    error = refused("http://me:hidden@127.0.0.1:1/a.json?token=hidden")
    assert error.what.startswith("http://127.0.0.1:1/a.json cannot be read: ")
    assert "hidden" not in error.what + error.do


def test_without_credentials_it_says_where_they_are_looked_for(
    s3_server: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    s3fs = sys.modules["s3fs"]
    for name in KEYS:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_ENDPOINT_URL", s3_server)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("HOME", str(tmp_path))
    s3fs.S3FileSystem.clear_instance_cache()
    assert "AWS_PROFILE" in refused("s3://job/traces/a.json").do
    s3fs.S3FileSystem.clear_instance_cache()


def test_without_the_packages_it_says_how_to_install_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "fsspec", None)
    assert refused("s3://job/a.json").do == "Run: pip install 'perfdoctor[remote]'."


def test_a_download_that_was_cut_short_leaves_nothing(bucket: object, cache: Path) -> None:
    (file,) = remote._listed("s3://job/traces/" + next(TRACES.iterdir()).name).files
    longer = remote.RemoteFile(file.url, file.below, file.size + 1, file.version)
    with pytest.raises(PerfdoctorError, match=r"came with [\d,]+ bytes instead of"):
        remote.fetched([longer])
    assert bytes_of_all(cache) == []


def test_wrong_sizes_of_the_cache_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(remote.CACHE_GB, "much")
    with pytest.raises(UsageError, match="no number of GB"):
        remote._most_bytes()
