"""Walks the frozen trajectories with changed copies of the package: what ``mutation.py`` asks first.

Each line of input is JSON, a folder with a copy of the package and words of the algorithms that were changed in it. The
answer is 1 if a trajectory differs or fails, else 0. JAX is loaded once; each copy is loaded in a fork.
"""

from __future__ import annotations

import importlib
import json
import os
import signal
import sys

import numpy as np

for each in ("jax", "jax.numpy", "optax", "array_api_compat"):  # nothing of losac: a fork loads its own
    importlib.import_module(each)
LONGEST = 600
"""Seconds after which a copy counts as different: it may run for ever."""


def differs(folder: str, words: list[str]) -> bool:
    """Whether a trajectory of the copy differs from the frozen one; those of the changed algorithms come first."""
    sys.path.insert(0, folder)
    try:
        import trajectories

        frozen = json.loads(trajectories.FILE.read_text())
        walks = {trajectories.name(walk): walk for walk in trajectories.walks()}
        for key in sorted(walks, key=lambda key: not any(word in key for word in words)):
            np.testing.assert_allclose(trajectories.walked(walks[key]), frozen[key], rtol=1e-9)
    except Exception:
        return True
    return False


def main() -> None:
    for line in sys.stdin:
        child = os.fork()
        if child == 0:
            signal.alarm(LONGEST)
            os._exit(differs(*json.loads(line)))
        _, status = os.waitpid(child, 0)
        print(int(status != 0), flush=True)


if __name__ == "__main__":
    main()
