"""``python -m testbed.packets RUN``: what a run's captures say of its link, from the packets alone.

Exit status: 0 the packets confirm the run, 2 there are none or a file cannot be read, 3 they contradict it.
"""

import argparse
import sys
from pathlib import Path

from cachegen import CachegenError
from testbed.packets.evidence import examine


def main() -> int:
    """Print a line for each thing looked at; return the exit status."""
    parser = argparse.ArgumentParser(prog="testbed.packets", description="confirm a run's link from its packets alone")
    parser.add_argument("run", type=Path, help="run directory of testbed/run.py --pcap")
    args = parser.parse_args()
    try:
        findings = examine(args.run)
    except CachegenError as error:
        sys.stderr.write(f"testbed.packets: {error}\n")
        return 2
    confirmed = all(finding.is_right for finding in findings)
    lines = [f"{'ok   ' if one.is_right else 'WRONG'} {one.what:<16} {one.found}" for one in findings]
    lines.append("the packets confirm the run" if confirmed else "the packets CONTRADICT the run")
    # at once: a reader that has seen enough may be gone
    sys.stdout.write("\n".join(lines) + "\n")
    return 0 if confirmed else 3


if __name__ == "__main__":
    sys.exit(main())
