"""Command line: ``python -m testbed.compare BASE NEW``."""

import argparse
import json
import os
import re
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from cachegen import CachegenError
from testbed.compare import junit, markdown
from testbed.compare.comparison import Comparison, compare_runs
from testbed.compare.document import refusal_document, to_document
from testbed.compare.measures import Margins
from testbed.compare.rules import Verdict
from testbed.compare.runs import read_runs
from testbed.errors import BrokenRunError, InvalidRunError

EXIT_FINE, EXIT_REGRESSED, EXIT_REFUSED, EXIT_INVALID, EXIT_INCONCLUSIVE, EXIT_BROKEN = range(6)

_EPILOG = """\
exit status: 0 nothing that --fail-on names, 1 regressed, 2 usage or runs that cannot be compared, 3 an invalid run,
4 inconclusive (with --fail-on inconclusive), 5 a broken run, or a report that cannot be written.
"""


def parse_arguments(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """Parse the flags; ``--help`` and errors end the program as usual, the latter with status 2."""
    parser = argparse.ArgumentParser(
        prog="python -m testbed.compare",
        description="Say for each scenario and method whether NEW regressed against BASE, by paired statistics over "
        "run directories of the same requests.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("base", type=Path, metavar="BASE", help="run directory, or a folder of them")
    parser.add_argument("new", type=Path, metavar="NEW", help="the same, of the change")
    for side in ("base", "new"):
        parser.add_argument(
            f"--{side}",
            action="append",
            default=[],
            type=Path,
            dest=f"more_{side}",
            metavar="DIR",
            help=f"more runs of {side.upper()}; may be repeated",
        )
    rules = parser.add_argument_group("rules")
    rules.add_argument(
        "--margin", type=_unit("pp"), default=0.02, metavar="2pp", help="smallest change of violation rate"
    )
    rules.add_argument("--ttft-margin", type=_unit("%"), default=0.05, metavar="5%", help="smallest change of TTFT")
    rules.add_argument(
        "--agreement-margin", type=_unit("pp"), default=0.01, metavar="1pp", help="smallest change of agreement"
    )
    rules.add_argument("--fail-on", choices=("regressed", "inconclusive", "never"), default="regressed")
    output = parser.add_argument_group("output, beside Markdown on standard output")
    for name in ("markdown", "junit", "json"):
        output.add_argument(f"--{name}", type=Path, metavar="FILE")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> int:
    """Compare, write the reports, return the exit status."""
    options = parse_arguments(arguments)
    try:
        margins = Margins(options.margin, options.ttft_margin, options.agreement_margin)
        base, new = read_runs([options.base, *options.more_base]), read_runs([options.new, *options.more_new])
        comparison = compare_runs(base, new, margins)
    except CachegenError as error:
        sys.stderr.write(f"compare: {error}\n")
        status = _refusal_status(error)
        texts = _refusal(str(error), status)
    else:
        status = _exit_status(comparison, options.fail_on)
        texts = {
            "markdown": markdown.render_markdown(comparison),
            "junit": junit.render_junit(comparison),
            "json": _json(to_document(comparison, status)),
        }
        _print(texts["markdown"])
    return _write(options, texts) or status


def _unit(unit: str) -> Callable[[str], float]:
    def parse(text: str) -> float:
        found = re.fullmatch(rf"(\d+(?:\.\d+)?) ?{re.escape(unit)}", text)
        if found is None or not 0 < float(found[1]) < 100:
            raise argparse.ArgumentTypeError(
                f"{text!r} is not a number above 0 and below 100 with its unit: write 2{unit} or '2 {unit}'"
            )
        return float(found[1]) / 100

    return parse


def _exit_status(comparison: Comparison, fail_on: str) -> int:
    if fail_on == "never":
        return EXIT_FINE
    if comparison.verdict is Verdict.REGRESSED:
        return EXIT_REGRESSED
    if comparison.verdict is Verdict.INCONCLUSIVE and fail_on == "inconclusive":
        return EXIT_INCONCLUSIVE
    return EXIT_FINE


def _refusal_status(error: CachegenError) -> int:
    if isinstance(error, BrokenRunError):
        return EXIT_BROKEN
    return EXIT_INVALID if isinstance(error, InvalidRunError) else EXIT_REFUSED


def _refusal(reason: str, status: int) -> dict[str, str]:
    return {
        "markdown": markdown.render_refusal(reason),
        "junit": junit.render_refusal(reason),
        "json": _json(refusal_document(reason, status)),
    }


def _json(document: dict[str, object]) -> str:
    return json.dumps(document, indent=2, allow_nan=False) + "\n"


def _print(text: str) -> None:
    """Print the report; a reader that has seen enough (``| head``) changes no verdict."""
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except BrokenPipeError:
        # what is still buffered has nowhere to go
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _write(options: argparse.Namespace, texts: dict[str, str]) -> int:
    """Write the files asked for, each if it can be; a status other than 0 says that one could not be."""
    status = EXIT_FINE
    for name, text in texts.items():
        path: Path | None = getattr(options, name)
        try:
            if path is not None:
                path.write_text(text, encoding="utf-8")
        except OSError as error:
            sys.stderr.write(f"compare: {path}: cannot be written: {error.strerror}\n")
            status = EXIT_BROKEN
    return status


if __name__ == "__main__":
    sys.exit(main())
