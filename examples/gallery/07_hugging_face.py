"""A Hugging Face data set from a local file, with a column that names the owner of each row.

The file is made here: shops, their sales on a day, and whether the day was a holiday. `losac.data.read` takes the data
set directly. After training, each shop fine-tunes the model on its own rows.

    python examples/gallery/07_hugging_face.py [picture.png]
"""

import sys
import tempfile
from pathlib import Path

import datasets
import numpy as np
import pandas as pd

import losac


def write_table(path: Path, shops: int = 12, days: int = 60) -> Path:
    """Write a table of sales; each shop has its own usual day."""
    rng = np.random.default_rng(0)
    shop = np.repeat([f"shop {i}" for i in range(shops)], days)
    usual = np.repeat(rng.normal(scale=0.6, size=shops), days)
    holiday = rng.random(shops * days) < 0.4
    sales = {f"aisle_{k}": usual + holiday * rng.uniform(0.5, 1) + 0.5 * rng.normal(size=len(shop)) for k in range(4)}
    pd.DataFrame(sales | {"holiday": holiday.astype(int), "shop": shop}).to_parquet(path)
    return path


def main(picture: str | None = None, rounds: int = 60) -> losac.Personalized:
    """Read, train, personalise and print."""
    with tempfile.TemporaryDirectory() as folder:
        file = write_table(Path(folder) / "sales.parquet")
        table = datasets.Dataset.from_parquet(str(file), cache_dir=folder)
        data = losac.data.read(table, target="holiday", client="shop", name="sales")
    train, held = losac.hold_out(data, 0.3)
    task = losac.classification(losac.models.softmax_regression(4, 2), train, reduction="mean")
    run = losac.simulate(task, losac.algorithms.fedavg(0.5, local_steps=5), rounds=rounds, eval_every=rounds)
    found = losac.personalize(task, run.params, steps=30, step_size=1.0, data=held)
    print(data)
    print(found)
    if picture:
        found.plot("accuracy").savefig(picture, dpi=80)
    return found


if __name__ == "__main__":
    main(*sys.argv[1:2])
