"""The runs of one side: found, read and refused where their figures cannot be used."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from testbed.errors import BrokenRunError, InvalidRunError, RunFileError
from testbed.metrics import SUMMARY_SCHEMA, RequestRow
from testbed.request_rows import read_requests
from testbed.run_text import read_object

WALL_CLOCK, VIRTUAL = "wall-clock", "virtual"
SEQUENTIAL, CLOSED = "sequential", "closed"


@dataclass(frozen=True)
class Run:
    """What the files of a run directory say.

    Parameters
    ----------
    config, manifest, summary : dict
        Of the JSON files.
    rows : tuple of RequestRow
        Of ``requests.csv``, in its order.
    """

    path: Path
    config: dict[str, Any]
    manifest: dict[str, Any]
    summary: dict[str, Any]
    rows: tuple[RequestRow, ...]

    def fact(self, name: str) -> Any:
        """Value of ``file:dotted.path``, ``config:slo_ms`` say; None where it is absent."""
        file, _, place = name.partition(":")
        value: Any = getattr(self, file)
        for key in place.split("."):
            value = value.get(key) if isinstance(value, dict) else None
        return value

    @property
    def tier(self) -> str:
        """``virtual`` where link and costs were modelled and every figure repeats to the last digit."""
        return str(self.config.get("tier", WALL_CLOCK))

    @property
    def arrivals(self) -> str:
        """Name of the pattern, see ``testbed.arrivals``; runs older than these served one request after the other."""
        return str(self.config.get("arrivals", SEQUENTIAL)).partition(":")[0]

    def batch_of(self, row: RequestRow) -> int:
        """Batch of a request: of those that are served one after the other, each is one."""
        return row.request if self.arrivals == SEQUENTIAL else row.batch

    @property
    def commit(self) -> str | None:
        """Commit of the code that ran."""
        commit = self.fact("manifest:git.commit")
        return commit if isinstance(commit, str) else None

    @property
    def started_utc(self) -> str:
        """When the run began."""
        return str(self.fact("manifest:started_utc") or "")


def read_runs(paths: Sequence[Path]) -> list[Run]:
    """Runs of one side, in order of time.

    Parameters
    ----------
    paths : sequence of Path
        Run directories, or folders of run directories.

    Raises
    ------
    RunFileError
        A path that holds no run, or a file of one that cannot be used.
    InvalidRunError
        A run that calls itself INVALID or did not come to its end.
    """
    # `latest` beside the runs is one of them by another name
    found = dict.fromkeys(folder.resolve() for path in paths for folder in _run_folders(path))
    return sorted((_read_run(path) for path in found), key=lambda run: (run.started_utc, run.path))


def _run_folders(path: Path) -> list[Path]:
    if not path.is_dir():
        raise RunFileError(f"{path}: no such directory")
    if (path / "config.json").is_file():
        return [path]
    if folders := sorted(folder for folder in path.iterdir() if (folder / "config.json").is_file()):
        return folders
    raise RunFileError(f"{path}: neither a run directory (config.json is missing) nor a folder of some")


def _read_run(path: Path) -> Run:
    config, summary = read_object(path / "config.json"), read_object(path / "summary.json")
    if summary.get("schema") != SUMMARY_SCHEMA:
        raise RunFileError(f"{path / 'summary.json'}: schema is {summary.get('schema')!r}, must be {SUMMARY_SCHEMA}")
    _check_usable(path, summary)
    if (tier := config.get("tier", WALL_CLOCK)) not in (WALL_CLOCK, VIRTUAL):
        raise RunFileError(f"{path / 'config.json'}: tier is {tier!r}, must be {WALL_CLOCK} or {VIRTUAL}")
    rows = read_requests(path / "requests.csv")
    return Run(path, config, read_object(path / "manifest.json"), summary, rows)


def _check_usable(path: Path, summary: dict[str, Any]) -> None:
    status = summary.get("status")
    validity = summary.get("validity")
    if not isinstance(validity, dict):
        raise RunFileError(f"{path / 'summary.json'}: no validity")
    reasons = "; ".join(map(str, [*validity.get("reasons", []), *validity.get("notes", [])]))
    if status == "broken":
        raise BrokenRunError(f"{path}: the run is broken: {reasons}")
    if status != "complete":
        raise InvalidRunError(f"{path}: the run is {status}, not complete")
    if validity.get("verdict") != "VALID":
        raise InvalidRunError(f"{path}: the run is {validity.get('verdict')}: {reasons}")
