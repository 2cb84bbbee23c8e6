"""The requests of a run as a table: ``requests.csv``, written line by line, and ``requests.parquet``, at the end."""

import csv
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from testbed.metrics import STAGES, RequestRow
from testbed.whole_file import replacing

if TYPE_CHECKING:
    import pyarrow as pa

# Every field of the table in order, by kind; both files have these and no others.
_FIELDS = {
    "request": "count",
    "method": "text",
    "context": "text",
    "trace_offset_s": "number",
    "status": "text",
    "slo_ms": "number",
    "violation": "flag",
    "ttft_ms": "number",
    "stages_ms": "stages",
    "bytes": "count",
    "near_bytes": "count",
    "wasted_bytes": "count",
    "kl": "number",
    "agreement": "number",
    "dppl": "number",
    "score": "number",
    "reference_score": "number",
    "score_name": "text",
    "answer": "text",
    "levels": "levels",
    "link_mbps": "number",
    "error": "text",
    "oracle_ttft_ms": "number",
    "batch": "count",
    "sharing": "text",
    "arrival_s": "number",
    "ended_s": "number",
}
COLUMNS = tuple(
    column
    for name, kind in _FIELDS.items()
    for column in ([f"{name}.{stage}" for stage in STAGES] if kind == "stages" else [name])
)


def csv_cells(row: RequestRow) -> dict[str, Any]:
    """Cells of ``COLUMNS``; nested fields get the path they have in ``summary.json``."""
    cells = {name: getattr(row, name) for name in COLUMNS if hasattr(row, name)}
    cells |= {f"stages_ms.{stage}": spent_ms for stage, spent_ms in row.stages_ms.items()}
    return cells | {"violation": int(row.violation), "levels": json.dumps(row.levels)}


def write_csv(path: Path, rows: Sequence[RequestRow]) -> None:
    """Write a whole ``requests.csv``."""
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, COLUMNS)
        writer.writeheader()
        writer.writerows(map(csv_cells, rows))


def write_parquet(path: Path, rows: Sequence[RequestRow], facts: Mapping[str, Mapping[str, Any]]) -> None:
    """Write ``requests.parquet``, whole or not at all: the columns of the CSV file, nested fields nested.

    Parameters
    ----------
    path : Path
        Of the new file.
    rows : sequence of RequestRow
        In the order of the CSV file.
    facts : mapping
        Name to content of the run's JSON files, for the metadata of the table: the file then stands by itself.
    """
    import pyarrow.parquet as pq  # here, as a run needs it at its end alone

    metadata = {name: json.dumps(content) for name, content in facts.items()}
    with replacing(path) as scratch:
        pq.write_table(_to_arrow(rows).replace_schema_metadata(metadata), scratch)


def _to_arrow(rows: Sequence[RequestRow]) -> "pa.Table":
    import pyarrow as pa

    types = {
        "count": pa.int64(),
        "number": pa.float64(),
        "text": pa.string(),
        "flag": pa.bool_(),
        "stages": pa.struct([(stage, pa.float64()) for stage in STAGES]),
        "levels": pa.map_(pa.string(), pa.int64()),
    }
    columns: dict[str, list[Any]] = {name: [getattr(row, name) for row in rows] for name in _FIELDS}
    # a request without a first token has no stages, which is not the same as stages of no length
    columns["stages_ms"] = [row.stages_ms or None for row in rows]
    columns["levels"] = [list(row.levels.items()) for row in rows]
    return pa.table(columns, schema=pa.schema([(name, types[kind]) for name, kind in _FIELDS.items()]))
