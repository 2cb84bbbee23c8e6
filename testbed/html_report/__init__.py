"""The page of a run: ``report.html``, one file that needs nothing else."""

from testbed.html_report.page import render_page

__all__ = ["render_page"]
