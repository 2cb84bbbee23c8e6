"""Each format: recognised by content, the mean of its source, bad lines named."""

import gzip
import json
import re
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cachegen.errors import UnknownNameError
from testbed.errors import TraceError
from testbed.trace import load_trace
from testbed.traces.importers import IMPORTERS
from testbed.traces.reading import read_recording

# Formats that no content says: the user does.
TOLD_ALONE = {"puffer-cooked", "ms-mbps", "ms-kbps", "s-kbps"}

GNET = "Timestamp,Longitude,Latitude,Speed,NetworkMode,DL_bitrate,UL_bitrate,State\n"
FCC = (
    "unit_id,dtime,target,address,fetch_time,bytes_total,bytes_sec,bytes_sec_interval,warmup_time,warmup_bytes,"
    "sequence,threads,successes,failures\n"
)
WEBGET = "unit_id,dtime,target,address,fetch_time,bytes_total,bytes_sec,objects,threads,requests,connections\n"
PUFFER = (
    "time (ns GMT),session_id,index,expt_id,channel,video_ts,format,size,ssim_index,cwnd,in_flight,min_rtt,rtt,"
    "delivery_rate\n"
)
AUTOBAHN = "timestamp_start_dl,timestamp_end_dl,download,timestamp_start_ul,timestamp_end_ul,upload\n"
LUMOS = "run_num,seq_num,abstractSignalStr,latitude,nrStatus,Throughput,mobility_mode\n"


def fcc_row(unit, time, span_us, total_bytes, sequence, bytes_sec=None):
    if bytes_sec is None:
        bytes_sec = round(1e6 * total_bytes / span_us) if span_us else 0
    rates = f"{bytes_sec},{bytes_sec}"
    return f"{unit},{time},target.net,1.2.3.4,{span_us},{total_bytes},{rates},5000000,1000,{sequence},3,1,0\n"


def puffer_row(time_ns, session, rate_bytes):
    return f"{time_ns},{session},1,7,cbs,0,1280x720,10000,0.98,40,3,20000,25000,{rate_bytes}\n"


def autobahn_row(begin, end, mbps):
    return f"2024-04-19 {begin},2024-04-19 {end},{mbps},2024-04-19 {begin},2024-04-19 {end},9.5\n"


