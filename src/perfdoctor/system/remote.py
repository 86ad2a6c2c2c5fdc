"""How are recordings read that lie at s3://, gs://, https:// and the like? Listed by name, and fetched once, by fsspec.

A fetched file is kept in the user's cache under its address and version (etag, or time and size), as long as there is
room. Addresses are shown without passwords and signatures, and errors of libraries not at all: they may hold some.
"""

from __future__ import annotations

import contextlib
import glob
import hashlib
import os
import shutil
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import unquote, urlsplit
from urllib.request import url2pathname

from msgspec import Struct

from perfdoctor.errors import PerfdoctorError, UsageError
from perfdoctor.patterns import regex
from perfdoctor.system.paths import cache_folder, draft
from perfdoctor.system.progress import BYTES, Progress, ProgressText, silent

#: How many GB of fetched files are kept.
CACHE_GB = "PERFDOCTOR_CACHE_GB"
_CACHE_GB = 20.0
#: Of what is free on the disk, so much is left to others.
_SHARE_OF_DISK = 0.5
_GB = 1e9

_URL = regex(r"[A-Za-z][A-Za-z0-9+.-]*://")
_WEB = ("http://", "https://")
_MAGIC = regex(r"[*?\[]")
_WEB_MAGIC = regex(r"[*\[]")  # ? begins a query
#: Files that are fetched at once: one stream fills no fast network.
_AT_ONCE = 8
#: A server that sends nothing for so long is gone. There is no limit to the whole: files are large.
_SILENT_S = 60
_REPORT_S = 0.2
#: Whatever a file reports of its version, by the names that fsspec's file systems use.
_VERSIONS = ("ETag", "etag", "md5Hash", "generation", "LastModified", "Last-Modified", "mtime", "updated", "created")
_RUN = "run.json"
_VIEW = "perfdoctor-remote-"


class RemoteFile(Struct, frozen=True):
    """A file by its address. `below`: its path in the folder that was listed, or its name.

    `size` in bytes, 0 if unknown. `version` changes with the content; "" where the server says nothing.
    """

    url: str
    below: str
    size: int = 0
    version: str = ""

    @property
    def name(self) -> str:
        name = PurePosixPath(self.below).name
        return name if name.strip(".") else "file"


def is_url(text: str) -> bool:
    return _URL.match(text) is not None


def local(text: str) -> str:
    """The path of a file:// address; any other text as it is."""
    return url2pathname(urlsplit(text).path) if text.startswith("file://") else text


def is_view(path: Path) -> bool:
    """Does `path` lie in a folder of fetched files, into which nothing is written?"""
    return any(parent.name.startswith(_VIEW) for parent in path.parents)


