"""``python -m cachegen.benchmark RESULT DOCS``: page and picture of a result, from the file that ``bench`` wrote."""

import argparse
import json
import sys
from pathlib import Path

from cachegen.benchmark.page import render_page
from cachegen.benchmark.plot import rate_distortion_svg
from cachegen.benchmark.run import BENCH_SCHEMA
from cachegen.errors import CachegenError, FormatError, VersionError
from cachegen.input_file import read_text
from cachegen.whole_file import write_whole

_PICTURE = "img/rate-distortion.svg"


def main() -> int:
    """Write ``results.md`` and its picture; return the exit status: 0 done, 2 refused with a reason."""
    parser = argparse.ArgumentParser(prog="python -m cachegen.benchmark", description=__doc__)
    parser.add_argument("result", type=Path, help="JSON of cachegen bench")
    parser.add_argument("docs", type=Path, help="folder of the page")
    options = parser.parse_args()
    try:
        result = _read(options.result)
    except CachegenError as error:
        sys.stderr.write(f"cachegen.benchmark: {error}\n")
        return 2
    picture = options.docs / _PICTURE
    picture.parent.mkdir(parents=True, exist_ok=True)
    write_whole(picture, rate_distortion_svg(result))
    write_whole(options.docs / "results.md", render_page(result, _PICTURE).encode())
    return 0


def _read(path: Path) -> dict[str, object]:
    try:
        result = json.loads(read_text(path))
    except ValueError as error:
        raise FormatError(f"{path}: not JSON: {error}") from error
    if not isinstance(result, dict) or result.get("schema") != BENCH_SCHEMA:
        raise VersionError(f"{path}: not a result of cachegen bench in schema {BENCH_SCHEMA}")
    return result


if __name__ == "__main__":
    sys.exit(main())