# Text of a file, its format, its length in s and its mean in Mbit/s, both worked out by hand.
FILES = {
    # 4 + 1 packets in 200 ms
    "mahimahi": ("0\n0\n50\n50\n200\n", "mahimahi", 0.2, 5 * 12000 / 0.2 / 1e6),
    "mahimahi, constant": ("1\n", "mahimahi", 1.0, 12.0),
    "pensieve": ("0.0\t4.0\n0.5\t2.0\n2.0\t1.0\n", "pensieve", 3.5, (2 + 3 + 1.5) / 3.5),
    "pensieve, late beginning": ("180.0 1.5\n185.0 0.5\n", "pensieve", 10.0, 1.0),
    "pensieve, whole bytes as bits": ("0.0\t2.026656\n5.0\t1.849256\n", "pensieve", 10.0, 1.937956),
    "lumos5g, 5G": ("1.0\t91.0\n2.0\t123.0\n3.0\t0.0\n", "lumos5g", 3.0, 214 / 3),
    "lumos5g, 4G": ("0 45.0\n1 47.0\n", "lumos5g", 2.0, 46.0),
    "lumos5g-csv": (LUMOS + "1,1,3,44.9,CONNECTED,900,walking\n1,2,3,44.9,NONE,30,driving\n", "lumos5g-csv", 2, 465.0),
    "sabre": (
        json.dumps([{"duration_ms": 500, "bandwidth_kbps": 8000, "latency_ms": 20}] * 2
                   + [{"duration_ms": 2000, "bandwidth_kbps": 500, "latency_ms": 20}]),
        "sabre", 3.0, (8 + 1) / 3,
    ),
    "norway-hsdpa": (
        "1289406399 549692 59.85 10.78 250000 1000\n1289406400 551692 59.85 10.78 100000 2000\n",
        "norway-hsdpa", 3.0, 350000 * 8 / 3 / 1e6,
    ),
    "ghent-lte": (
        "1453121790686 39287 51.03 3.73 2493100 1000\n1453121791685 40286 51.03 3.73 2763504 0999\n",
        "ghent-lte", 1.999, (2493100 + 2763504) * 8 / 1.999 / 1e6,
    ),
    "g-nettrack": (
        GNET + "2019.12.14_10.16.30,-8.3,51.9,0,5G,9000,1,D\n2019.12.14_10.16.31,-8.3,51.9,0,5G,-,1,D\n"
        "2019.12.14_10.16.31,-8.3,51.9,0,5G,3000,1,D\n2019.12.14_10.16.33,-8.3,51.9,0,LTE,0,1,D\n"
        "2019.12.14_10.16.34,-8.3,51.9,0,LTE,70000,1,I\n",
        "g-nettrack", 3.0, 4.0,
    ),
    # two stretches of one test, then another test: 5 + 5 + 2 s, 10 + 6 + 1 MB
    "fcc-mba": (
        FCC + fcc_row(7, "2015-09-01 00:02:19", 5_000_000, 10_000_000, 0)
        + fcc_row(7, "2015-09-01 00:02:19", 10_000_000, 16_000_000, 1)
        + fcc_row(7, "2015-09-01 01:02:19", 2_000_000, 1_000_000, 0),
        "fcc-mba", 12.0, 17 * 8 / 12,
    ),
    "fcc-mba, no header": (
        fcc_row(7, "2013-09-01 00:02:19", 5_000_000, 10_000_000, 0)
        + fcc_row(7, "2013-09-01 00:02:19", 10_000_000, 16_000_000, 1),
        "fcc-mba", 10.0, 12.8,
    ),
    "fcc-mba, page loads": (
        WEBGET + "7,2015-09-01 00:02:19,a.com,1.2.3.4,500000,500000,1000000,9,8,9,3\n"
        "7,2015-09-01 00:03:19,a.com,1.2.3.4,1500000,500000,333333,9,8,9,3\n",
        "fcc-mba", 2.0, 4.0,
    ),
    "puffer": (
        PUFFER + puffer_row(1572865200000000000, "abc=", 1_000_000) + puffer_row(1572865202000000000, "abc=", 250_000)
        + puffer_row(1572865203000000000, "abc=", 500_000),
        "puffer", 4.0, (2 * 8 + 2 + 4) / 4,
    ),
    # 8 s in which nothing was measured are no part of it
    "starlink-autobahn": (
        AUTOBAHN + autobahn_row("16:23:00.001039872", "16:23:01.001039872", 100.0)
        + autobahn_row("16:23:01.001039872", "16:23:02.001039872", 0.0)
        + autobahn_row("16:23:10.001039872", "16:23:12.001039872", 25.0),
        "starlink-autobahn", 4.0, 37.5,
    ),
    "starlink-iperf": (
        "time,throughput_mbps,retrans,cwnd_kb\n2024-05-27T11:18:46.964511,2.5,0,13\n2024-05-27T11:18:47.464511,9.5,0,13\n",
        "starlink-iperf", 1.0, 6.0,
    ),
    "csv": ("time_s,rate_mbps\n0,8\n1,16\n", "csv", 2.0, 12.0),
}  # fmt: skip

