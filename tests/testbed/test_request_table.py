"""The table of requests, as CSV and as Parquet."""

import csv
from dataclasses import fields

import pyarrow.parquet as pq
import pytest
from example_run import HOSTILE, default_rows, failed, served

from cachegen import InvalidInputError
from testbed.metrics import STAGES, RequestRow
from testbed.request_rows import read_requests
from testbed.request_table import write_parquet
from testbed.run_dir import RunDir


def write_csv(tmp_path, rows):
    run = RunDir(tmp_path, "lte")
    for row in rows:
        run.add_request(row)
    return run.path / "requests.csv"


def test_the_rows_come_back_as_they_were_written(tmp_path):
    rows = [*default_rows(), failed(9, "text", f"line one\r\nline two, {HOSTILE}", status="timed_out")]
    assert read_requests(write_csv(tmp_path, rows)) == tuple(rows)


def test_columns_of_later_releases_are_left_alone(tmp_path):
    path = write_csv(tmp_path, [served(0, "text", 1000.0)])
    heading, line = path.read_text().splitlines()
    path.write_text(f"new,{heading}\n1,{line}\n")
    assert read_requests(path) == (served(0, "text", 1000.0),)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (",ok,", ",ok,,", "ttft_ms must be a finite number above 0"),
        (",1500.0,", ",soon,", "requests.csv:2: slo_ms must be a finite number above 0, not 'soon'"),
        (",1500.0,", ",nan,", "slo_ms must be a finite number above 0, not 'nan'"),
        ('"{""text"": 3}"', '"[1]"', "levels must be a JSON object of counts"),
        ("ttft_ms,", "", "no column ttft_ms"),
    ],
)
def test_a_damaged_cell_is_named(tmp_path, old, new, message):
    path = write_csv(tmp_path, [served(0, "text", 1000.0)])
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))
    with pytest.raises(InvalidInputError, match=message):
        read_requests(path)


def test_a_row_that_is_cut_off_is_refused_and_a_byte_order_mark_is_not(tmp_path):
    path = write_csv(tmp_path, [served(0, "text", 1000.0), served(1, "text", 1000.0)])
    content = path.read_bytes()
    path.write_bytes(b"\xef\xbb\xbf" + content)
    assert len(read_requests(path)) == 2
    path.write_bytes(content[: content.rindex(b"{")])
    with pytest.raises(InvalidInputError, match=r"requests\.csv:3: a damaged row"):
        read_requests(path)


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(InvalidInputError, match=r"requests\.csv: cannot be read: No such file"):
        read_requests(tmp_path / "requests.csv")


def test_parquet_has_the_columns_of_the_csv_with_their_types_and_the_run_beside_them(tmp_path):
    answered = {
        "score": 0.5,
        "reference_score": 1.0,
        "score_name": "f1",
        "answer": "Paris",
        "near_bytes": 7,
        "wasted_bytes": 5,
    }
    served_so = {"oracle_ttft_ms": 800.0, "batch": 3, "sharing": "deadline", "arrival_s": 0.25, "ended_s": 1.25}
    rows = [*default_rows(), served(3, "text", 1000.0, **answered, **served_so)]
    write_parquet(tmp_path / "requests.parquet", rows, {"config": {"seed": 7}})
    table = pq.read_table(tmp_path / "requests.parquet")

    assert table.schema.metadata[b"config"] == b'{"seed": 7}'
    names = {field.name for field in fields(RequestRow)}
    for found, row in zip(table.to_pylist(), rows, strict=True):
        assert found["violation"] is row.violation
        assert dict(found["levels"]) == row.levels
        assert (found["stages_ms"] or {}) == row.stages_ms
        for name in names - {"levels", "stages_ms"}:
            assert found[name] == getattr(row, name)
    assert [field.name for field in table.schema.field("stages_ms").type] == list(STAGES)
    with write_csv(tmp_path, rows).open(newline="") as file:
        heading = next(csv.reader(file))
    assert table.column_names == list(dict.fromkeys(name.partition(".")[0] for name in heading))
    assert set(table.column_names) == names | {"violation"}


def test_a_parquet_file_that_cannot_be_written_leaves_nothing(tmp_path):
    (tmp_path / "requests.parquet").mkdir()
    with pytest.raises(OSError, match="directory"):
        write_parquet(tmp_path / "requests.parquet", default_rows(), {})
    assert list(tmp_path.iterdir()) == [tmp_path / "requests.parquet"]
