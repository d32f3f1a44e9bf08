"""Print every hostile input with the answer it gets: ``python tests/hostile/list.py [WORD]`` for those with a word."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from hostile.kinds import answer_of_command, answer_of_file, answer_of_python, known_names, table


def main() -> None:
    word = sys.argv[1] if len(sys.argv) > 1 else ""
    with tempfile.TemporaryDirectory() as folder:
        known = known_names(Path(folder))
        kinds = {
            "python": lambda given, _: answer_of_python(given, known),
            "command_line": answer_of_command,
            "files": answer_of_file,
        }
        for kind, answer_of in kinds.items():
            for rows in table(kind).values():
                for given, _ in rows:
                    if word in given:
                        with tempfile.TemporaryDirectory() as own:
                            print(f"{given}\n    {answer_of(given, Path(own)).text}")


if __name__ == "__main__":
    main()