BAD_LINES = {
    "mahimahi, back in time": ("1\n5\n4\n", "line 3: the stamp 4 ms comes after 5 ms"),
    "mahimahi, not whole": ("1\n" * 30 + "2.5\n", "line 31: '2.5' is not a whole number of milliseconds"),
    "mahimahi, no length": ("0\n0\n", "the last stamp is 0 ms"),
    "mahimahi, no end": ("999999999999\n", "s is too long"),
    "pensieve, back in time": ("0.0 1\n1.5 2\n1.0 3\n", "line 3: the stamp 1 s does not come after 1.5 s"),
    "pensieve, same stamp": ("0.0 1\n1.5 2\n1.5 3\n", "line 3: the stamp 1.5 s does not come after 1.5 s"),
    "pensieve, negative": ("0.0 1\n1.5 -2\n", "line 2, rate: -2 is negative"),
    "pensieve, NaN": ("0.0 1\n1.5 nan\n", "line 2, rate: nan is not a finite number"),
    "pensieve, short line": ("0.0 1\n" + "".join(f"{i}.5 2\n" for i in range(30)) + "99.5\n", "line 32: 1 values"),
    "pensieve, bit/s": ("0.5 2500000\n1.5 2000000\n", "line 1: 2.5e.06 Mbit/s is above 100000: is the unit right"),
    "pensieve, only zeros": ("0.5 0\n1.5 0\n", "every rate is 0"),
    "sabre, no bandwidth": ('[{"duration_ms": 5}]', r"entry 1: must have duration_ms and bandwidth_kbps, is '\{"),
    "sabre, a word": ('[{"duration_ms": 5, "bandwidth_kbps": "x"}]', "entry 1, bandwidth_kbps: 'x' is not a number"),
    "sabre, NaN": ('[{"duration_ms": 5, "bandwidth_kbps": NaN}]', "entry 1, bandwidth_kbps: NaN is not a finite"),
    "sabre, no time": ('[{"duration_ms": 0, "bandwidth_kbps": 1}]', "entry 1, duration_ms: must be above 0"),
    "sabre, some latencies": (
        '[{"duration_ms": 5, "bandwidth_kbps": 1}, {"duration_ms": 5, "bandwidth_kbps": 1, "latency_ms": 4}]',
        "some entries have latency_ms",
    ),
    "sabre, broken": ('[{"duration_ms": 5,', "not JSON"),
    "sabre, deep": ("[" * 100_000, "not JSON"),
    "sabre, empty": ("[]", "nothing that could be replayed"),
    "norway, back in time": ("1 5000 1 1 9 1000\n2 4000 1 1 9 1000\n", "line 2, monotonic ms: 4000 comes after 5000"),
    "norway, no time": ("1 5000 1 1 9 1000\n2 5000 1 1 9 0\n", "line 2, ms since the last row: must be above 0"),
    "norway, spans in s": (
        "".join(f"{i} {5000 + 1000 * i} 1 1 9000 1\n" for i in range(3)),
        "3 ms since the last row in all, but 2001 by the monotonic clock: is the last column in ms",
    ),
    "ghent, a word": ("1453121790686 1 1 1 9 1000\n" * 25 + "1453121790687 2 1 1 x 1000\n", "line 26, bytes: 'x'"),
    "g-nettrack, back in time": (
        GNET + "2019.12.14_10.16.31,1,1,0,5G,9,1,D\n2019.12.14_10.16.30,1,1,0,5G,9,1,D\n",
        "line 3, Timestamp: 2019.12.14_10.16.30 comes after 2019.12.14_10.16.31",
    ),
    "g-nettrack, a date": (GNET + "14.12.2019,1,1,0,5G,9,1,D\n", "line 2, Timestamp: '14.12.2019' is not a stamp"),
    "g-nettrack, a word": (GNET + "2019.12.14_10.16.31,1,1,0,5G,fast,1,D\n", "line 2, DL_bitrate: 'fast' is not"),
    "g-nettrack, idle": (GNET + "2019.12.14_10.16.31,1,1,0,5G,9,1,I\n", "no row has State D"),
    "g-nettrack, cut": (GNET + "2019.12.14_10.16.31,1,1,0\n", "line 2: 4 values for the 8 columns"),
    "fcc, less": (
        FCC + fcc_row(7, "2015-09-01 00:02:19", 9_000, 900, 0) + fcc_row(7, "2015-09-01 00:02:19", 10_000, 800, 1),
        "line 3: counts less than the row before it",
    ),
    "fcc, fetch_time in ms": (
        FCC + fcc_row(7, "2015-09-01 00:02:19", 5_000, 10_000_000, 0, 2_000_000),
        "line 2, bytes_sec: 2000000 bytes/s, but bytes_total / fetch_time makes 2000000000: are they bytes and micro",
    ),
    "fcc, bits": (
        FCC + fcc_row(7, "2015-09-01 00:02:19", 5_000_000, 80_000_000, 0, 2_000_000),
        "line 2, bytes_sec: 2000000 bytes/s, but bytes_total / fetch_time makes 16000000",
    ),
    "fcc, nothing per second": (FCC + fcc_row(7, "2015-09-01 00:02:19", 9, 900, 0, 0), "line 2, bytes_sec: 0 bytes/s"),
    "fcc, no rate": (FCC + fcc_row(7, "2015-09-01 00:02:19", 9, 900, 0, "x"), "line 2, bytes_sec: 'x' is not a number"),
    "puffer, two": (PUFFER + puffer_row(1, "a", 9) + puffer_row(2, "b", 9), "2 links, told apart by session_id: a, b"),
    "puffer, same stamp": (PUFFER + puffer_row(1, "a", 9) + puffer_row(1, "a", 8), "line 3: the stamp 0 s does not"),
    "puffer, a stamp": (PUFFER + puffer_row("1.5", "a", 9), r"line 2, time \(ns GMT\): '1.5' is not a whole number"),
    "starlink, backwards": (AUTOBAHN + autobahn_row("16:23:02.5", "16:23:01.5", 1), "line 2, timestamp_end_dl: the"),
    "starlink, overlap": (
        AUTOBAHN + autobahn_row("16:23:01.5", "16:23:02.5", 1) + autobahn_row("16:23:02.0", "16:23:03.0", 1),
        "line 3, timestamp_start_dl: the stretch begins before",
    ),
    "starlink, no value": (AUTOBAHN + autobahn_row("16:23:01.5", "16:23:02.5", ""), "line 2, download: '' is not a"),
    "starlink, no date": (
        "time,throughput_mbps\nyesterday,1\n",
        "line 2, time: 'yesterday' is not a date and time",
    ),
    "unknown header": ("time,bandwidth\n0,1\n", "line 1: 'time,bandwidth' begins no known format: csv, mahimahi,"),
    "released bw.jsonl": ('{"bw": [1.5, 2.5]}\n', "begins no known format"),
    "empty": ("", "the file is empty"),
    "blank": ("\n \n", "the file is empty"),
}


