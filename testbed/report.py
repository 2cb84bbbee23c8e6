"""The reports of a run, made out of its files: ``python -m testbed.report RUN...`` makes them again.

``report.html`` (the page), ``report.md``, ``ttft.svg`` and, where it is missing, ``requests.parquet``; figures for a
paper on demand.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from cachegen import CachegenError
from testbed.figures import write_figures, write_pdf
from testbed.html_report import render_page
from testbed.plot import plot_ttft
from testbed.report_markdown import render_markdown
from testbed.request_table import write_parquet
from testbed.run_files import RunFiles, read_run
from testbed.whole_file import replacing


def write_reports(path: Path) -> RunFiles:
    """Write the reports of the run in the directory ``path`` and return what its files say.

    Raises
    ------
    InvalidInputError
        ``path`` is no directory of a run that has served a request, or a file in it is damaged.
    """
    run = read_run(path)
    if not (path / "requests.parquet").exists():
        facts = {"summary": run.summary, "manifest": run.manifest, "config": run.config}
        write_parquet(path / "requests.parquet", run.requests, facts)
    for name, text in (
        ("report.md", render_markdown(run.summary, run.manifest, run.config)),
        ("report.html", render_page(run)),
    ):
        with replacing(path / name) as scratch:
            scratch.write_text(text, encoding="utf-8")
    with replacing(path / "ttft.svg") as scratch:
        plot_ttft(run.summary, run.requests, scratch)
    return run


def main(arguments: Sequence[str] | None = None) -> int:
    """Make the reports of the named runs; return the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m testbed.report",
        description="Make the reports of runs out of their files, each in its directory.",
    )
    parser.add_argument("runs", nargs="+", type=Path, metavar="RUN", help="directory of a run, such as runs/latest")
    paper = parser.add_mutually_exclusive_group()
    paper.add_argument("--pdf", type=Path, metavar="FILE", help="figures for a paper, a page each; of one run")
    paper.add_argument("--figures", type=Path, metavar="DIR", help="the same, a PDF file each; of one run")
    options = parser.parse_args(arguments)
    if (options.pdf or options.figures) and len(options.runs) > 1:
        parser.error("--pdf and --figures take one RUN")
    try:
        for path in options.runs:
            run = write_reports(path)
            sys.stdout.write(f"{path / 'report.html'}\n")
        if options.pdf:
            write_pdf(run, options.pdf)
        if options.figures:
            write_figures(run, options.figures)
    except (CachegenError, OSError) as error:
        sys.stderr.write(f"report: {error}\n")
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
