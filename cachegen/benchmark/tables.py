"""The tables of a benchmark's result, for the terminal and for the page alike."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from cachegen.encoding import Encoding

_MEGA = 1e6
_UNKNOWN = "–"


@dataclass(frozen=True)
class TextTable:
    """A table of ready cells."""

    title: str
    headings: Sequence[str]
    rows: Sequence[Sequence[str]]


def encoding_table(result: dict[str, Any]) -> TextTable:
    """Every encoding: size, harm, seconds, rates in 16-bit megabytes of the cache a second, memory."""
    fp16_mb = 2 * result["elements"] / _MEGA
    headings = (
        *("encoding", "bytes", "bits/element", "x fp16", "KL", "agreement", "perplexity"),
        *("encode s", "MB/s", "decode s", "MB/s", "prefill/decode", "peak MB"),
    )
    rows = [
        (
            str(Encoding(row["codec"], row["level"])),
            f"{row['bytes']:,}",
            f"{row['bits_per_element']:.3f}",
            f"{row['ratio_fp16']:.2f}",
            *_harm(row),
            f"{row['encode_s']:.3f}",
            f"{fp16_mb / row['encode_s']:.0f}",
            f"{row['decode_s']:.3f}",
            f"{fp16_mb / row['decode_s']:.0f}",
            f"{row['prefill_s'] / row['decode_s']:.1f}",
            _UNKNOWN if row["peak_bytes"] is None else f"{row['peak_bytes'] / _MEGA:.1f}",
        )
        for row in result["rows"]
    ]
    return TextTable("Encodings", headings, rows)


def comparison_tables(result: dict[str, Any]) -> list[TextTable]:
    """What else one could do with the same data; no table of entropy coders where there was nothing to code."""
    found = result["comparisons"]
    lossless = [
        (f"zstd on {row['input']}", f"{row['bytes']:,}", f"{row['bits_per_element']:.3f}", *_seconds(row))
        for row in found["lossless"]
    ]
    casts = [
        (
            row["cast"],
            f"{row['bits_per_element']:.3f}",
            *_harm(row),
            *_seconds(row),
        )
        for row in found["casts"]
    ]
    tables = [
        TextTable("General compression", ("input", "bytes", "bits/element", "encode s", "decode s"), lossless),
        TextTable("Casts", ("cast", "bits/element", "KL", "agreement", "perplexity", "encode s", "decode s"), casts),
    ]
    return [*tables, _coder_table(found["coders"])] if found.get("coders") else tables


def missing_figures(result: dict[str, Any]) -> Iterator[str]:
    """A sentence for each figure that is not there, in the form of Markdown."""
    for refused in result["refused"]:
        yield f"`{Encoding(refused['codec'], refused['level'])}` was not measured: {refused['reason']}"
    rows = [(str(Encoding(row["codec"], row["level"])), row) for row in result["rows"]]
    for name, row in (*rows, *((row["cast"], row) for row in result["comparisons"]["casts"])):
        for field, reason in row.get("reasons", {}).items():
            yield f"`{name}` has no `{field}`: {reason}"


def _coder_table(rows: list[dict[str, Any]]) -> TextTable:
    ours = rows[0]
    cells = [
        (
            row["coder"],
            f"{row['bits_per_symbol']:.4f}",
            f"{row['encode_symbols_s'] / _MEGA:.1f}",
            f"{row['decode_symbols_s'] / _MEGA:.1f}",
            f"{ours['decode_symbols_s'] / row['decode_symbols_s']:.1f}",
        )
        for row in rows
    ]
    headings = ("coder", "bits/symbol", "encode M symbols/s", "decode M symbols/s", "ours decodes x as fast")
    return TextTable(f"Entropy coders, {ours['symbols']:,} symbols, one core", headings, cells)


def _harm(row: dict[str, Any]) -> tuple[str, str, str]:
    kl, dppl = row["kl"], row["dppl"]
    return (
        _UNKNOWN if kl is None else f"{kl:.5f}",
        f"{row['agreement']:.3f}",
        _UNKNOWN if dppl is None else f"{dppl:+.3f}",
    )


def _seconds(row: dict[str, Any]) -> tuple[str, str]:
    return f"{row['encode_s']:.3f}", f"{row['decode_s']:.3f}"