def read(text, **flags):
    data = text if isinstance(text, bytes) else text.encode()
    return read_recording(data, Path("file"), **flags)


def mean_mbps(recording):
    ends_s = (*recording.times_s[1:], recording.period_s)
    rows = zip(recording.times_s, ends_s, recording.rates_mbps, strict=True)
    return sum((end_s - start_s) * rate for start_s, end_s, rate in rows) / recording.period_s


@pytest.mark.parametrize("case", FILES)
def test_a_file_is_recognised_and_keeps_its_length_and_its_mean(case):
    text, name, period_s, mean = FILES[case]
    found, recording = read(text)

    assert found == name
    assert recording.times_s[0] == 0
    assert recording.period_s == pytest.approx(period_s)
    assert mean_mbps(recording) == pytest.approx(mean, rel=1e-9)


def test_every_importer_has_a_file_here():
    assert {name for _, name, _, _ in FILES.values()} == set(IMPORTERS) - TOLD_ALONE


@pytest.mark.parametrize("case", FILES)
def test_windows_line_ends_a_byte_order_mark_and_gzip_change_nothing(case):
    text = FILES[case][0]
    packed = gzip.compress(b"\xef\xbb\xbf" + text.replace("\n", "\r\n").encode())

    assert read(packed) == read(text)


@pytest.mark.parametrize("case", BAD_LINES)
def test_a_bad_file_is_refused_with_its_place_and_its_value(case):
    text, message = BAD_LINES[case]

    with pytest.raises(TraceError, match=f"^trace file.*{message}"):
        read(text)


def test_values_that_may_be_bytes_are_refused_until_the_format_is_named():
    cooked = "0.0\t0.308749\n0.505000114441\t0.397481\n0.973000049591\t0.397481\n"

    with pytest.raises(
        TraceError, match=r"units differ.*--format pensieve \(.*Mbit/s.*--format puffer-cooked \(.*MByte"
    ):
        read(cooked)
    (_, as_bits), (_, as_bytes) = (read(cooked, format_name=name) for name in ("pensieve", "puffer-cooked"))
    assert mean_mbps(as_bytes) == pytest.approx(8 * mean_mbps(as_bits))


