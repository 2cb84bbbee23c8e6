"""``python -m cachegen.benchmark RESULT DOCS``: page and picture of a result, from the file that ``bench`` wrote."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from cachegen.benchmark.page import render_page
from cachegen.benchmark.plot import rate_distortion_svg
from cachegen.benchmark.result_file import read_result
from cachegen.errors import CachegenError
from cachegen.whole_file import write_whole

_PICTURE = "img/rate-distortion.svg"


def main(arguments: Sequence[str] | None = None) -> int:
    """Write ``results.md`` and its picture; return the exit status: 0 done, 2 refused with a reason."""
    parser = argparse.ArgumentParser(prog="python -m cachegen.benchmark", description=__doc__)
    parser.add_argument("result", type=Path, help="JSON of cachegen bench")
    parser.add_argument("docs", type=Path, help="folder of the page")
    options = parser.parse_args(arguments)
    picture = options.docs / _PICTURE
    try:
        result = read_result(options.result)
        picture.parent.mkdir(parents=True, exist_ok=True)
        write_whole(picture, rate_distortion_svg(result))
        write_whole(options.docs / "results.md", render_page(result, _PICTURE).encode())
    except (CachegenError, OSError) as error:
        sys.stderr.write(f"cachegen.benchmark: {error}\n")
        return 2
    except LookupError as error:
        sys.stderr.write(f"cachegen.benchmark: {options.result}: not a whole result: {error!r} is missing\n")
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
