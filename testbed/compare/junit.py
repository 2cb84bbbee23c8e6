"""The comparison as JUnit XML: a test suite a scenario, a test case a method."""

from xml.etree.ElementTree import Element, SubElement, indent, tostring

from testbed.compare import wording
from testbed.compare.comparison import Cell, Comparison
from testbed.compare.rules import Verdict

_SUITES = "testbed.compare"


def render_junit(comparison: Comparison) -> str:
    """A regression is a failure, what could not be settled is skipped; the figures are properties."""
    root = Element("testsuites", name=_SUITES)
    for scenario in dict.fromkeys(cell.scenario for cell in comparison.cells):
        cells = [cell for cell in comparison.cells if cell.scenario == scenario]
        suite = SubElement(root, "testsuite", _counts(cells), name=_printable(scenario))
        for cell in cells:
            _add_case(suite, cell)
    return _to_text(root)


def render_refusal(reason: str) -> str:
    """One test case with an error: a dashboard that reads no exit status must not stay green."""
    root = Element("testsuites", name=_SUITES)
    suite = SubElement(root, "testsuite", name=_SUITES, tests="1", failures="0", errors="1", skipped="0")
    case = SubElement(suite, "testcase", classname=_SUITES, name="comparable")
    SubElement(case, "error", type="not-compared", message=_printable(reason))
    return _to_text(root)


def _counts(cells: list[Cell]) -> dict[str, str]:
    verdicts = [cell.verdict for cell in cells]
    return {
        "tests": str(len(cells)),
        "failures": str(verdicts.count(Verdict.REGRESSED)),
        "errors": "0",
        "skipped": str(verdicts.count(Verdict.INCONCLUSIVE)),
    }


def _add_case(suite: Element, cell: Cell) -> None:
    case = SubElement(suite, "testcase", classname=_printable(cell.scenario), name=_printable(cell.method))
    properties = SubElement(case, "properties")
    values = {"verdict": str(cell.verdict), "pairs": str(cell.pairs), "more_pairs": str(cell.more_clusters)}
    for finding in cell.findings:
        name = finding.measure.name
        values[f"{name}.base"], values[f"{name}.new"] = str(finding.measure.base), str(finding.measure.new)
        values[f"{name}.verdict"] = str(finding.verdict)
    for name, value in values.items():
        SubElement(properties, "property", name=name, value=value)
    message = _printable("; ".join(wording.reasons(cell)))
    if cell.verdict is Verdict.REGRESSED:
        SubElement(case, "failure", type="slo-regression", message=message)
    elif cell.verdict is Verdict.INCONCLUSIVE:
        SubElement(case, "skipped", message=message)


def _printable(text: str) -> str:
    """Text without the control characters that XML has no way to hold."""
    return "".join(
        letter if letter.isprintable() or letter in "\t\n" else "\N{REPLACEMENT CHARACTER}" for letter in text
    )


def _to_text(root: Element) -> str:
    indent(root)
    return '<?xml version="1.0" encoding="utf-8"?>\n' + tostring(root, encoding="unicode") + "\n"
