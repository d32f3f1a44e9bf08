"""The fuzzer: random compositions of all that a run is made of, and what must hold for each.

    python tests/fuzz.py [--count 2000] [--seed 0] [--first 0] [--jobs 2]    # the long form
    python tests/fuzz.py --seed 0 --only 17                                 # one composition again, with its error

``test_fuzz.py`` runs the first few of seed 0. What must hold: the same seed gives the same trajectory; the server's
sums are what the clients hold; a member of a sweep, other layouts, states kept in memory, formed and factored gradients
and PyTorch give the run's numbers; a resumed run is the run without a break, and is refused with another problem;
bytes and gradients are those of a recount from the definitions; nothing is NaN without a ``DivergedError``.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import functools
import os
import subprocess
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

os.environ.setdefault("LOSAC_CPU_DEVICES", "2")
os.environ.setdefault("LOSAC_PROGRAMS", "off")
os.environ.setdefault(
    "XLA_FLAGS",
    "--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true --xla_cpu_use_fusion_emitters=false",
)

import jax
import numpy as np

import losac
from fuzz_compositions import Composition, compose, draw_devices
from fuzz_recount import recount
from losac._compat import enable_x64
from losac.algorithms import Algorithm, Federation
from losac.simulation import Layout
from losac.trees import Tree, add, map_trees, scale

SHARE = 0.35
"""How often each check that takes another program is made."""
EXACT = {"rtol": 1e-8, "atol": 1e-10}
"""In double precision, between programs that add in another order."""


def check(c: Composition) -> list[str]:
    """Check one composition; return the names of what was checked."""
    first = outcome(c.task, c.algorithm, keep_state=True, **c.run)
    again = outcome(c.task, c.algorithm, keep_state=True, **c.run)
    assert_same(first, again, "the same seed gave another run")
    done = ["repeated"]
    if isinstance(first, losac.DivergedError):
        assert c.reckless, f"a run with short steps diverged: {first}"
        assert_finite(first.history, c)
        return [*done, "diverged"]
    assert_finite(first, c)
    for name, (applies, examine) in CHECKS.items():
        if applies(c):
            examine(c, first)
            done.append(name)
    return done


def outcome(*arguments: Any, **options: Any) -> losac.History | losac.DivergedError:
    """Return what a run comes to."""
    try:
        return losac.simulate(*arguments, **options)
    except losac.DivergedError as error:
        return error


# ---------------------------------------------------------------- what is always checked


def assert_finite(history: losac.History, c: Composition) -> None:
    """Nothing that was evaluated is NaN or infinite, and neither is the model."""
    every = c.run.get("loss_every", 1)
    for name, series in history.metrics.items():
        skipped = (history.rounds % every != 0) if name in ("loss", "objective") else np.zeros(len(series), bool)
        outside = np.isposinf(series) if name == "objective" else np.zeros(len(series), bool)  # of a box: Ψ is infinite
        assert (np.isfinite(series) | skipped | outside).all(), f"{name} is {series} without a DivergedError"
        assert np.isnan(series[skipped]).all(), f"{name} was evaluated at rounds that are not divisible by {every}"
    for leaf in jax.tree.leaves(history.params):
        assert np.isfinite(leaf).all(), "the model is not finite, without a DivergedError"


def costs_are_recounted(c: Composition, run: losac.History) -> None:
    """Bytes and gradients are those of the definitions."""
    for e, spent in enumerate(recount(c, run.rounds.tolist())):
        for name, wanted in spent._asdict().items():
            found = getattr(run, name)[e]
            assert abs(found - wanted) <= 1e-9 * max(1.0, wanted), (
                f"{name} at round {run.rounds[e]}: {found}, recounted {wanted}"
            )


def resumed(c: Composition, run: losac.History) -> None:
    """A run that is broken off and resumed, from its history or its state, is the run in one piece, bit for bit."""
    rounds = c.run["rounds"]
    half = int(c.checks.integers(1, rounds))
    start = losac.simulate(c.task, c.algorithm, **{**c.run, "rounds": half}, keep_state=True)
    rest = {**c.run, "rounds": rounds - half}
    from_history = losac.simulate(c.task, c.algorithm, **rest, state=start, keep_state=True)
    assert_equal_trees(run.state, from_history.state, "resumed from a history, the state differs")
    shared = np.isin(from_history.rounds, run.rounds)
    for name in ("bytes_up", "bytes_down", "gradients"):
        np.testing.assert_allclose(getattr(from_history, name)[shared], getattr(run, name), rtol=1e-12, err_msg=name)
    for name, series in run.metrics.items():
        np.testing.assert_array_equal(from_history.metrics[name][shared], series, f"resumed, {name} differs")
    from_state = losac.simulate(c.task, c.algorithm, **rest, state=start.state, keep_state=True)
    assert_equal_trees(run.state, from_state.state, "resumed from a state, the state differs")


def refused_if_changed(c: Composition, run: losac.History) -> None:
    """A run does not go on with another loss, other data or other metrics: not from a history, a state or a folder."""
    rounds = c.run["rounds"]
    half = int(c.checks.integers(1, rounds))
    kept = {**c.run, "rounds": half}
    start = losac.simulate(c.task, c.algorithm, **kept, keep_state=True)
    name, task = changed(c)
    for state in [start] if name == "metrics" else [start, start.state]:
        with refusing(f"from a {type(state).__name__}, with another {name}"):
            losac.simulate(task, c.algorithm, **{**c.run, "rounds": rounds - half}, state=state)
    if not sometimes(c):
        return
    with tempfile.TemporaryDirectory() as folder:
        losac.runs.record(c.task, c.algorithm, folder, **kept)
        before = contents(folder)
        with refusing(f"from a folder, with another {name}"):
            losac.runs.record(task, c.algorithm, folder, **c.run, resume=True)
        if name != "metrics":
            other = {**c.run, "eval_every": c.run.get("eval_every", 1) + 1}
            with refusing("from a folder, with other evaluations"):
                losac.runs.record(c.task, c.algorithm, folder, **other, resume=True)
        assert contents(folder) == before, "a refused --resume has written"


def changed(c: Composition) -> tuple[str, losac.Task]:
    """Return a task of the same shape with another loss, other data or one metric more."""
    name = str(c.checks.choice(["loss", "data", "metrics"]))
    if name == "data":
        return name, replace(c.task, data=replace(c.task.data, x=2 * c.task.data.x))
    if name == "metrics":
        return name, replace(c.task, metrics={**c.task.metrics, "another": lambda params, batch: 0.0})

    @functools.wraps(c.task.loss)
    def another(*arguments: Any, **options: Any) -> Any:
        return c.task.loss(*arguments, **options)

    return name, replace(c.task, loss=another)


@contextlib.contextmanager
def refusing(how: str) -> Iterator[None]:
    """Assert that the block is refused."""
    try:
        yield
    except ValueError:
        return
    raise AssertionError(f"a run was continued {how}")


def contents(folder: str) -> dict[str, bytes]:
    """Return every file below a folder."""
    return {str(path): path.read_bytes() for path in Path(folder).rglob("*") if path.is_file()}


def sums_match(c: Composition, run: losac.History) -> None:
    """Without what all clients hold, the server's sum is what it was at the start."""
    algorithm, n, state = c.algorithm.at(0), c.task.data.num_clients, run.state
    with enable_x64(True):
        x = map_trees(lambda a: np.asarray(a, np.float64), start_of(c))
        here = Federation(n, c.run["clients_per_round"], None)
        held: Tree = None
        for i in range(n):
            client = map_trees(lambda a, i=i: np.asarray(a)[i], state.store.rows.state)
            table = map_trees(lambda a, i=i: np.asarray(a)[i].astype(np.float64), state.store.table)
            holding = algorithm.holding(here, x, client, table)
            held = holding if held is None else add(held, holding)
        bare = algorithm.shift(here, state.server, scale(-1, held))
        first = algorithm.init(x)
        full = algorithm.shift(here, first, held)
    moved = zip(*map(jax.tree.leaves, (bare, state.server, first, full)))
    for without, now, begin, alone in moved:
        if np.array_equal(begin, alone):
            continue  # not a sum over clients
        size = np.abs(now).max(initial=0) + np.abs(np.asarray(alone)).max(initial=0)
        apart = np.abs(np.asarray(without) - begin).max(initial=0)
        assert apart <= 1e-9 * max(size, 1e-3), f"the server's sum is {apart:.2g} from what the clients hold"


