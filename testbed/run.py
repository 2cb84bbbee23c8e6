"""The main job: ``python testbed/run.py --trace lte``, from any directory, as root or as a user.

Started by whatever Python there is, it sets the machine up if need be, goes on in the project's own environment,
and runs the experiment in namespaces of its own.
"""

import json
import os
import sys
from pathlib import Path

# As a script, Python looks for modules in this folder; the packages lie one level up.
sys.path[0] = str(Path(__file__).resolve().parent.parent)

from testbed.arguments import ROOT, parse_arguments  # noqa: E402 - needs the line above
from testbed.bootstrap import VENV, VENV_PYTHON, SetupError, ensure_setup  # noqa: E402 - the same
from testbed.ownership import give_back  # noqa: E402 - the same


def main() -> int:
    """Run the job; return its exit status."""
    options = parse_arguments()
    try:
        ensure_setup()
    except SetupError as error:
        sys.stderr.write(f"set-up failed: {error}\n")
        return 2
    except KeyboardInterrupt:
        sys.stderr.write("set-up interrupted; the next call begins it anew\n")
        return 130
    if Path(sys.prefix) != VENV:
        os.execv(VENV_PYTHON, [str(VENV_PYTHON), __file__, *sys.argv[1:]])  # noqa: S606 - a fixed program

    # third-party packages are there from here on
    from cachegen import CachegenError
    from testbed.config import make_config
    from testbed.errors import IsolationError
    from testbed.isolation import can_isolate, run_isolated

    try:
        config = make_config(options)
        if (refusal := can_isolate()) is not None:
            raise IsolationError(refusal)
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        job = json.dumps({"config": config.to_json(), "runs": str(options.runs.resolve()), "command": sys.argv})
        # -P, here and below: no module of the folder that the user happens to stand in
        return run_isolated([sys.executable, "-P", "-m", "testbed.experiment", job], environment)
    except CachegenError as error:
        sys.stderr.write(f"testbed: {error}\n")
        return 2
    finally:
        give_back([options.runs] if options.runs.exists() else [])


if __name__ == "__main__":
    sys.exit(main())