@pytest.mark.parametrize(
    ("text", "choices"),
    {
        "ms and kbit/s": ("0 4500\n1000 3200\n", {"pensieve", "ms-mbps", "ms-kbps", "s-kbps"}),
        "ms and few kbit/s": ("0 300\n1000 320\n2000 0\n", {"pensieve", "ms-mbps", "ms-kbps"}),
        "ms since 1970": ("1453121790686 4.5\n1453121791686 3.2\n", {"pensieve", "ms-mbps", "ms-kbps"}),
        "one row at a ms since 1970": ("1453121790686 4.5\n", {"pensieve", "ms-mbps", "ms-kbps"}),
        "ms with decimals": ("0.0\t4.5\n99.8\t3.2\n200.3\t3.2\n", {"pensieve", "ms-mbps", "ms-kbps"}),
        "kbit/s": ("0.0 1285\n1.013 1693\n2.021 130000\n", {"pensieve", "s-kbps"}),
        "kbit/s each second": ("0 1285\n1 2693\n2 1812\n", {"lumos5g", "s-kbps"}),
        "kbit/s late in the file": ("".join(f"{i}.5 3.5\n" for i in range(50)) + "51.5 900\n", {"pensieve", "s-kbps"}),
    }.values(),
)
def test_two_columns_that_may_be_ms_or_kbps_are_refused_until_the_format_is_named(text, choices):
    with pytest.raises(TraceError, match=r"units differ.*--trace-format of testbed/run\.py") as refused:
        read(text)

    assert set(re.findall(r"--format (\S+) \(", str(refused.value))) == choices


def test_two_columns_are_read_in_the_units_that_are_named():
    text = "5000 4500\n5500 0\n6000 3000\n"
    lengths_and_means = {
        name: (recording.period_s, mean_mbps(recording))
        for name in ("pensieve", "ms-mbps", "ms-kbps", "s-kbps")
        for _, recording in [read(text, format_name=name)]
    }

    assert lengths_and_means == {
        "pensieve": (1500.0, pytest.approx(2500)),
        "ms-mbps": (1.5, pytest.approx(2500)),
        "ms-kbps": (1.5, pytest.approx(2.5)),
        "s-kbps": (1500.0, pytest.approx(2.5)),
    }


def test_one_of_several_links_is_read_by_its_name():
    text = FCC + fcc_row(7, "2015-09-01 00:02:19", 5_000_000, 10, 0) + fcc_row(8, "2015-09-01 00:02:19", 8, 1000, 0)

    with pytest.raises(TraceError, match=r"2 links, told apart by unit_id: 7, 8; choose one with --series UNIT_ID"):
        read(text)
    with pytest.raises(TraceError, match="none of them is '9'"):
        read(text, series="9")
    assert mean_mbps(read(text, series="8")[1]) == pytest.approx(1000)


def test_a_rate_of_fcc_a_little_off_its_counts_is_noted_and_the_counts_are_replayed():
    first = fcc_row(7, "2015-09-01 00:02:19", 5_000_000, 10_000_000, 0, 2_100_000)
    second = fcc_row(7, "2015-09-01 01:02:19", 3_000_000, 10_000_000, 0)
    failed = fcc_row(7, "2015-09-01 02:02:19", 0, 0, 0) + fcc_row(7, "2015-09-01 03:02:19", 2_000_000, 0, 0)
    recording = read(FCC + first + second + failed)[1]

    assert mean_mbps(recording) == pytest.approx(16)
    assert recording.rates_mbps[-1] == 0
    assert recording.notes[-1] == (
        "rows whose bytes_sec is more than 1% off bytes_total / fetch_time, which is what is replayed: 1, "
        "the farthest by 5%"
    )
    assert not any("bytes_sec" in note for note in read(FCC + second)[1].notes)


def test_a_series_of_a_format_that_has_none_is_refused():
    with pytest.raises(TraceError, match="format mahimahi holds one link, there is no series '3'"):
        read("1\n", series="3")


def test_an_unknown_format_lists_the_known_ones():
    with pytest.raises(UnknownNameError, match="no trace format 'pcap'; known: csv, mahimahi"):
        read("1\n", format_name="pcap")


def test_a_format_named_against_the_content_is_refused_by_line():
    with pytest.raises(TraceError, match=r"line 1: '0.0\\t4.0' is not a whole number"):
        read("0.0\t4.0\n", format_name="mahimahi")
    with pytest.raises(TraceError, match="line 1: there is no column 'delivery_rate'"):
        read("time (ns GMT),session_id\n5,a\n", format_name="puffer")


def test_latency_of_sabre_is_a_round_trip():
    assert read(FILES["sabre"][0])[1].delays_ms == (10.0, 10.0, 10.0)