def keeps_sums(c: Composition) -> bool:
    """Whether the server's state contains a sum over the clients' that must be exact here."""
    noised = any(transform.on_the_sum for transform in c.algorithm.transforms())
    claimed = type(c.algorithm).credit is not Algorithm.credit
    formed = not c.algorithm.table or c.run.get("gradients") == "formed"
    return claimed and not noised and c.run["dtype"] == "float64" and formed


# ---------------------------------------------------------------- other ways to run the same


def swept(c: Composition, run: losac.History) -> None:
    """A member of a sweep is the single run."""
    options = {k: v for k, v in c.run.items() if k not in ("seed", "layout", "local_steps", "until")}
    eta = c.algorithm.settings()["step_size"]
    seeds = [c.run["seed"], (c.run["seed"] + 1) % 2**32]
    result = losac.sweep(c.task, c.algorithm, {"step_size": [eta / 2, eta]}, seeds, **options)
    (member,) = (m for m in result.members if m.seed == c.run["seed"] and m.settings["step_size"] == eta)
    assert_near(member, run, "a member of a sweep differs from the single run")


def laid_out(c: Composition, run: losac.History) -> None:
    """Another layout gives the same numbers."""
    sampled = c.run["clients_per_round"]
    layout = Layout(int(c.checks.integers(1, sampled + 1)), draw_devices(c.checks), bool(c.checks.integers(2)))
    other = losac.simulate(c.task, c.algorithm, **{**c.run, "layout": layout})
    assert_near(other, run, f"{layout} gives other numbers")


