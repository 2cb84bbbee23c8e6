"""One paragraph for each method on why it met or missed the objective, out of its measured figures."""

from typing import Any

_STAGE_WORDS = {
    "queue": "queueing",
    "wait": "waiting for the store's answers",
    "fetch": "fetching",
    "decode": "decoding",
    "recompute": "recomputing",
    "question_prefill": "prefill of the question",
}
_RECOMPUTE = "recompute"
# Methods of its controller; others leave time to spare, or choose nothing.
_BY_THE_PAPERS_RULE = {"cachegen", "cachegen-repo", "transform"}
_LATE_BY_DESIGN = (
    "It fills the time up to the SLO with the finest level that the last chunk's throughput allows, so a chunk that "
    "comes slower than the one before makes it late."
)


def explain_method(name: str, figures: dict[str, Any], slo_ms: float) -> str:
    """Explain one entry of ``summary["methods"]``.

    Parameters
    ----------
    name : str
        Its key.
    figures : dict
        The entry.
    slo_ms : float
        The TTFT objective.
    """
    sentences = [_outcome(figures)]
    if figures["completed"]:
        sentences += [_largest_stages(figures), *_limits(figures, slo_ms)]
        if len(figures["levels"]) > 1:
            sentences.append(f"Its chunks: {_chunks(figures['levels'])}.")
            method = name.partition("@")[0]
            if figures["violations"] and method.rpartition("+")[2] in _BY_THE_PAPERS_RULE:
                sentences.append(_LATE_BY_DESIGN)
    return " ".join(sentences)


def _outcome(figures: dict[str, Any]) -> str:
    requests, violations = figures["requests"], figures["violations"]
    lost = requests - figures["completed"]
    if not violations:
        text = f"Met the SLO in all {requests} requests."
    elif violations == requests:
        text = f"Missed the SLO in all {requests} requests."
    else:
        text = f"Missed the SLO in {violations} of {requests} requests."
    return text + (f" {lost} of them came to no first token." if lost else "")


def _largest_stages(figures: dict[str, Any]) -> str:
    total_ms = figures["ttft_ms"]["mean"]
    largest = sorted(figures["stages_ms"].items(), key=lambda item: -item[1])[:2]
    parts = [
        f"{_STAGE_WORDS[name]} {_seconds(spent_ms)} ({spent_ms / total_ms:.0%})"
        for name, spent_ms in largest
        if spent_ms >= 0.05 * total_ms
    ]
    return f"Mean TTFT {_seconds(total_ms)}: {', '.join(parts)}."


def _limits(figures: dict[str, Any], slo_ms: float) -> list[str]:
    """Compare what the method needs with what link and processor give within the objective."""
    limits = []
    if any(name != _RECOMPUTE for name in figures["levels"]):
        link_mbps, size_bytes = figures["link_mbps_mean"], figures["bytes_mean"]
        carry_ms = 8e-3 * size_bytes / link_mbps
        limits.append(
            f"It moves {size_bytes / 1e6:.1f} MB a request, which takes {_seconds(carry_ms)} at the {link_mbps:.1f} "
            f"Mbit/s that the link had on average{_against(carry_ms, figures['ttft_ms']['mean'], slo_ms)}"
        )
    if set(figures["levels"]) == {_RECOMPUTE}:
        spent_ms = figures["stages_ms"][_RECOMPUTE]
        relation = "alone exceeds" if spent_ms > slo_ms else "fits into"
        limits.append(f"It moves no KV, and its prefill of {_seconds(spent_ms)} {relation} the SLO, whatever the link.")
    return limits


def _against(carry_ms: float, ttft_ms: float, slo_ms: float) -> str:
    if carry_ms > slo_ms:
        return ": more than the SLO, without anything else."
    return (
        f"; the other {_seconds(max(0.0, ttft_ms - carry_ms))} of its TTFT are headers, TCP's slow start, round trips, "
        "decoding, and the question."
    )


def _chunks(levels: dict[str, int]) -> str:
    return ", ".join(f"{count} × {name}" for name, count in levels.items())


def _seconds(milliseconds: float) -> str:
    return f"{milliseconds / 1e3:.2f} s"
