"""One report over many scenarios: how each controller did, and whether ``meet`` keeps what it promises."""

from collections.abc import Callable, Sequence
from statistics import fmean

from testbed.metrics import RequestRow

ScenarioRows = Sequence[tuple[str, Sequence[RequestRow]]]

# A load that never ended counts as long as it was let run.
_HEAD = (
    "| method | met SLO | violations | TTFT mean s | TTFT / SLO | KL | MB |\n"
    "| --- | ---: | ---: | ---: | ---: | ---: | ---: |\n"
)


def render_controllers(scenarios: ScenarioRows, timeout_s: float) -> str:
    """Return the report as Markdown.

    Parameters
    ----------
    scenarios : sequence of (name, rows)
        Rows of every method over the same requests.
    timeout_s : float
        What a request that was given up counts for in means of TTFT.
    """
    rows = [row for _, found in scenarios for row in found]
    methods = list(dict.fromkeys(row.method for row in rows))
    text = f"# Controllers over {len(scenarios)} scenarios\n\n{_HEAD}"
    for method in methods:
        text += _line(method, [row for row in rows if row.method == method], timeout_s)
    for adaptive in methods:
        if adaptive.partition(":")[0].endswith("-meet"):
            text += "\n" + _promises(adaptive, scenarios, timeout_s)
    return text


def _line(method: str, rows: Sequence[RequestRow], timeout_s: float) -> str:
    violations = sum(row.violation for row in rows)
    kls = [row.kl for row in rows if row.kl is not None]
    return (
        f"| {method} | {len(rows) - violations} of {len(rows)} | {violations / len(rows):.1%} "
        f"| {_mean_s(rows, timeout_s):.2f} | {fmean(_ttft_s(row, timeout_s) * 1e3 / row.slo_ms for row in rows):.2f} "
        f"| {fmean(kls) if kls else float('nan'):.4f} | {fmean(row.bytes for row in rows) / 1e6:.2f} |\n"
    )


def _promises(meet: str, scenarios: ScenarioRows, timeout_s: float) -> str:
    """What is promised of ``meet``, counted over the scenarios."""
    codec = meet.partition(":")[0].removesuffix("-meet")
    text = f"## {meet}\n\n"
    for name, rule in (
        (f"`{codec}` (the paper's rule)", lambda by: by.get(codec)),
        (f"`{codec}-oracle`", lambda by: by.get(f"{codec}-oracle")),
        ("`text`", lambda by: by.get("text")),
        ("the fixed level that violates least (the finest of those)", lambda by: best_fixed(by, codec)),
        ("the fastest fixed level of no worse KL", lambda by: fastest_of_no_worse_kl(by, codec, by[meet], timeout_s)),
        ("the fastest fixed level, whatever its KL", lambda by: fastest(by, codec, timeout_s)),
        ("the better of `text` and that", lambda by: better_of_text_and_fastest(by, codec, timeout_s)),
    ):
        text += _against(name, meet, rule, scenarios, timeout_s)
    return text


_Rule = Callable[[dict[str, list[RequestRow]]], list[RequestRow] | None]


def _against(name: str, meet: str, rule: _Rule, scenarios: ScenarioRows, timeout_s: float) -> str:
    ours: list[RequestRow] = []
    theirs: list[RequestRow] = []
    compared = 0
    for _, rows in scenarios:
        by_method = _by_method(rows)
        other = rule(by_method)
        if other:
            ours += by_method[meet]
            theirs += other
            compared += 1
    if not ours:
        return ""
    ratio = _mean_s(ours, timeout_s) / _mean_s(theirs, timeout_s)
    difference = fmean(row.violation for row in ours) - fmean(row.violation for row in theirs)
    return (
        f"- against {name}, {compared} scenarios: TTFT {ratio:.2f} times as long in the mean, violations "
        f"{100 * difference:+.1f} points, KL {_kl(ours):.4f} for {_kl(theirs):.4f}\n"
    )


def best_fixed(by_method: dict[str, list[RequestRow]], codec: str) -> list[RequestRow] | None:
    """Of the fixed levels of a codec, the one with the fewest violations; of equals, the finest."""
    fixed = _fixed(by_method, codec)
    return min(fixed, key=lambda rows: sum(row.violation for row in rows), default=None)


def fastest_of_no_worse_kl(
    by_method: dict[str, list[RequestRow]], codec: str, meet: list[RequestRow], timeout_s: float
) -> list[RequestRow] | None:
    """Of the fixed levels whose mean KL is at most that of ``meet``, the one with the least mean TTFT."""
    no_worse = [rows for rows in _fixed(by_method, codec) if _kl(rows) <= _kl(meet)]
    return min(no_worse, key=lambda rows: _mean_s(rows, timeout_s), default=None)


def fastest(by_method: dict[str, list[RequestRow]], codec: str, timeout_s: float) -> list[RequestRow] | None:
    """Of the fixed levels of a codec, the one with the least mean TTFT."""
    return min(_fixed(by_method, codec), key=lambda rows: _mean_s(rows, timeout_s), default=None)


def better_of_text_and_fastest(
    by_method: dict[str, list[RequestRow]], codec: str, timeout_s: float
) -> list[RequestRow] | None:
    """Of recomputing all and the fastest fixed level, the one with the lesser mean TTFT."""
    both = [rows for rows in (by_method.get("text"), fastest(by_method, codec, timeout_s)) if rows]
    return min(both, key=lambda rows: _mean_s(rows, timeout_s), default=None)


def _fixed(by_method: dict[str, list[RequestRow]], codec: str) -> list[list[RequestRow]]:
    """Rows of each fixed level, finest first."""
    names = [name for name in by_method if name.rpartition("-")[0] == codec and name.rpartition("-")[2].isdigit()]
    return [by_method[name] for name in sorted(names)]


def _by_method(rows: Sequence[RequestRow]) -> dict[str, list[RequestRow]]:
    found: dict[str, list[RequestRow]] = {}
    for row in rows:
        found.setdefault(row.method, []).append(row)
    return found


def _ttft_s(row: RequestRow, timeout_s: float) -> float:
    return timeout_s if row.ttft_ms is None else row.ttft_ms / 1e3


def _mean_s(rows: Sequence[RequestRow], timeout_s: float) -> float:
    return fmean(_ttft_s(row, timeout_s) for row in rows)


def _kl(rows: Sequence[RequestRow]) -> float:
    values = [row.kl for row in rows if row.kl is not None]
    return fmean(values) if values else float("inf")
