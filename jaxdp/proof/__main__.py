"""`python -m jaxdp.proof STATEMENT.json`: a proof where neither JAX nor typer is installed."""

from __future__ import annotations

import argparse
import sys

from jaxdp.proof.command import run


def main(arguments: list[str] | None = None) -> int:
    """Print the proof; the exit status is 0 if proved, 1 if refuted, 3 if open, 2 for bad input."""
    parser = argparse.ArgumentParser(prog="python -m jaxdp.proof", description=__doc__)
    parser.add_argument("file", help="JSON of a privacy loss, or of loss, epsilon and delta")
    parser.add_argument("--epsilon", help="in nats; text such as 1.5 is exact")
    parser.add_argument("--delta", help="a probability; text such as 1e-5 is exact")
    parser.add_argument("--most-points", type=int, help="points or exact terms at most")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    given = parser.parse_args(arguments)
    try:
        text, status = run(given.file, given.epsilon, given.delta, given.most_points, given.json)
    except (OSError, ValueError) as error:
        print(f"verify: {error}", file=sys.stderr)
        return 2
    print(text)
    return status


if __name__ == "__main__":
    sys.exit(main())
