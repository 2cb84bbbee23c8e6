"""``python -m testbed.traces``: what it prints, writes and refuses."""

import json
import subprocess
import sys

import pytest

from testbed.trace import TRACES_DIR, load_trace, trace_names
from testbed.traces.__main__ import main
from testbed.traces.importers import IMPORTERS


@pytest.fixture
def traces(capsys):
    """Run a command; gives exit status, standard output and standard error."""

    def run(*arguments):
        status = main([str(argument) for argument in arguments])
        shown = capsys.readouterr()
        return status, shown.out, shown.err

    return run


def test_list_names_every_trace_with_its_mean_and_every_format(traces):
    status, shown, _ = traces("list")
    first_words = [line.split()[0] for line in shown.splitlines() if line.strip()]

    assert status == 0
    assert set(trace_names()) | set(IMPORTERS) <= set(first_words)
    assert any(line.split()[:2] == ["lte", "20.92"] for line in shown.splitlines())


def test_show_explains_a_shipped_trace_and_draws_it(traces):
    status, shown, _ = traces("show", "starlink")

    assert status == 0
    for fact in ("300 s in 600 rows", "215.4 Mbit/s", "p95", "3.5 s at rate 0", "one way", "later: 0.77", "█"):
        assert fact in shown


def test_show_reads_a_file_of_any_format_and_says_which(traces, tmp_path):
    (tmp_path / "fast").write_text("1\n")

    assert "format mahimahi" in traces("show", tmp_path / "fast")[1]


@pytest.mark.parametrize(("flag", "magic"), [("--png", b"\x89PNG"), ("--svg", b"<?xml")])
def test_show_writes_a_picture(traces, tmp_path, flag, magic):
    status, shown, _ = traces("show", "3g", flag, tmp_path / "picture")

    assert status == 0
    assert "picture:" in shown
    assert "█" not in shown
    assert (tmp_path / "picture").read_bytes().startswith(magic)


def test_import_writes_a_trace_that_is_the_same_link(traces, tmp_path):
    (tmp_path / "m").write_text("".join(f"{ms}\n" for ms in range(1, 1235, 3)))
    status, shown, _ = traces("import", tmp_path / "m", "-o", tmp_path / "m.csv")
    direct, written = load_trace(tmp_path / "m"), load_trace(tmp_path / "m.csv")

    assert status == 0
    assert "from mahimahi" in shown
    assert written.rates_mbps == pytest.approx(direct.rates_mbps)
    assert written.period_s == pytest.approx(direct.period_s)


def test_import_says_what_it_took_the_file_for(traces, tmp_path):
    stretches = ({"duration_ms": 500, "bandwidth_kbps": 9000}, {"duration_ms": 1000, "bandwidth_kbps": 0})
    entries = json.dumps([stretch | {"latency_ms": 4} for stretch in stretches])
    (tmp_path / "log.json").write_text(entries)
    _, shown, _ = traces("import", tmp_path / "log.json", "-o", tmp_path / "log.csv")

    assert shown.splitlines() == [
        f"{tmp_path}/log.csv: 2 rows, from sabre",
        "trace log: format sabre, mean 3 Mbit/s (0 to 9), 1.5 s",
        "  the delay is half of latency_ms, which is a round trip",
    ]


def test_import_takes_the_format_where_the_content_does_not_say_it(traces, tmp_path):
    (tmp_path / "cooked").write_text("0.0\t0.308749\n0.505\t0.397481\n")
    refused = traces("import", tmp_path / "cooked", "-o", tmp_path / "c.csv")

    assert (refused[0], refused[1]) == (2, "")
    assert refused[2].startswith("testbed.traces import: trace ")
    assert not (tmp_path / "c.csv").exists()
    assert traces("import", tmp_path / "cooked", "--format", "puffer-cooked", "-o", tmp_path / "c.csv")[0] == 0
    assert load_trace(tmp_path / "c.csv").rates_mbps == pytest.approx((8 * 0.308749, 8 * 0.397481))


def test_import_overwrites_only_when_told(traces, tmp_path):
    (tmp_path / "m").write_text("1\n")
    (tmp_path / "m.csv").write_text("mine")

    assert traces("import", tmp_path / "m", "-o", tmp_path / "m.csv")[0] == 2
    assert (tmp_path / "m.csv").read_text() == "mine"
    assert traces("import", tmp_path / "m", "-o", tmp_path / "m.csv", "--overwrite")[0] == 0


def test_synth_makes_the_shipped_file_again_as_a_program_of_its_own(tmp_path):
    command = [sys.executable, "-m", "testbed.traces", "synth", "lte", "-o", str(tmp_path / "lte.csv")]
    subprocess.run(command, cwd=TRACES_DIR.parent, check=True, capture_output=True)

    assert (tmp_path / "lte.csv").read_bytes() == (TRACES_DIR / "lte.csv").read_bytes()


def test_synth_takes_seed_length_and_scale(traces, tmp_path):
    flags = ("--seed", 9, "--duration", 30, "--scale", 2)
    status, shown, _ = traces("synth", "paper", *flags, "-o", tmp_path / "p.csv")
    trace = load_trace(tmp_path / "p.csv")

    assert status == 0
    assert "seed 9, 30 s, scale 2" in shown
    assert trace.period_s == 30
    assert max(trace.rates_mbps) > 100


def test_what_cannot_be_done_is_refused_with_status_2(traces, tmp_path):
    status, shown, error = traces("show", "nope")

    assert (status, shown) == (2, "")
    assert "testbed.traces show: no trace named 'nope'; known: 3g, 5g-mmwave" in error
    assert traces("show", tmp_path)[0] == 2
    assert traces("synth", "lte", "--duration", "-1", "-o", tmp_path / "x.csv")[0] == 2
    with pytest.raises(SystemExit) as stopped:
        main(["synth", "nope", "-o", "x.csv"])
    assert stopped.value.code == 2


@pytest.mark.parametrize("arguments", ["list", "show lte"])
def test_a_reader_that_has_seen_enough_ends_the_program_quietly(arguments):
    command = f"{sys.executable} -m testbed.traces {arguments} | true; exit ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", command], cwd=TRACES_DIR.parent, capture_output=True, text=True, check=False)

    assert (done.returncode, done.stderr) in ((130, ""), (0, ""))
