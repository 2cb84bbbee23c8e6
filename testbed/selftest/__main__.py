"""``python -m testbed.selftest``: how exact the emulated link is on this machine, and within which limits.

Exit status: 0 every demand is met, 2 the link cannot be built here, 3 a demand is missed.
"""

import argparse
import json
import os
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from cachegen import CachegenError, describe_environment
from testbed.arguments import ROOT
from testbed.errors import IsolationError
from testbed.isolation import can_isolate, interrupt_on_supervisor_exit, is_isolated, run_isolated
from testbed.ownership import give_back
from testbed.selftest.summary import words_on_time


def main() -> int:
    """Measure, print, write JSON; return the exit status."""
    options = _parse()
    try:
        if is_isolated():
            return _measure(options)
        if (refusal := can_isolate()) is not None:
            raise IsolationError(refusal)
        # that this is impossible is not to be found out after minutes of measuring
        options.json.parent.mkdir(parents=True, exist_ok=True)
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        status = run_isolated([sys.executable, "-P", "-m", "testbed.selftest", *sys.argv[1:]], environment)
        give_back([options.json.parent])
    except (CachegenError, OSError) as error:
        sys.stderr.write(f"testbed.selftest: {error}\n")
        return 2
    except KeyboardInterrupt:
        return 130
    return status


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="testbed.selftest", description="measure how exact the emulated link is on this machine"
    )
    parser.add_argument("--quick", action="store_true", help="a few cases, half a minute")
    parser.add_argument(
        "--json",
        type=Path,
        default=ROOT / "runs" / "selftest.json",
        metavar="FILE",
        help="(default: runs/selftest.json)",
    )
    return parser.parse_args()


def _measure(options: argparse.Namespace) -> int:
    """The measurements, inside the namespaces."""
    # mininet, which these need, is there only now
    from testbed.selftest.measures import all_measures, disturbed
    from testbed.selftest.summary import trusted_rates

    interrupt_on_supervisor_exit()
    lines = []
    for measure in all_measures(options.quick):
        line = measure()
        lines.append(line)
        sys.stdout.write(f"{'ok   ' if line.is_right else 'MISS '} {line.what:<36} {line.found}\n")
        sys.stdout.flush()
    figures = [line.figures for line in lines]
    summary = trusted_rates(figures)
    missed = [line.what for line in lines if not line.is_right]
    notes = disturbed(lines)
    _say(summary, figures, missed, notes)
    result = {
        **describe_environment(sys.argv, ("mininet",)),
        "verdict": "MISSED" if missed else "MET",
        "missed": missed,
        "notes": notes,
        "trusted": summary,
        "lines": [asdict(line) for line in lines],
    }
    options.json.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")
    return 3 if missed else 0


def _say(
    summary: Sequence[dict[str, Any]],
    figures: Sequence[dict[str, Any]],
    missed: Sequence[str],
    notes: Sequence[str],
) -> None:
    sys.stdout.write("\nOn this machine results can be trusted within these limits (1 % per 100 ms):\n")
    for trusted in summary:
        sys.stdout.write(f"  {trusted['flow']:<6} {trusted['words']}\n")
    sys.stdout.write(f"  {words_on_time(figures)}\n")
    for note in notes:
        sys.stdout.write(f"measured beside other work: {note}\n")
    sys.stdout.write(f"missed: {'; '.join(missed)}\n" if missed else "every demand is met\n")


if __name__ == "__main__":
    sys.exit(main())
