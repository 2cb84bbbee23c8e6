"""A run's directory: made anew, never overwritten, readable at any moment of the run."""

import csv
import fcntl
import json
import os
import shutil
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from cachegen import InvalidInputError
from testbed.metrics import RequestRow
from testbed.request_table import COLUMNS, csv_cells
from testbed.trace import Trace
from testbed.traces.recording import Recording
from testbed.traces.writing import recording_csv, write_new
from testbed.whole_file import replacing

TRACE_COPY = "trace.csv"
_STORE = "store"


class RunDir:
    """Creates the directory and writes its files.

    Parameters
    ----------
    parent : Path
        Where the runs are. Stores that killed runs left there are removed.
    label : str
        Part of the name, which also has the UTC time and, where that is taken, a number.
    """

    def __init__(self, parent: Path, label: str) -> None:
        self.path = _make_directory(parent, label)
        for folder in parent.glob(f"*/{_STORE}"):
            _remove_if_abandoned(folder)
        self.store = self.path / _STORE
        self.store.mkdir()
        # within the folder that is locked and removed, and no object of the store
        self.near_store = self.store / ".near"
        self.cross_traffic = self.path / "cross_traffic.jsonl"
        # held by this process alone: when it is gone, by whatever end, the store is anybody's to remove
        self._store_lock = os.open(self.store, os.O_RDONLY)
        fcntl.flock(self._store_lock, fcntl.LOCK_EX)

    def publish(self) -> None:
        """Let ``latest``, beside the run directory, point to it."""
        scratch = self.path.parent / f".latest-{os.getpid()}-{self.path.name}"
        scratch.symlink_to(self.path.name)
        scratch.replace(self.path.parent / "latest")

    def remove_store(self) -> None:
        """Remove the stored contexts: they can be made again, and they are large."""
        shutil.rmtree(self.store, ignore_errors=True)

    def remove(self) -> None:
        """Remove the whole directory, as if the run had never begun."""
        shutil.rmtree(self.path, ignore_errors=True)

    def write_json(self, name: str, content: Mapping[str, Any]) -> None:
        """Write one of the JSON files; readers see the old one or the new one, never a part."""
        text = json.dumps(content, indent=2, allow_nan=False) + "\n"
        with replacing(self.path / name) as scratch:
            scratch.write_text(text, encoding="utf-8")

    def write_trace(self, trace: Trace) -> None:
        """Write what the link was to do, as a trace file of the project's own."""
        recording = Recording(trace.times_s, trace.rates_mbps, trace.delays_ms, trace.period_s)
        write_new(self.path / TRACE_COPY, recording_csv(recording), overwrite=True)

    def add_event(self, event: Mapping[str, Any]) -> None:
        """Append a line to ``events.jsonl``."""
        with (self.path / "events.jsonl").open("a", encoding="utf-8") as file:
            file.write(json.dumps(event, allow_nan=False) + "\n")

    def add_request(self, row: RequestRow) -> None:
        """Append a row to ``requests.csv``; nested fields get the path they have in ``summary.json``."""
        self._append_rows("requests.csv", COLUMNS, [csv_cells(row)])

    def add_link_rows(self, rows: Iterable[Mapping[str, Any]]) -> None:
        """Append rows to ``link.csv``; all have the same columns."""
        listed = list(rows)
        if listed:
            self._append_rows("link.csv", tuple(listed[0]), listed)

    def _append_rows(self, name: str, columns: tuple[str, ...], rows: Iterable[Mapping[str, Any]]) -> None:
        path = self.path / name
        is_new = not path.exists()
        with path.open("a", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, columns)
            if is_new:
                writer.writeheader()
            writer.writerows(rows)


def _remove_if_abandoned(store: Path) -> None:
    """Remove a store whose run is gone; one in use is locked."""
    try:
        lock = os.open(store, os.O_RDONLY)
    except OSError:  # removed meanwhile, or another user's
        return
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        shutil.rmtree(store, ignore_errors=True)
    except BlockingIOError:
        pass
    finally:
        os.close(lock)


def _make_directory(parent: Path, label: str) -> Path:
    try:
        parent.mkdir(parents=True, exist_ok=True)
        return _first_free(parent, label)
    except OSError as error:
        raise InvalidInputError(f"no run directory can be made in {parent}: {error.strerror}") from error


def _first_free(parent: Path, label: str) -> Path:
    stem = f"{datetime.now(UTC):%Y%m%dT%H%M%SZ}-{label}"
    number = 1
    while True:
        path = parent / (stem if number == 1 else f"{stem}-{number}")
        try:
            path.mkdir()
        except FileExistsError:
            number += 1
        else:
            return path
