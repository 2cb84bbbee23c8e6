"""What a command is, and what several of them ask for."""

import argparse
import fnmatch
import tempfile
from pathlib import Path
from typing import Protocol

from cachegen.errors import InvalidInputError


class Command(Protocol):
    """A module that is one command.

    It is imported for every command and for ``--help``: what needs torch is imported inside ``run``.
    """

    HELP: str
    DESCRIPTION: str

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Say what the command takes."""
        ...

    def run(self, options: argparse.Namespace) -> int:
        """Do it; return the exit status, or raise a CachegenError that says why not.

        ``options.typed`` is what the user typed behind the program's name.
        """
        ...


def add_model(parser: argparse.ArgumentParser) -> None:
    """Which model."""
    parser.add_argument("--model", metavar="PATH", help="folder or hub name of a model (default: the one of prepare)")


def add_dtype(parser: argparse.ArgumentParser) -> None:
    """In what the model computes whose predictions are compared."""
    parser.add_argument(
        "--dtype",
        choices=("auto", "float32", "bfloat16", "float16"),
        help="in what the model computes while it is measured; auto: as it serves (default: float32, on a GPU auto)",
    )


def add_profile(parser: argparse.ArgumentParser) -> None:
    """Which profile."""
    parser.add_argument(
        "--profile", type=Path, metavar="FILE", help="profile of the model (default: looked for in the cache folder)"
    )


def add_overwrite(parser: argparse.ArgumentParser) -> None:
    """What to do with an output that is there already."""
    parser.add_argument("--overwrite", action="store_true", help="replace an output that is there and not empty")


def add_store(parser: argparse.ArgumentParser) -> None:
    """Which store."""
    parser.add_argument("--store", required=True, metavar="URL", help="folder or URL of a store (docs/stores.md)")


def add_dry_run(parser: argparse.ArgumentParser) -> None:
    """Whether to change anything."""
    parser.add_argument("--dry-run", action="store_true", help="say what would be removed, and remove nothing")


def check_output(path: Path, *, overwrite: bool) -> None:
    """Refuse, before any work is done for it, an output file that cannot be written or is there and not empty.

    Raises
    ------
    InvalidInputError
        The message says which of these it is.
    """
    if path.is_dir():
        raise InvalidInputError(f"{path}: is a folder; give the name of a file")
    if path.exists() and not path.is_file():
        raise InvalidInputError(f"{path}: is a device or a pipe; give the name of a file")
    if path.exists() and path.stat().st_size and not overwrite:
        raise InvalidInputError(f"{path}: is there already; --overwrite replaces it")
    _check_parent(path)


def check_output_folder(path: Path, contents: str, *, overwrite: bool) -> None:
    """The same for a folder; one is replaced only where all that it holds is what the command writes.

    Parameters
    ----------
    contents : str
        Pattern of the names of these files.
    """
    if path.is_symlink() or (path.exists() and not path.is_dir()):
        raise InvalidInputError(f"{path}: is no folder; give the name of one")
    names = sorted(entry.name for entry in path.iterdir()) if path.exists() else []
    if names and not overwrite:
        raise InvalidInputError(f"{path}: is there already and holds {names[0]}; --overwrite replaces it")
    if foreign := [name for name in names if not fnmatch.fnmatch(name, contents)]:
        raise InvalidInputError(f"{path}: holds {foreign[0]}, which is no {contents}, so it is not replaced")
    _check_parent(path)


def _check_parent(path: Path) -> None:
    parent = path.absolute().parent
    if not parent.is_dir():
        raise InvalidInputError(f"{path}: there is no folder {parent}")
    try:
        with tempfile.TemporaryFile(dir=parent):
            pass
    except OSError as error:
        raise InvalidInputError(f"{path}: its folder takes no file: {error.strerror}") from error
