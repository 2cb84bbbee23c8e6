"""Put the page together: the template, with style, script and data inside it."""

import base64
import hashlib
from functools import cache
from pathlib import Path

import jinja2
from markupsafe import Markup

from testbed.html_report import provenance, tables
from testbed.html_report.link_checks import link_checks
from testbed.html_report.page_data import page_data
from testbed.palette import DARK_LEVEL_COLOURS, LEVEL_COLOURS, STAGE_COLOURS, method_style
from testbed.result_table import TTFTS, violation_columns, violations_note
from testbed.run_files import RunFiles

_FOLDER = Path(__file__).resolve().parent
_SCRIPTS = ("format.js", "svg.js", "marks.js", "charts.js", "quality.js", "waterfall.js", "requests.js", "page.js")


def render_page(run: RunFiles) -> str:
    """Return ``report.html``: everything inside, nothing fetched, names and texts of the run escaped.

    Parameters
    ----------
    run : RunFiles
        The files of the run.
    """
    data = page_data(run)
    style, script = _style(len(run.summary["methods"])), _script()
    levels = [level["name"] for level in data["levels"]]
    page = (
        _templates()
        .get_template("page.html.j2")
        .render(
            run=run,
            name=run.path.resolve().name,
            data=data,
            style=Markup(style),  # noqa: S704 - our own file, and colours of our own
            script=Markup(script),  # noqa: S704 - our own files
            policy=_policy(style, script),
            verdict=tables.verdict_line(run.summary),
            main_table=tables.main_table(run.summary),
            reasons=tables.reasons(run.summary),
            attainment_table=tables.attainment_table(run.summary),
            violation_table=tables.method_table(run.summary, violation_columns(run.summary)),
            violations_note=violations_note(run.summary),
            ttft_table=tables.method_table(run.summary, TTFTS),
            stage_table=tables.stage_table(run.summary),
            level_table=tables.level_table(run.summary, levels),
            request_table=tables.request_table(run),
            checks=link_checks(run.summary, run.manifest, run.config),
            provenance=provenance.provenance(run.manifest, run.config),
            files=[
                (name, provenance.flattened(content))
                for name, content in (("config.json", run.config), ("manifest.json", run.manifest))
            ],
        )
    )
    # half a surrogate pair, which JSON can spell, has no place in a file of UTF-8
    return page.encode("utf-8", "replace").decode("utf-8")


@cache
def _templates() -> jinja2.Environment:
    return jinja2.Environment(
        loader=jinja2.FileSystemLoader(_FOLDER),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def _style(num_methods: int) -> str:
    light = [f"--method-{place}:{method_style(place).colour}" for place in range(num_methods)]
    light += [f"--stage-{stage}:{colour}" for stage, colour in STAGE_COLOURS.items()]
    light += [f"--level-{shade}:{colour}" for shade, colour in enumerate(LEVEL_COLOURS)]
    marks = [f".method-{place}{{fill:var(--method-{place})}}" for place in range(num_methods)]
    dark = [f"--method-{place}:{method_style(place).dark_colour}" for place in range(num_methods)]
    dark += [f"--level-{shade}:{colour}" for shade, colour in enumerate(DARK_LEVEL_COLOURS)]
    rules = [
        f":root{{{';'.join(light)}}}",
        f"@media screen and (prefers-color-scheme: dark){{:root{{{';'.join(dark)}}}}}",
        *marks,
        _read("style.css"),
    ]
    return "\n".join(rules)


def _script() -> str:
    # one function around all, so that nothing of ours is global
    return "(() => {\n'use strict';\n" + "\n".join(map(_read, _SCRIPTS)) + "})();\n"


@cache
def _read(name: str) -> str:
    return (_FOLDER / name).read_text(encoding="utf-8")


def _policy(style: str, script: str) -> str:
    """What a browser may load and run: this style, this script, and nothing from anywhere."""
    return f"default-src 'none'; style-src {_hash(style)}; script-src {_hash(script)}; img-src data:"


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
