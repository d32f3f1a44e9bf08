"""``losac``, and ``python -m losac``: the command line."""

from __future__ import annotations

import sys


def main() -> None:
    """Run the command line; an interrupt is quiet even while it is still loading."""
    try:
        from losac.cli import main as run
    except KeyboardInterrupt:
        sys.exit(130)
    run()


if __name__ == "__main__":
    main()
