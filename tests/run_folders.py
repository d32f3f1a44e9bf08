"""Run folders without a run: what losac.runs writes, with numbers of our choice."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

HEAD = "round,loss,accuracy,bytes_up,bytes_down,gradients,seconds\n"


def line(step, *, seed=0, slow=0.0):
    """One evaluation: the loss halves, the accuracy grows, each step sends 3 MB and computes 100 gradients."""
    noise = 0.01 * np.random.default_rng([seed, step]).random()
    values = [2 * step, 2.0 * 0.6**step + slow + noise, min(0.1 * step + noise, 0.99)]
    return ",".join(map(str, [*values, step * 1_000_000, step * 2_000_000, step * 100.0, step * 0.5])) + "\n"


def write_run(
    folder, algorithm="losac", seed=0, *, steps=8, last=16, status="finished", slow=0.0, clients=True, **settings
):
    """Write the folder of a run; ``settings`` are its algorithm's, ``simulation`` may add to the experiment."""
    folder = Path(folder)
    folder.mkdir(parents=True)
    simulation = {"rounds": last, "seed": seed, "clients_per_round": 5} | settings.pop("simulation", {})
    settings = {"step_size": 0.1, "blocks": 5} | settings
    about = {
        "format": "losac run 1",
        "status": status,
        "started": f"2026-01-01T00:00:{seed:02d}+00:00",
        "command": "losac run <b>",
        "versions": {"losac": "0.1.0", "python": "3.11"},
        "hardware": {"cores": 2},
        "algorithm": algorithm,
        "settings": settings,
        "task": "toy",
        "seed": seed,
        "last": last,
        "diverged": 2 * steps if status == "diverged" else None,
    }
    sections = {"problem": {"data": "toy"}, "algorithm": {"name": algorithm, **settings}, "simulation": simulation}
    toml = "".join(f"[{k}]\n" + "".join(f"{n} = {json.dumps(v)}\n" for n, v in s.items()) for k, s in sections.items())
    (folder / "run.json").write_text(json.dumps(about))
    (folder / "experiment.toml").write_text(toml)
    (folder / "metrics.csv").write_text(HEAD + "".join(line(step, seed=seed, slow=slow) for step in range(steps + 1)))
    (folder / "log.txt").write_text("".join(f"round {2 * step} of 16\n" for step in range(steps + 1)))
    if clients:
        counts = np.eye(4, dtype=int) * 10 + 1
        content = {"name": "toy", "sizes": counts.sum(1).tolist(), "label_counts": counts.tolist()}
        (folder / "clients.json").write_text(json.dumps(content | {"label_names": ["a", "b", "c", "d"]}))
    return folder


def write_comparison(folder):
    """Three seeds each of LoSAC and a slower SCAFFOLD."""
    for seed in range(3):
        write_run(folder / f"losac-seed{seed}", "losac", seed)
        write_run(folder / f"scaffold-seed{seed}", "scaffold", seed, slow=0.2)
    return folder
