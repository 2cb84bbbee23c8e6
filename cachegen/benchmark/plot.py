"""The picture of a benchmark: harm over size, one line a codec."""

from __future__ import annotations

import io
from typing import Any

import matplotlib as mpl
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure

from cachegen.benchmark.result_file import points_by_codec

# colour-blind safe; the markers tell lines apart in grey
_COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000", "#999999")
_MARKERS = "osD^vP*X"


def rate_distortion_svg(result: dict[str, Any]) -> bytes:
    """SVG of KL, on a logarithmic axis, over bits per element; lossless encodings have no KL and no place in it."""
    # the text stays text, and the same figures make the same file
    with mpl.rc_context({"svg.fonttype": "none", "svg.hashsalt": "rate-distortion"}):
        figure = Figure(figsize=(8, 5), layout="constrained")
        FigureCanvasSVG(figure)
        axes = figure.add_subplot()
        for place, (codec, line) in enumerate(_lines(result)):
            axes.plot(
                *zip(*line, strict=True),
                label=codec,
                color=_COLOURS[place % len(_COLOURS)],
                marker=_MARKERS[place % len(_MARKERS)],
                markersize=6,
                linewidth=1.6,
            )
        axes.set_yscale("log")
        axes.set_xlim(left=0)
        axes.set_xlabel("bits per element of the KV cache, everything counted (fp16 has 16)")
        axes.set_ylabel("KL of the next-token distribution, nats")
        axes.set_title(
            f"{result['model']}, {result['tokens']} tokens in chunks of {result['chunk_tokens']}", fontsize=10
        )
        axes.grid(visible=True, which="major", linewidth=0.4)
        figure.legend(loc="outside right upper", frameon=False)
        for side in ("top", "right"):
            axes.spines[side].set_visible(False)
        buffer = io.BytesIO()
        figure.savefig(buffer, format="svg", metadata={"Date": None})
    return buffer.getvalue()


def _lines(result: dict[str, Any]) -> list[tuple[str, list[tuple[float, float]]]]:
    """Name, and bits and KL of the levels by size, of each codec that has something to draw."""
    lines = (
        (codec, sorted((point.bits, point.kl) for point in points if point.kl > 0))
        for codec, points in points_by_codec(result).items()
    )
    return [(codec, line) for codec, line in lines if line]
