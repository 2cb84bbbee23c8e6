"""The readable results of a run as Markdown: ``report.md``."""

from typing import Any

from testbed.explain import explain_method
from testbed.result_table import REFERENCE, TTFTS, method_table, result_table, violation_columns, violations_note

_STAGES = {
    "queue": "queue",
    "wait": "wait",
    "fetch": "fetch",
    "decode": "decode",
    "recompute": "recompute",
    "question_prefill": "question prefill",
}


def render_markdown(summary: dict[str, Any], manifest: dict[str, Any], config: dict[str, Any]) -> str:
    """Write ``report.md``.

    Parameters
    ----------
    summary, manifest, config : dict
        Of the run's JSON files.
    """
    parts = [
        f"# TTFT over the {summary['trace']} trace",
        _verdict(summary),
        _setting(summary, manifest, config),
        _markdown_table(*result_table(summary)),
        "TTFT from the scheduled arrival to the first sampled token. MB: received over the link per request. KL "
        "(nats), agreement and Δ perplexity: next-token predictions over the text that follows the context, against "
        "the uncompressed KV cache. Means are over requests that came to a first token; the violation rate is over "
        "all. In brackets, here and below: 95 % intervals.",
        *_scores(summary),
        "![TTFT of each request by method](ttft.svg)",
        "## Why",
        *(
            f"- **{name}**: {explain_method(name, figures, summary['slo']['ttft_ms'])}"
            for name, figures in summary["methods"].items()
        ),
        "## Violations and goodput",
        _markdown_table(*method_table(summary, violation_columns(summary))),
        violations_note(summary),
        "## TTFT with its intervals",
        _markdown_table(*method_table(summary, TTFTS)),
        "A bound that so few requests do not give is a dash, and an interval without any is left out.",
        "## Where the time went (mean ms; the stages sum to TTFT)",
        _stage_table(summary),
        "An instant counts as what the computing side was busy with; `fetch` and `wait` are the network time that no "
        "computation hid.",
        "## Levels (chunks by how they came)",
        _level_table(summary),
        "## Can the link be trusted?",
        _link(summary, manifest),
        "## Provenance",
        _provenance(manifest),
    ]
    return "\n\n".join(parts).replace("\n\n- **", "\n- **").replace("## Why\n- ", "## Why\n\n- ") + "\n"


def _verdict(summary: dict[str, Any]) -> str:
    validity = summary["validity"]
    text = f"**{validity['verdict']}**"
    if found := validity["reasons"] + validity["notes"]:
        text += ": " + "; ".join(found)
    if summary["status"] != "complete":
        text += f" — **partial result**: the run was {summary['status']}"
    return text


def _scores(summary: dict[str, Any]) -> list[str]:
    names = sorted({name for figures in summary["methods"].values() for name in figures.get("scores", [])})
    if not names:
        return []
    return [
        f"Score: mean over the answers ({', '.join(names)}; 0 to 1), each of at most 32 tokens, chosen greedily. "
        f"The row of the {REFERENCE} says what this model can do at all."
    ]


def _setting(summary: dict[str, Any], manifest: dict[str, Any], config: dict[str, Any]) -> str:
    return (
        f"SLO: TTFT of {summary['slo']['ttft_ms'] / 1e3:g} s. Model {_model(summary, manifest)}. "
        f"{_contexts(manifest, config)} in chunks of {config['chunk_tokens']}; "
        f"one-way delay {config['delay_ms']:g} ms unless the trace has its own. Each request starts at its own "
        "place in the trace, the same for every method."
    )


def _model(summary: dict[str, Any], manifest: dict[str, Any]) -> str:
    # no model runs in a virtual run: it has its costs alone
    model = manifest.get("inference", {}).get("model")
    return f"{summary['model']} ({model['dtype']} on {model['device']})" if model else str(summary["model"])


def _contexts(manifest: dict[str, Any], config: dict[str, Any]) -> str:
    contexts = manifest.get("inference", {}).get("contexts")
    if not contexts:
        return f"Contexts of {config['context_tokens']} tokens"
    lengths = sorted(context["tokens"] for context in contexts)
    tokens = f"{lengths[0]}" if lengths[0] == lengths[-1] else f"{lengths[0]} to {lengths[-1]}"
    return f"{len(contexts)} context{'s'[: len(contexts) != 1]} of {tokens} tokens"


def _stage_table(summary: dict[str, Any]) -> str:
    rows = [
        [
            name,
            *(_number(figures["stages_ms"][stage], 1, 1) for stage in _STAGES),
            _number(figures["ttft_ms"]["mean"], 1, 1),
        ]
        for name, figures in summary["methods"].items()
    ]
    return _markdown_table(["method", *_STAGES.values(), "TTFT"], rows)


def _level_table(summary: dict[str, Any]) -> str:
    names = sorted({level for figures in summary["methods"].values() for level in figures["levels"]})
    rows = [
        [name, *(str(figures["levels"].get(level, 0)) for level in names)]
        for name, figures in summary["methods"].items()
    ]
    return _markdown_table(["method", *names], rows)


def _link(summary: dict[str, Any], manifest: dict[str, Any]) -> str:
    link, network = summary["link"], manifest.get("network")
    if not link or not network:
        return "No link was measured."
    lacks = ", ".join(network["kernel_lacks"]) or "nothing that a link needs"
    error = (
        "the link was never busy for long enough to compare bytes with the trace"
        if link["rate_error_mean"] is None
        else f"over {link['busy_seconds']} seconds in which the link was busy, delivered bytes differed from the trace "
        f"by {link['rate_error_mean']:.2%} a second on average, {link['rate_error_p95']:.2%} at the 95th percentile, "
        f"{link['rate_error_max']:.2%} at most"
    )
    return (
        f"Measured on this run's own traffic: {error}. Round trip {link['rtt_ms']:.2f} ms against "
        f"{network['planned_rtt_ms']:g} ms planned. Delay by {network['backend']}; the kernel lacks: {lacks}."
    )


def _provenance(manifest: dict[str, Any]) -> str:
    return " ".join(
        [
            *_origin(manifest),
            "Settings: `config.json`; versions, hashes and link settings read back: `manifest.json`; every request: "
            "`requests.csv` and `requests.parquet`; every decision: `events.jsonl`; the link by 100 ms: `link.csv`; "
            "charts, and each request on a time axis: `report.html`.",
        ]
    )


def _origin(manifest: dict[str, Any]) -> list[str]:
    """Code, moment and machine of a run, or the costs of a virtual one, which has neither."""
    facts = []
    if git := manifest.get("git"):
        commit = git["commit"] or "no git"
        facts.append(f"Commit {commit}{' with uncommitted changes' if git['dirty'] else ''}, {manifest['started_utc']}")
    if host := manifest.get("host"):
        facts.append(f"{host['cpu']}, {host['cores']} cores, Linux {host['kernel']}, Python {manifest['python']}")
    if costs := manifest.get("costs"):
        facts.append(f"Costs of computing from `{costs['file']}` (SHA-256 {costs['sha256']})")
    return [f"{', '.join(facts)}."] if facts else []


def _markdown_table(headings: list[str], rows: list[list[str]]) -> str:
    lines = [headings, ["---", *["---:"] * (len(headings) - 1)], *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _number(value: float | None, factor: float, digits: int) -> str:
    return "–" if value is None else f"{value * factor:.{digits}f}"
