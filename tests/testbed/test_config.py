"""Settings: defaults, validation, paths."""

import dataclasses
import json

import pytest

from cachegen import InvalidInputError, UnknownNameError
from testbed.arguments import parse_arguments
from testbed.config import RunConfig, make_config
from testbed.errors import TraceError
from testbed.link_settings import Way


def config(*flags):
    return make_config(parse_arguments(flags))


def test_the_default_run_compares_text_quantization_and_the_paper():
    assert config().methods == ("text", "quant8", "quant4", "cachegen", "cachegen-meet")
    assert config().trace == "lte"
    assert config().num_contexts >= 4


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--slo-ms", "0"], "slo_ms must be a positive number, not 0.0"),
        (["--slo-ms", "nan"], "slo_ms must be a positive number, not nan"),
        (["--delay-ms", "-1"], "delay_ms must be from 0 to 1000, not -1.0"),
        (["--requests", "0"], "requests must be at least 1, not 0"),
        (["--chunk-tokens", "1"], "chunk_tokens must be at least 2, not 1"),
        (["--queue-bytes", "100"], "queue_bytes must be from 3028 to"),
        (["--jitter-ms", "30"], r"jitter_ms must be from 0 to 20 \(20 is the delay\), not 30.0"),
        (["--loss", "40%"], "loss must be from 0 to 0.3, not 0.4"),
        (["--queue-discipline", "red"], "queue_discipline must be one of bfifo, codel, fq_codel, not 'red'"),
        (["--methods", "text,text"], "methods must be distinct names"),
        (["--sharing", "equal,equal"], "sharing must be distinct names"),
        (["--sharing", "luck"], "no sharing 'luck'; there are equal, deadline"),
        (["--estimator", "best"], "no throughput estimator 'best'; there are last-chunk, harmonic-mean, two-speed"),
        (["--arrivals", "burst:none"], "arrivals burst:none: the number of requests"),
        (["--arrivals", "trace:/nowhere/log.csv"], "/nowhere/log.csv"),
    ],
)
def test_a_bad_value_is_refused_by_name(flags, message):
    with pytest.raises(InvalidInputError, match=message):
        config(*flags)


def test_an_unknown_method_is_refused_with_those_there_are():
    with pytest.raises(
        UnknownNameError, match=r"no method 'gzip'; there are text, cachegen, cachegen-repo, transform, .*raw"
    ):
        config("--methods", "text,gzip")


def test_files_become_absolute_and_names_stay(tmp_path, monkeypatch):
    (tmp_path / "mine.csv").write_text("time_s,rate_mbps\n0,10\n")
    monkeypatch.chdir(tmp_path)
    assert config("--trace", "mine.csv").trace == str(tmp_path / "mine.csv")
    (tmp_path / "lte").mkdir()
    assert config("--trace", "lte").trace == "lte"


def test_a_recording_may_need_its_format_and_its_link_named(tmp_path):
    (tmp_path / "cooked").write_text("0.0\t0.308749\n0.505\t0.397481\n")
    (tmp_path / "runs.csv").write_text("run_num,seq_num,Throughput\n1,1,900\n2,1,30\n")
    cooked, runs = ("--trace", str(tmp_path / "cooked")), ("--trace", str(tmp_path / "runs.csv"))

    with pytest.raises(TraceError, match=r"--trace-format of testbed/run\.py.*--format puffer-cooked"):
        config(*cooked)
    with pytest.raises(TraceError, match="choose one with --series RUN_NUM"):
        config(*runs)
    with pytest.raises(UnknownNameError, match="no trace format 'pcap'; known: csv, mahimahi"):
        config(*cooked, "--trace-format", "pcap")
    named, picked = config(*cooked, "--trace-format", "puffer-cooked"), config(*runs, "--series", "2")

    assert (named.to_json()["trace_format"], picked.to_json()["trace_series"]) == ("puffer-cooked", "2")
    assert named.load_trace().rates_mbps == pytest.approx((8 * 0.308749, 8 * 0.397481))
    assert picked.load_trace().rates_mbps == (30.0,)


def test_settings_of_a_release_without_them_are_read():
    later = {"trace_format", "trace_series", "estimator"}
    settings = {name: value for name, value in config().to_json().items() if name not in later}

    assert RunConfig.from_json(settings) == config()


def test_the_flags_of_the_link_become_its_settings():
    down = config("--loss", "1%", "--loss-burst", "4", "--jitter-ms", "2")
    up = config("--loss", "0.02", "--uplink-loss", "0", "--uplink-mbps", "5", "--uplink-delay-ms", "7")

    assert (down.link.down, down.link.up) == (Way(20.0, 2.0, 0.01, 4.0), Way(20.0, 2.0, 0.01, 4.0))
    assert (up.link.down, up.link.up) == (Way(20.0, 0.0, 0.02), Way(7.0))
    assert up.link.uplink_mbps == 5.0


def test_an_estimator_for_all_methods_is_written_down():
    assert config().to_json()["estimator"] is None
    assert config("--estimator", "harmonic-mean").to_json()["estimator"] == "harmonic-mean"


def test_settings_can_be_written_down_and_read_back():
    assert RunConfig.from_json(json.loads(json.dumps(config().to_json()))) == config()
    with pytest.raises(dataclasses.FrozenInstanceError):
        config().seed = 3


def test_every_method_is_run_under_every_sharing_and_says_so_where_there_are_several():
    one, both = config("--methods", "text,raw"), config("--methods", "text,raw", "--sharing", "equal,deadline")
    assert [variant.label for variant in one.variants] == ["text", "raw"]
    assert [variant.label for variant in both.variants] == ["text@equal", "text@deadline", "raw@equal", "raw@deadline"]
    assert [variant.sharing for variant in both.variants] == ["equal", "deadline"] * 2
    assert not one.admission
    assert config("--admission").admission