def paged(c: Composition, run: losac.History) -> None:
    """Clients' states that live in memory give the same numbers."""
    other = losac.simulate(c.task, c.algorithm, **c.run, store="memory")
    assert_near(other, run, "store='memory' gives other numbers")


def gradients_kept(c: Composition, run: losac.History) -> None:
    """Formed and factored gradients give the same numbers."""
    for how in {"formed", "factored", "auto"} - {c.run.get("gradients", "auto")}:
        other = losac.simulate(c.task, c.algorithm, **{**c.run, "gradients": how})
        assert_near(other, run, f"gradients={how!r} give other numbers")


def saved(c: Composition, run: losac.History) -> None:
    """A history is read as it was written."""
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        other = losac.History.load(run.save(Path(folder) / "history.npz"))
    assert_same_record(other, run, "a saved history differs")
    assert_equal_trees(run.params, other.params, "a saved model differs")


def in_torch(c: Composition, run: losac.History) -> None:
    """PyTorch gives the same numbers."""
    import torch

    start = start_of(c)
    module = torch.nn.Linear(start["weight"].shape[1], start["weight"].shape[0], dtype=torch.float64)
    losac.torch.load_into(module, start)

    def half_squares(out: Any, y: Any) -> Any:
        return 0.5 * ((out[:, 0] - y) ** 2).mean()

    loss = half_squares if c.kind == "squares" else torch.nn.functional.cross_entropy
    left_out = ("loss_every", "layout", "gradients", "table_dtype", "dtype")
    options = {k: v for k, v in c.run.items() if k not in left_out}
    problem = {"reduction": c.task.reduction, "regularizer": c.task.regularizer, "weights": c.task.client_weights}
    other = losac.torch.simulate(module, loss, c.task.data, c.algorithm, **problem, **options)
    loss_names = {name for name in run.metrics if name in ("loss", "test_loss", "objective")}
    if "loss_every" in c.run:
        loss_names -= {"loss", "objective"}
    assert_near(other, run, "PyTorch gives other numbers", sorted(loss_names))


def sometimes(c: Composition) -> bool:
    """Whether a check that takes another program is made this time."""
    return bool(c.checks.random() < SHARE)


def double(c: Composition) -> bool:
    """Whether numbers can be compared between programs: single precision and coarse tables make rounding large."""
    return c.run["dtype"] == "float64" and "table_dtype" not in c.run


def can_page(c: Composition) -> bool:
    """Whether the clients' states may leave the device."""
    return all(phase.clients != "all" for phase in c.algorithm.phases())


def can_sweep(c: Composition) -> bool:
    """Whether the options of the run are a sweep's too."""
    return double(c) and "local_steps" not in c.run and isinstance(c.algorithm.settings()["step_size"], float)


def always(c: Composition) -> bool:
    """Say yes."""
    return True


CHECKS: dict[str, tuple[Callable[[Composition], bool], Callable[[Composition, losac.History], None]]] = {
    "recounted": (always, costs_are_recounted),
    "resumed": (always, resumed),
    "sums": (keeps_sums, sums_match),
    "saved": (always, saved),
    "swept": (lambda c: sometimes(c) and can_sweep(c), swept),
    "laid out": (lambda c: sometimes(c) and double(c), laid_out),
    "paged": (lambda c: sometimes(c) and double(c) and can_page(c), paged),
    "gradients": (lambda c: sometimes(c) and double(c) and c.algorithm.table, gradients_kept),
    "torch": (lambda c: sometimes(c) and double(c) and c.kind in ("squares", "classes"), in_torch),
    "refused": (sometimes, refused_if_changed),
}


def start_of(c: Composition) -> Tree:
    """Return x⁰."""
    with enable_x64(False):
        return map_trees(np.asarray, c.task.init_params(jax.random.key(c.run["seed"])))


# ---------------------------------------------------------------- how histories are compared


def assert_same(a: Any, b: Any, words: str) -> None:
    """Two outcomes are equal bit for bit."""
    assert type(a) is type(b), f"{words}: {a!r} and {b!r}"
    a, b = (one.history if isinstance(one, losac.DivergedError) else one for one in (a, b))
    assert_same_record(a, b, words)
    assert_equal_trees(a.params, b.params, words)


