"""A store in a folder: one file for each object, published by a rename so that no reader sees half of one.

Below the root every path is an object's name, but for ``.tmp``, where objects are written before they get
their name. A writer that dies leaves a file there and nothing else; the next store to open the folder removes
it once it is too old, by the file system's own clock, to be anyone's work. Symbolic links are not objects: nothing
outside the root can be reached.
"""

import os
import secrets
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from cachegen.errors import ObjectNotFoundError, StoreUnavailableError
from cachegen.stores.base import StoredObject, check_name, check_range, is_name

TEMPORARY_FOLDER = ".tmp"
# Of an object that is read in pieces; a shared file system may lie behind a network.
_PIECE_BYTES = 1 << 18
# One object is written in seconds; a day leaves room for a disk in trouble and for a clock that is set.
STALE_AFTER_S = 86400.0


class FileStore:
    """Objects as files below ``root``, which is made by the first ``put``; safe for concurrent writers.

    Parameters
    ----------
    root
        The store's folder, on one file system.
    """

    def __init__(self, root: str | Path) -> None:
        self.root = Path(root).resolve()
        self._temporary = self.root / TEMPORARY_FOLDER
        self._collect_stale()

    def put(self, name: str, data: bytes) -> None:
        """See ``Store.put``; when it returns, the object survives a power cut."""
        self._write(name, data, Path.replace)

    def put_new(self, name: str, data: bytes) -> bool:
        """See ``Store.put_new``; the file system must know hard links."""
        try:
            self._write(name, data, os.link)
        except FileExistsError:
            return False
        return True

    def touch(self, name: str) -> None:
        """See ``Store.touch``; waits for no disk, unless the folder is new."""
        self._write(name, b"", Path.replace, synced=False)

    def _write(self, name: str, data: bytes, publish: Callable[[Path, Path], object], *, synced: bool = True) -> None:
        check_name(name)
        target = self.root / name
        temporary = self._temporary / secrets.token_hex(16)
        try:
            # a link on the way would lead the write out of the root, as it would a read
            if os.path.realpath(target.parent) != str(target.parent):
                raise StoreUnavailableError(f"{target}: lies behind a symbolic link")
            _make_folder(self._temporary)
            _make_folder(target.parent)
            try:
                _write_new(temporary, data, synced=synced)
                publish(temporary, target)
            finally:
                temporary.unlink(missing_ok=True)
            if synced:
                _sync_folder(target.parent)
        except FileExistsError:
            if target.is_file():  # a link's refusal, not that of a file where a folder should be
                raise
            raise StoreUnavailableError(f"{target}: something that is no object stands in the way") from None
        except OSError as error:
            raise _unavailable(target, error) from error

    def get(self, name: str, start: int = 0, end: int | None = None) -> bytes:
        """See ``Store.get``."""
        check_range(start, end)
        path = self.path(name)
        with _refusals_named(path), path.open("rb") as file:
            # what is there bounds the range: a reader allocates for any length that it is told
            size_bytes = os.fstat(file.fileno()).st_size
            first = min(start, size_bytes)
            file.seek(first)
            return file.read((size_bytes if end is None else min(end, size_bytes)) - first)

    def read(self, name: str, end: int) -> Generator[bytes, None, None]:
        """See ``Store.read``; a file that is replaced stays open."""
        check_range(0, end)
        path = self.path(name)
        with _refusals_named(path), path.open("rb", buffering=0) as file:
            while piece := file.read(min(end, _PIECE_BYTES)):
                end -= len(piece)
                yield piece

    def size(self, name: str) -> int:
        """See ``Store.size``."""
        path = self.path(name)
        with _refusals_named(path):
            return path.stat().st_size

    def names(self, prefix: str = "") -> list[str]:
        """See ``Store.names``."""
        return [name for name, _ in self._named_files(prefix)]

    def entries(self, prefix: str = "") -> list[StoredObject]:
        """See ``Store.entries``; the clock is the file system's."""
        found = []
        for name, path in self._named_files(prefix):
            with suppress(ObjectNotFoundError), _refusals_named(path):  # deleted since it was listed
                status = path.stat()
                found.append(StoredObject(name, status.st_size, status.st_mtime))
        return found

    def delete(self, name: str) -> None:
        """See ``Store.delete``; the folders stay."""
        path = self.path(name)
        with _refusals_named(path):
            path.unlink()
            _sync_folder(path.parent)

    def path(self, name: str) -> Path:
        """Return the file of an object that is there.

        Raises
        ------
        InvalidInputError
            ``name`` is not an object name.
        ObjectNotFoundError
            There is no such object; a folder or a symbolic link is none.
        """
        check_name(name)
        path = self.root / name
        with _refusals_named(path):
            # A link anywhere on the way makes the real path another one.
            if os.path.realpath(path) != str(path) or not path.is_file():
                raise ObjectNotFoundError(f"{path}: no such object")
        return path

    def _named_files(self, prefix: str) -> list[tuple[str, Path]]:
        with _refusals_named(self.root):
            named = [(path.relative_to(self.root).as_posix(), path) for path in self._files(prefix)]
        return sorted((name, path) for name, path in named if name.startswith(prefix) and is_name(name))

    def _files(self, prefix: str) -> Iterator[Path]:
        folder, _, _ = prefix.rpartition("/")
        # no walk through a million chunks for a few manifests; a folder that no name can have holds no object
        top = self.root / folder if is_name(folder) else self.root
        if os.path.realpath(top) != str(top) or not top.is_dir():
            return
        for below, _, files in os.walk(top, onerror=_raise):
            paths = (Path(below, name) for name in files)
            yield from (path for path in paths if not path.is_symlink() and path.is_file())

    def _collect_stale(self) -> None:
        # Housekeeping: whoever may not remove these files, or comes second, can use the store all the same.
        with suppress(OSError):
            if found := list(self._temporary.iterdir()):
                now_s = self._now_s()
                for temporary in found:
                    if now_s - temporary.stat().st_mtime > STALE_AFTER_S:
                        temporary.unlink(missing_ok=True)

    def _now_s(self) -> float:
        """The time by the clock that gives files theirs, which may be another machine's."""
        probe = self._temporary / secrets.token_hex(16)
        try:
            probe.touch(exist_ok=False)
            return probe.stat().st_mtime
        finally:
            probe.unlink(missing_ok=True)


def _raise(error: OSError) -> None:
    raise error


@contextmanager
def _refusals_named(path: Path) -> Iterator[None]:
    """Turn the operating system's refusals to read into the store's errors, with the path."""
    try:
        yield
    except FileNotFoundError as error:
        raise ObjectNotFoundError(f"{path}: no such object") from error
    except OSError as error:
        raise _unavailable(path, error) from error


def _unavailable(path: Path, error: OSError) -> StoreUnavailableError:
    return StoreUnavailableError(f"{path}: {error.strerror}")


def _write_new(path: Path, data: bytes, *, synced: bool) -> None:
    with path.open("xb") as file:
        file.write(data)
        if synced:
            file.flush()
            os.fsync(file.fileno())


def _make_folder(folder: Path) -> None:
    """Make a folder and those above it, such that they survive a power cut."""
    if folder.is_dir():
        return
    if folder.parent != folder:
        _make_folder(folder.parent)
    folder.mkdir(exist_ok=True)
    _sync_folder(folder.parent)


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
