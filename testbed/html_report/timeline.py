"""A request's events as bars and moments on one time axis, from the arrival to the first token.

Events of kinds not known here are drawn too, by their name; a field that is missing or of another type is left out.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from testbed.metrics import RequestRow

# Times to the tenth of a millisecond, which is finer than a screen shows.
_TIME_DIGITS = 4
_LARGEST = 1e15
_NOTES = ("fault", "detail", "reason", "error")


def timeline(row: RequestRow, events: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the bars and moments of one request, by their start.

    Parameters
    ----------
    row : RequestRow
        The request, whose last stage, the question's prefill, ends with the first token.
    events : iterable of dict
        Its lines of ``events.jsonl``. Times are in seconds from the arrival.

    Returns
    -------
    list of dict
        ``kind``, ``start_s``, ``end_s`` (equal for a moment) and, where known, ``chunk``, ``level``, ``bytes``,
        ``note``, and for a decision ``deadline_s`` and ``estimate_mbps``.
    """
    marks = [mark for event in events if (mark := _mark(event)) is not None]
    marks += _question(row)
    return sorted(marks, key=lambda mark: (mark["start_s"], mark["end_s"]))


def _mark(event: Mapping[str, Any]) -> dict[str, Any] | None:
    at_s = _number(event, "t_s")
    end_s = _first(_number(event, "ended_s"), at_s, _number(event, "started_s"))
    if end_s is None:
        return None
    kind = str(event.get("event", "unknown"))
    # what comes first, the manifest and the tokens, is logged when it is there
    start_s = 0.0 if kind == "index" else _first(_number(event, "started_s"), end_s)
    assert start_s is not None
    mark: dict[str, Any] = {
        "kind": kind,
        "start_s": round(min(start_s, end_s), _TIME_DIGITS),
        "end_s": round(end_s, _TIME_DIGITS),
        "chunk": chunk if type(chunk := event.get("chunk")) is int else None,
        "level": _first(_text(event, "encoding"), _text(event, "action"), "recompute" if kind == "recompute" else None),
        "bytes": _number(event, "bytes"),
        "note": ": ".join(text for name in _NOTES if (text := _text(event, name))) or None,
        "deadline_s": _number(event, "deadline_s"),
        "estimate_mbps": None if (bps := _number(event, "throughput_bps")) is None else round(bps * 1e-6, 3),
    }
    return {name: value for name, value in mark.items() if value is not None}


def _question(row: RequestRow) -> list[dict[str, Any]]:
    if row.ttft_ms is None or "question_prefill" not in row.stages_ms:
        return []
    end_s = row.ttft_ms / 1e3
    start_s = max(0.0, end_s - row.stages_ms["question_prefill"] / 1e3)
    return [
        {"kind": "question_prefill", "start_s": round(start_s, _TIME_DIGITS), "end_s": round(end_s, _TIME_DIGITS)},
    ]


def _first(*values: Any) -> Any:
    return next((value for value in values if value is not None), None)


def _number(event: Mapping[str, Any], name: str) -> float | None:
    value: Any = event.get(name)
    # bounded, so that whatever JSON spells can be rounded and drawn
    return value if type(value) in (int, float) and abs(value) < _LARGEST else None


def _text(event: Mapping[str, Any], name: str) -> str | None:
    value = event.get(name)
    return value if isinstance(value, str) and value else None