def test_what_is_left_out_is_said():
    assert read(FILES["g-nettrack"][0])[1].notes == (
        "rows left out, of another State than D (downloading): 1",
        "rows left out, without a DL_bitrate: 1",
    )
    assert read(FILES["starlink-autobahn"][0])[1].notes == ("8.000 s in which nothing was measured are left out",)
    gap = "1 5000 1 1 9 1000\n9 12000 1 1 9 1000\n"
    assert read(gap)[1].notes == ("6 s in which nothing was measured are left out",)


@pytest.mark.parametrize("header", [GNET, FCC, WEBGET, PUFFER, AUTOBAHN, LUMOS, "time,throughput_mbps\n"])
def test_a_header_without_rows_is_refused(header):
    with pytest.raises(TraceError, match=r"nothing that could be replayed|no row has State D"):
        read(header)


def test_rows_of_a_speed_test_out_of_order_are_refused_and_a_missing_one_is_bridged():
    start = "2016-09-01 10:00:00"
    first, second, third = (
        fcc_row(77, start, span_us, total_bytes, sequence)
        for sequence, (span_us, total_bytes) in enumerate([(5_000_000, 5e6), (10_000_000, 2e7), (15_000_000, 3e7)])
    )
    assert read(FCC + first + third)[1].period_s == pytest.approx(15.0)
    for rows, places in ((first + third + second, "1 comes after 2"), (first + second + second, "1 comes after 1")):
        with pytest.raises(TraceError, match=f"line 4, sequence: {places} of the same test"):
            read(FCC + rows)


def test_rows_of_g_nettrack_that_are_not_a_second_each_are_told():
    row = "2019.12.14_10.{}.00,-8.4,51.9,0,5G,8000,1,D\n"
    assert read(GNET + row.format(16) + row.format(17))[1].notes == (
        "the stamps reach over 61 s, but there are 2 rows, each taken for a second",
    )
    assert read(GNET + row.format(16) + row.format(16).replace("8000", ""))[1].notes[0].startswith("rows left out")


def test_time_that_two_rows_of_a_byte_log_cover_is_told():
    assert read("1 5000 1 1 9 1000\n1 5000 1 1 9 1000\n")[1].notes == (
        "1 s are in two rows each: the clock went on by less than they say",
    )


def test_stamps_with_a_zone_are_read_and_equal_ones_shown_to_the_last_digit():
    head, row = "time,throughput_mbps\n", "2024-05-27T11:18:46{},2.0\n"
    zones = read(head + row.format("Z") + row.format(".5+00:00") + row.format(".75+00:00"))
    assert zones[1].times_s == pytest.approx((0.0, 0.5, 0.75))
    with pytest.raises(TraceError, match=r"line 3: the stamp 770123926.5 s does not come after 770123926.75 s"):
        read(head + row.format(".75") + row.format(".5"))


def test_digits_of_another_script_are_refused():
    with pytest.raises(TraceError, match="line 2, rate: ١ is not a finite number"):
        read("0.5\t1\n1.5\t١\n", format_name="pensieve")


def test_outages_stay_zero():
    packets = "".join(f"{ms}\n" for ms in [*range(1, 1001), *range(2001, 3001)])

    assert read(packets)[1].rates_mbps == pytest.approx([12.0] * 10 + [0.0] * 10 + [12.0] * 10)


@settings(max_examples=600, deadline=None)
@given(st.sampled_from(sorted(FILES)), st.data())
def test_a_damaged_file_is_read_or_refused_and_never_anything_else(case, data):
    text = FILES[case][0]
    at = data.draw(st.integers(0, len(text)))
    cut = data.draw(st.integers(0, 8))
    junk = data.draw(st.text('0123456789.,-+eE_ \t\n"[]{}:NaInf\x00\ufeffé', max_size=8))
    try:
        _, recording = read(text[:at] + junk + text[at + cut :])
    except TraceError:
        return

    assert 0 < mean_mbps(recording) <= 100_000
    assert recording.period_s > recording.times_s[-1]


def test_a_file_of_any_format_is_loaded_by_its_path_alone(tmp_path):
    path = tmp_path / "drive.down"
    path.write_text("1\n")
    trace = load_trace(path)

    assert (trace.name, trace.rates_mbps, trace.period_s) == ("drive.down", (12.0,), 1.0)
