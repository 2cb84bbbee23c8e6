"""The page of known failures points to tests that exist."""

import re
from pathlib import Path

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "docs" / "known-failures.md").read_text(encoding="utf-8")


def test_every_test_that_the_page_names_exists():
    names = set(re.findall(r"`(test_\w+)`", PAGE))
    sources = "\n".join(path.read_text(encoding="utf-8") for path in (ROOT / "tests").rglob("test_*.py"))

    assert len(names) > 30
    assert [name for name in sorted(names) if f"def {name}(" not in sources] == []


def test_every_row_of_the_page_names_a_test_or_says_what_the_limit_is():
    rows = [line for line in PAGE.splitlines() if re.match(r"\| (LMCache #|vLLM #|Dynamo #|D\d)", line)]
    defects = [int(number) for row in rows for number in re.findall(r"^\| D(\d+) ", row)]

    cells = [row.split(" | ")[1] for row in rows if "#" in row.split(" | ")[0]]
    cases = [int(number) for cell in cells for number in cell.split(", ")]

    assert sorted(cases) == list(range(1, 43))
    assert defects == list(range(1, 23))
    assert len(rows) > 30
    assert [row for row in rows if "`test_" not in row and "Limit: " not in row] == []
