"""``python -m losac`` is ``losac``."""

from losac.cli import main

if __name__ == "__main__":
    main()
