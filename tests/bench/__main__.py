"""`python -m tests.bench`: measure and print a table; `--json` prints one JSON object instead.

`--live` adds what needs the real Hermes; names choose single measures. Figures that depend on the machine
are compared with what the same run measures beside them. The exit status says whether all are reached.
"""

import argparse
import dataclasses
import importlib
import json
import logging
import sys
import tempfile
from pathlib import Path

from tests.bench.figures import machine, table

MEASURES = ("intake", "latency", "context", "updates", "memory")
LIVE_MEASURES = ("live_turn",)


def run(names):
    """Measure; returns the figures."""
    figures = []
    for name in names:
        with tempfile.TemporaryDirectory() as directory:
            figures += importlib.import_module(f"tests.bench.{name}").measure(Path(directory))
    return figures


def main(arguments):
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench", description=__doc__)
    parser.add_argument("names", nargs="*", help=f"of {', '.join((*MEASURES, *LIVE_MEASURES))}")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--live", action="store_true", help="with the real Hermes as well")
    options = parser.parse_args(arguments)
    unknown = set(options.names) - {*MEASURES, *LIVE_MEASURES}
    if unknown:
        parser.error(f"no such measure: {', '.join(sorted(unknown))}")
    logging.disable(logging.CRITICAL)  # what rooms say while they are measured is no figure
    figures = run(options.names or MEASURES + LIVE_MEASURES * options.live)
    if options.json:
        found = {"machine": machine(), "figures": [dataclasses.asdict(one) for one in figures]}
        sys.stdout.write(json.dumps(found, ensure_ascii=False, indent=2) + "\n")
    else:
        sys.stdout.write(table(figures) + "\n")
    return 0 if all(one.ok for one in figures) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