def shown(url: str) -> str:
    """The address without what may be secret: user, password and signature."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"


def name_of(url: str) -> str:
    """The last part of the path, which names the report."""
    return PurePosixPath(unquote(urlsplit(url).path)).name or urlsplit(url).netloc.rpartition("@")[2]


@contextlib.contextmanager
def at_hand(
    given: Sequence[str], progress: Progress = silent, *, spread: bool = False
) -> Iterator[list[Path | RemoteFile]]:
    """Local paths of paths, patterns and addresses. A remote folder becomes one of links, which is gone afterwards.

    Several remote files stay remote where the cache has no room for them, or with `spread`. Raises PerfdoctorError.
    """
    found: list[Path | _Listed] = [each for text in given for each in _found(text)]
    listed = [each for each in found if not isinstance(each, Path)]
    files = [file for each in listed for file in each.files]
    stay = len(files) > 1 and (spread or sum(file.size for file in files) > _most_bytes())
    with tempfile.TemporaryDirectory(prefix=_VIEW) as view:
        here = {} if stay else fetched(files, progress)
        paths: list[Path | RemoteFile] = []
        for number, each in enumerate(found):
            if isinstance(each, Path):
                paths.append(each)
            elif stay and not each.is_run:
                paths += each.files
            elif each.is_folder:
                here |= fetched(each.files, progress) if stay else {}
                paths.append(_linked(Path(view) / str(number) / each.name, each.files, here))
            else:
                paths += [here[file] for file in each.files]
        yield paths


# --- what is there ---------------------------------------------------------------------------------------------------


class _Listed(Struct, frozen=True):
    """The files at an address. `is_folder`: they are of one folder, and keep their places in it."""

    name: str
    files: Sequence[RemoteFile]
    is_folder: bool

    @property
    def is_run(self) -> bool:
        """Is it a folder of perfdoctor run, which is read as a whole?"""
        return self.is_folder and any(file.below == _RUN for file in self.files)


def _found(text: str) -> Iterator[Path | _Listed]:
    text = local(text)
    if is_url(text):
        yield _listed(text)
    elif _MAGIC.search(text) and not Path(text).exists():
        matching = [Path(name) for name in sorted(glob.glob(text, recursive=True))]  # noqa: PTH207 absolute ones too
        if not matching:
            raise PerfdoctorError(f"no file is named like {text}", do="Check the path.")
        yield from matching
    else:
        yield Path(text)


def _listed(url: str) -> _Listed:
    """The files at an address, or below it, or that match it; nothing of them is read."""
    with _explained(url):
        system, path = _file_system(url)
        magic = (_WEB_MAGIC if url.startswith(_WEB) else _MAGIC).search(path)
        if magic:
            found = system.glob(path, detail=True)
        elif url.startswith(_WEB) and url.endswith("/"):
            found = system.find(path, detail=True)
        else:
            info = system.info(path)
            if info["type"] != "directory":
                return _Listed(name_of(url), [_file(system, url, info, name_of(url))], is_folder=False)
            found = system.find(path, detail=True)
        infos = [info for _, info in sorted(found.items()) if info["type"] == "file"]
        if not infos:
            what = "matches no file" if magic else "holds no file"
            raise PerfdoctorError(f"{shown(url)} {what}", do="Check the address.")
        top = path.rstrip("/") + "/"
        return _Listed(
            name_of(url),
            [_file(system, system.unstrip_protocol(i["name"]), i, i["name"].removeprefix(top)) for i in infos],
            is_folder=not magic,
        )


def _file(system: Any, url: str, info: Mapping[str, Any], below: str) -> RemoteFile:
    if not info.get("size"):  # a listing of a web server has names alone
        info = system.info(info["name"])
    version = next((str(info[key]) for key in _VERSIONS if info.get(key)), "")
    return RemoteFile(url, unquote(below), int(info.get("size") or 0), version)


def _file_system(url: str) -> tuple[Any, str]:
    try:
        import aiohttp  # noqa: PLC0415 extras
        import fsspec  # noqa: PLC0415

        options: dict[str, object] = {}
        if url.startswith(_WEB):
            options["client_kwargs"] = {
                "timeout": aiohttp.ClientTimeout(total=None, sock_connect=_SILENT_S, sock_read=_SILENT_S),
                "trust_env": True,
            }
            options["headers"] = {"Accept-Encoding": "identity"}  # the file, not a compressed copy of it
        system, path = fsspec.core.url_to_fs(url, **options)
    except ImportError as error:
        raise PerfdoctorError(
            f"{shown(url)}: files elsewhere need packages that are not installed",
            do="Run: pip install 'perfdoctor[remote]'.",
        ) from error
    except ValueError as error:
        raise UsageError(
            f"{shown(url)}: no such kind of address is known", do="Use s3://, gs://, https:// or file://."
        ) from error
    return system, path


# --- fetching --------------------------------------------------------------------------------------------------------


def fetched(files: Sequence[RemoteFile], progress: Progress = silent) -> dict[RemoteFile, Path]:
    """The files in the cache: where each one is now. Raises PerfdoctorError for the first that cannot be fetched."""
    here = {file: _place(file) for file in files}
    missing = [file for file in here if not (file.version and here[file].exists())]
    _make_room(sum(file.size for file in missing), {path.parent for path in here.values()})
    if missing:
        _fetch_all({file: here[file] for file in missing}, progress)
    for path in here.values():
        os.utime(path.parent)  # used now: it is the last one to go
    return here


@contextlib.contextmanager
def for_a_while(file: RemoteFile) -> Iterator[Path]:
    """The file at a place of its own, for a worker that needs it once: it is gone afterwards."""
    with tempfile.TemporaryDirectory(prefix=_VIEW) as folder:
        path = Path(folder) / file.name
        _fetch(file, path, lambda _: None)
        yield path


class _Stopped(Exception):  # noqa: N818 raised in a download that nobody wants any more
    """Ctrl-C, or another file that cannot be fetched."""


def _fetch_all(targets: Mapping[RemoteFile, Path], progress: Progress) -> None:
    """Fetch several files at once. All downloads end when one fails or the program is interrupted."""
    lock, stopping = threading.Lock(), threading.Event()
    count, total = len(targets), sum(file.size for file in targets)
    came = done = 0

    def more(size: int) -> None:
        nonlocal came
        if stopping.is_set():
            raise _Stopped
        with lock:
            came += size

    with ThreadPoolExecutor(min(_AT_ONCE, count)) as pool:
        try:
            running = {pool.submit(_fetch, file, target, more) for file, target in targets.items()}
            while running:
                what = next(iter(targets)).name if count == 1 else f"{done} of {count} files"
                progress(ProgressText(f"Fetching {what}", "Fetching", min(came, total), total, BYTES))
                finished, running = wait(running, timeout=_REPORT_S)
                for each in finished:
                    each.result()
                done += len(finished)
        finally:
            stopping.set()
            pool.shutdown(cancel_futures=True)


def _fetch(file: RemoteFile, target: Path, more: Callable[[int], None]) -> None:
    """Fetch the whole file or nothing. `more` is called with the number of bytes that have come since."""
    target.parent.mkdir(parents=True, exist_ok=True)
    with draft(target) as made:
        with _explained(file.url):
            system, path = _file_system(file.url)
            from fsspec.callbacks import Callback  # noqa: PLC0415 an extra

            callback = Callback()
            callback.relative_update = lambda size=1: more(size)
            system.get_file(path, str(made), callback=callback)
        if file.size and made.stat().st_size != file.size:
            raise PerfdoctorError(
                f"{shown(file.url)} came with {made.stat().st_size:,} bytes instead of {file.size:,}",
                do="Is it being written now? Try again when it is complete.",
            )


def _linked(folder: Path, files: Sequence[RemoteFile], here: Mapping[RemoteFile, Path]) -> Path:
    for file in files:
        link = folder / file.below
        if folder.resolve() not in link.resolve().parents:
            continue  # `..` in a name
        link.parent.mkdir(parents=True, exist_ok=True)
        try:
            link.symlink_to(here[file])
        except OSError:  # Windows lets few users do that
            shutil.copyfile(here[file], link)
    return folder


# --- writing --------------------------------------------------------------------------------------------------------


def write(folder: str, name: str, content: bytes) -> None:
    """Write a file into a folder here or at an address, whole or not at all. Raises PerfdoctorError."""
    folder = local(folder)
    if is_url(folder):
        with _explained(folder, "written"):
            system, path = _file_system(folder)
            system.pipe_file(f"{path.rstrip('/')}/{name}", content)
        return
    try:
        Path(folder).mkdir(parents=True, exist_ok=True)
        draft = Path(folder) / f".{name}.{os.getpid()}.part"
        draft.write_bytes(content)
        draft.replace(Path(folder) / name)
    except OSError as error:
        raise PerfdoctorError(
            f"{name} cannot be written into {folder}: {error.strerror}",
            do="Check the folder and the space on its disk.",
        ) from error


def read_all(pattern: str) -> dict[str, bytes]:
    """The files whose addresses match, by name, each as it is now: nothing is kept. Raises PerfdoctorError."""
    with _explained(pattern):
        system, path = _file_system(pattern)
        found = system.glob(path)
        contents = system.cat(found, on_error="raise") if found else {}  # at once, where the file system can
        return {PurePosixPath(name).name: content for name, content in sorted(contents.items())}


# --- the cache -------------------------------------------------------------------------------------------------------


def _folder() -> Path:
    return cache_folder() / "remote"


def _place(file: RemoteFile) -> Path:
    """Where the file is in the cache, if it is there: addresses and versions have folders of their own."""
    key = hashlib.sha256(f"{file.url}\n{file.version}\n{file.size}".encode()).hexdigest()[:32]
    return _folder() / key / file.name


def _most_bytes() -> float:
    """How much may be in the cache: as much as was asked for, and no more than half of what is free on its disk."""
    asked = os.environ.get(CACHE_GB, "").strip()
    try:
        most = float(asked or _CACHE_GB) * _GB
    except ValueError:
        raise UsageError(
            f"{CACHE_GB} is no number of GB", do=f"Set it to a number, or unset it: {CACHE_GB}=50."
        ) from None
    there = next(folder for folder in (_folder(), *_folder().parents) if folder.exists())
    return min(most, _SHARE_OF_DISK * (shutil.disk_usage(there).free + sum(_sizes().values())))


def _sizes() -> dict[Path, int]:
    """The folders of the cache and their bytes, the one that was used longest ago first."""
    found = []
    with contextlib.suppress(OSError):
        for folder in _folder().iterdir():
            with contextlib.suppress(OSError):  # another process removed it
                size = sum(file.stat().st_size for file in folder.iterdir())
                found.append((folder.stat().st_mtime, folder, size))
    return {folder: size for _, folder, size in sorted(found)}


def _make_room(needed: int, used: set[Path]) -> None:
    """Remove what was used longest ago. Raises PerfdoctorError where that is not enough."""
    most, sizes = _most_bytes(), _sizes()
    left = sum(sizes.values())
    for folder, size in sizes.items():
        if left + needed <= most:
            return
        if folder not in used:
            shutil.rmtree(folder, ignore_errors=True)
            left -= size
    if left + needed > most:
        raise PerfdoctorError(
            f"the files have {needed / _GB:.1f} GB, and the cache may have {most / _GB:.1f} GB",
            do=f"Free some of the disk, or set {CACHE_GB} to more.",
        )


# --- errors ----------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def _explained(url: str, done: str = "read") -> Iterator[None]:
    """Whatever a library raises becomes one line: its own texts may hold addresses with signatures."""
    try:
        yield
    except (PerfdoctorError, _Stopped):
        raise
    except FileNotFoundError as error:
        if isinstance(error.__cause__, OSError):  # fsspec says so too of a server that cannot be reached
            raise _refused(url, error.__cause__, done) from error
        raise PerfdoctorError(f"{shown(url)} does not exist", do="Check the address.") from error
    except Exception as error:  # each file system has errors of its own
        raise _refused(url, error, done) from error


def _refused(url: str, error: Exception, done: str) -> PerfdoctorError:
    kind = type(error).__name__
    status = getattr(error, "status", None) or getattr(error, "code", None)
    if isinstance(error, PermissionError) or "Credential" in kind or str(status) in ("401", "403"):
        return PerfdoctorError(
            f"{shown(url)} may not be {done} with the credentials that are here",
            do="Sign in as for other tools: AWS_PROFILE or AWS_ACCESS_KEY_ID; gcloud auth application-default login. "
            "For a public bucket: FSSPEC_S3_ANON=true.",
        )
    said = f"HTTP status {status}" if isinstance(status, int) else kind
    return PerfdoctorError(
        f"{shown(url)} cannot be {done}: {said}", do="Check the address, and the network from here to there."
    )
