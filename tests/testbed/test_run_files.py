"""Run directories read back, and refused."""

import json
from dataclasses import replace

import pytest
from example_run import default_events, default_rows, link_rows, served, write_run

from cachegen import InvalidInputError
from testbed.run_files import read_run


def test_a_run_is_read_back_by_request_and_method(tmp_path):
    run = read_run(write_run(tmp_path))
    rows = default_rows()
    assert list(run.requests) == rows
    assert run.events[2, "quant8"] == default_events(replace(rows[5], request=2, method="quant8"))
    assert run.link[0, "cachegen"] == link_rows()


def test_requests_of_a_batch_share_the_account_of_its_link(tmp_path):
    rows = [served(request, "text", 1000.0, batch=request // 2) for request in range(3)]
    run = read_run(write_run(tmp_path, rows))
    assert ",0,text," in (run.path / "link.csv").read_text()
    assert dict(run.link) == {(request, "text"): link_rows() for request in range(3)}


def test_a_link_without_batches_belongs_to_requests(tmp_path):
    path = write_run(tmp_path)
    lines = [line.split(",") for line in (path / "link.csv").read_text().splitlines()]
    (path / "link.csv").write_text("".join(",".join([line[0], *line[2:]]) + "\n" for line in lines))
    assert read_run(path).link[2, "text"] == link_rows()


def test_a_run_without_events_and_samples_of_the_link_is_read(tmp_path):
    path = write_run(tmp_path)
    (path / "events.jsonl").unlink()
    (path / "link.csv").unlink()
    run = read_run(path)
    assert (run.events, run.link) == ({}, {})


def edited(path, name, old, new):
    text = (path / name).read_text()
    assert old in text
    (path / name).write_text(text.replace(old, new, 1))


@pytest.mark.parametrize(
    ("name", "old", "new", "message"),
    [
        ("summary.json", '"schema": 1', '"schema": 99', "schema is 99, this release reads 1"),
        ("summary.json", "{", "", "summary.json: not JSON"),
        ("config.json", '"seed": 7', '"seed": NaN', "NaN is no number of JSON"),
        ("manifest.json", "{", "[1] ", "manifest.json: not JSON"),
        ("events.jsonl", '{"type"', "x", "events.jsonl:1: not JSON"),
        ("events.jsonl", '"request": 0', '"request": "0"', "events.jsonl:1: request is '0'"),
        ("link.csv", "0,0,text", "0,x,text", "link.csv:2: no row of a link's account: .*'x'"),
        ("link.csv", "0.1,0.1", "0.1,soon", "link.csv:3: no row of a link's account"),
        ("link.csv", "0.1,0.1", "0.1,inf", "link.csv:3: no row of a link's account: .*no number"),
    ],
)
def test_a_damaged_file_is_named(tmp_path, name, old, new, message):
    path = write_run(tmp_path)
    edited(path, name, old, new)
    with pytest.raises(InvalidInputError, match=message):
        read_run(path)


def test_a_directory_that_is_no_run_and_a_run_without_requests_are_refused(tmp_path):
    with pytest.raises(InvalidInputError, match=r"summary\.json: .*No such file"):
        read_run(tmp_path)
    path = write_run(tmp_path)
    summary = json.loads((path / "summary.json").read_text())
    (path / "summary.json").write_text(json.dumps(summary | {"methods": {}}))
    with pytest.raises(InvalidInputError, match="no request was served"):
        read_run(path)