def assert_same_record(a: losac.History, b: losac.History, words: str) -> None:
    """Two records are equal but for the time they took."""
    for name in ("rounds", "bytes_up", "bytes_down", "gradients"):
        np.testing.assert_array_equal(getattr(a, name), getattr(b, name), f"{words}: {name}")
    assert (list(a.metrics), a.diverged) == (list(b.metrics), b.diverged), words
    for name in a.metrics:
        np.testing.assert_array_equal(a.metrics[name], b.metrics[name], f"{words}: {name}")


def assert_equal_trees(a: Tree, b: Tree, words: str) -> None:
    """Two trees are equal bit for bit."""
    assert jax.tree.structure(a) == jax.tree.structure(b), f"{words}: other structures"
    for (path, p), q in zip(jax.tree_util.tree_leaves_with_path(a), jax.tree.leaves(b)):
        if jax.numpy.issubdtype(getattr(p, "dtype", np.dtype(int)), jax.dtypes.prng_key):
            p, q = jax.random.key_data(p), jax.random.key_data(q)
        np.testing.assert_array_equal(np.asarray(p), np.asarray(q), f"{words}: {jax.tree_util.keystr(path)}")


def assert_near(a: losac.History, b: losac.History, words: str, names: list[str] | None = None) -> None:
    """Two histories agree to the rounding of double precision, and in their counts exactly.

    ``a`` may have fewer evaluations: a sampler of a user's own makes a single run evaluate after every round.
    """
    shared = np.isin(b.rounds, a.rounds)
    np.testing.assert_array_equal(a.rounds, b.rounds[shared], words)
    for name in ("bytes_up", "bytes_down", "gradients"):
        np.testing.assert_allclose(getattr(a, name), getattr(b, name)[shared], rtol=1e-12, err_msg=f"{words}: {name}")
    for name in names if names is not None else b.metrics:
        np.testing.assert_allclose(a.metrics[name], b.metrics[name][shared], **EXACT, err_msg=f"{words}: {name}")
    for p, q in zip(jax.tree.leaves(a.params), jax.tree.leaves(b.params)):
        np.testing.assert_allclose(p, q, **EXACT, err_msg=f"{words}: the model")


# ---------------------------------------------------------------- the command


def main() -> None:
    """Run many compositions in some processes; print those that fail, and what was checked how often."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--only", type=int, help="one composition, with its traceback")
    options = parser.parse_args()
    warnings.simplefilter("error")
    if options.only is not None:
        c = compose(options.seed, options.only)
        print(c)
        print("checked:", ", ".join(check(c)))
        return
    if options.jobs > 1:
        sys.exit(share_out(options))
    sys.exit(run_many(options.seed, range(options.first, options.first + options.count)))


def share_out(options: argparse.Namespace) -> int:
    """Run the compositions in several processes, each a part; return how many of these failed."""
    each = -(-options.count // options.jobs)
    began = [
        subprocess.Popen([sys.executable, __file__, "--seed", str(options.seed), "--first", str(first),
                          "--count", str(min(each, options.first + options.count - first))])
        for first in range(options.first, options.first + options.count, each)
    ]  # fmt: skip
    return sum(process.wait() != 0 for process in began)


def run_many(seed: int, numbers: range) -> int:
    """Check these compositions; return 1 where one fails."""
    began, failed = time.monotonic(), 0
    checked: collections.Counter[str] = collections.Counter()
    for number in numbers:
        with failure_told(number, seed) as told:
            c = compose(seed, number)
            checked.update([*check(c), "compositions", f"algorithm {c.name}"])
        failed += bool(told)
        if (number + 1) % 50 == 0:
            jax.clear_caches()
            seconds = time.monotonic() - began
            print(f"{number + 1 - numbers.start} of {len(numbers)}, {failed} failed, {seconds:.0f} s", flush=True)
    kinds = {name: count for name, count in checked.items() if not name.startswith("algorithm ")}
    print(f"seed {seed}, {numbers.start} to {numbers.stop - 1}: {failed} failed; {dict(kinds)}, "
          f"{len(checked) - len(kinds)} algorithms, {time.monotonic() - began:.0f} s")  # fmt: skip
    return int(failed > 0)


@contextlib.contextmanager
def failure_told(number: int, seed: int) -> Iterator[list[str]]:
    """Print a failure with the command that repeats it, and go on."""
    told: list[str] = []
    try:
        yield told
    except Exception as error:
        told.append(str(error))
        last = traceback.extract_tb(error.__traceback__)[-1]
        words = " ".join(str(error).split())[:300]
        print(f"FAILED  python tests/fuzz.py --seed {seed} --only {number}\n        {type(error).__name__}: {words} "
              f"({Path(last.filename).name}:{last.lineno})", flush=True)  # fmt: skip


if __name__ == "__main__":
    main()
