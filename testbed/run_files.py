"""Read a run directory back: all that a report is made from, checked where it enters."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cachegen import InvalidInputError
from testbed.link_account import LinkRow
from testbed.link_file import ReplayOwner, read_link_rows
from testbed.metrics import SUMMARY_SCHEMA, RequestRow
from testbed.request_rows import read_requests
from testbed.run_text import parse_object, read_object, read_text

# One serving of a request: its number, and the method.
ServingKey = tuple[int, str]


@dataclass(frozen=True, kw_only=True)
class RunFiles:
    """What the files of one run say.

    Parameters
    ----------
    path : Path
        The run directory.
    config, manifest, summary : dict
        Of the JSON files of those names.
    requests : tuple of RequestRow
        Every issued request under every method, in the order of serving.
    events : mapping
        Serving to its lines of ``events.jsonl``, in order; empty where the file is missing.
    link : mapping
        Serving to the rows of ``link.csv`` of its batch, which all requests of the batch share; times are from the
        batch's beginning. Empty where the file is missing.
    """

    path: Path
    config: dict[str, Any]
    manifest: dict[str, Any]
    summary: dict[str, Any]
    requests: tuple[RequestRow, ...]
    events: Mapping[ServingKey, list[dict[str, Any]]]
    link: Mapping[ServingKey, list[LinkRow]]


def read_run(path: Path) -> RunFiles:
    """Read a run directory.

    Raises
    ------
    InvalidInputError
        It is none, the run has not ended or served nothing, or a file is damaged; the text names file and line.
    """
    summary = read_object(path / "summary.json")
    if summary.get("schema") != SUMMARY_SCHEMA:
        raise InvalidInputError(
            f"{path / 'summary.json'}: schema is {summary.get('schema')!r}, this release reads {SUMMARY_SCHEMA}"
        )
    if not summary.get("methods"):
        raise InvalidInputError(f"{path}: no request was served, so there is nothing to report")
    requests = read_requests(path / "requests.csv")
    return RunFiles(
        path=path,
        config=read_object(path / "config.json"),
        manifest=read_object(path / "manifest.json"),
        summary=summary,
        requests=requests,
        events=_read_events(path / "events.jsonl"),
        link=_read_link(path / "link.csv", requests),
    )


def _read_events(path: Path) -> dict[ServingKey, list[dict[str, Any]]]:
    found: dict[ServingKey, list[dict[str, Any]]] = defaultdict(list)
    if path.exists():
        # not splitlines(): JSON text may hold the other line ends of Unicode as they are
        for number, line in enumerate(read_text(path).split("\n"), start=1):
            if line.strip():
                event = parse_object(line, f"{path}:{number}")
                found[(_field(event, "request", f"{path}:{number}"), str(event.get("method")))].append(event)
    return dict(found)


def _field(event: Mapping[str, Any], name: str, place: str) -> int:
    value = event.get(name)
    if type(value) is not int:
        raise InvalidInputError(f"{place}: {name} is {value!r}, which is no number of a request")
    return value


def _read_link(path: Path, requests: Sequence[RequestRow]) -> dict[ServingKey, list[LinkRow]]:
    if not path.exists():
        return {}
    found: dict[ReplayOwner, list[LinkRow]] = defaultdict(list)
    for owner, row in read_link_rows(path):
        found[owner].append(row)
    link = {}
    for served in requests:
        owners = [
            ReplayOwner(kind, number, served.method)
            for kind, number in (("batch", served.batch), ("request", served.request))
        ]
        if rows := next((found[owner] for owner in owners if owner in found), None):
            link[served.request, served.method] = rows
    return link
