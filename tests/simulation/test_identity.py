"""What a kept state belongs to: changes that would end at a wrong point are refused by name, harmless ones go on."""

from __future__ import annotations

import contextlib
import dataclasses
import re
import time

import numpy as np
import optax
import pytest

import losac
from catalogue import CATALOGUE, EXACT, FULL, RANDOM_BLOCKS
from losac.data.fingerprint import fingerprint
from losac.history import History
from losac.runs import record
from losac.simulation import Layout
from losac.simulation.engines.flat import flatten
from losac.simulation.engines.identity import identify, require_same
from losac.simulation.options import SimulationOptions
from losac.testing import laws
from losac.trees import map_trees
from problems import quadratic

A = losac.algorithms
PROBLEM = quadratic(clients=6, samples=8, dim=3)
OTHER = quadratic(clients=6, samples=8, dim=3, seed=2)
ETA = 0.1 / PROBLEM.curvature
PAPER = A.losac(ETA / 4, 2, 2)
RUN = {"clients_per_round": 3, "dtype": "float64", "eval_every": 10**6}


def forms(history: History) -> dict[str, object]:
    """A run to go on from, in all forms in which one is given."""
    by_name = dataclasses.replace(history, state=flatten(history.state))
    return {"history": history, "state": history.state, "history of arrays": by_name, "arrays": by_name.state}


@pytest.fixture(scope="module")
def half():
    return losac.simulate(PROBLEM.task, PAPER, rounds=40, keep_state=True, **RUN)


@pytest.mark.parametrize("form", ["history", "state", "history of arrays", "arrays"])
@pytest.mark.parametrize(
    ("what", "task", "algorithm", "options"),
    [
        ("clients_per_round=3", PROBLEM.task, PAPER, {"clients_per_round": 2}),
        ("scaling='paper'", PROBLEM.task, PAPER.replace(scaling="exact"), {}),
        ("blocks=2", PROBLEM.task, PAPER.replace(blocks=3), {}),
        ("another algorithm, losac", PROBLEM.task, A.fedsaga(ETA, 2, 2), {}),
        ("dtype=float64", PROBLEM.task, PAPER, {"dtype": "float32"}),
        ("table_dtype=None", PROBLEM.task, PAPER, {"table_dtype": "bfloat16"}),
        ("data=", OTHER.task, PAPER, {}),
        ("reduction=sum", dataclasses.replace(PROBLEM.task, reduction="mean"), PAPER, {}),
        ("weights=uniform", dataclasses.replace(PROBLEM.task, weights=[1, 1, 1, 1, 1, 2]), PAPER, {}),
        ("regularizer=zero", dataclasses.replace(PROBLEM.task, regularizer=losac.prox.l1(0.1)), PAPER, {}),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_another_run_is_refused_by_name(half, what, task, algorithm, options, form):
    with pytest.raises(ValueError, match=what) as error:
        losac.simulate(task, algorithm, rounds=1, state=forms(half)[form], **RUN | options)
    assert "\n" not in str(error.value)


CHANGES = {
    "alpha": lambda v: 0.7 * v, "average": lambda v: "all", "batch_size": lambda v: 16, "blocks": lambda v: None,
    "clip_norm": lambda v: 1e6, "correction": lambda v: 0.3, "decay": lambda v: 0.9,
    "epochs": lambda v: None, "epsilon": lambda v: 2 * v, "levels": lambda v: 2 * v, "limit": lambda v: 1.5 * v,
    "local_optimizer": lambda v: optax.sgd, "local_steps": lambda v: v if v == 1 else 8, "measuring": lambda v: 0.5,
    "momentum": lambda v: 0.5 * v,
    "mu": lambda v: 2 * v, "omega": lambda v: 2 * v, "option": lambda v: 1, "probability": lambda v: 0.5,
    "prox_step": lambda v: "printed", "ratio": lambda v: 1, "refresh": lambda v: 0.8, "rho": lambda v: 0.5 * v,
    "server_iterations": lambda v: 15,
    "server_correction": lambda v: 0.4, "server_step": lambda v: v and 0.8 * v, "shift_step": lambda v: 0.7 * v,
    "sparsity": lambda v: 4, "step_size": lambda v: 0.8 * v, "strength": lambda v: 0.7 * v, "tau": lambda v: 2 * v,
    "weighting": lambda v: "average",
}  # fmt: skip
"""Another value for every setting that some algorithm declares to be free."""

SWINGS = {"fedlesam": 0.05}
"""How far apart two runs may end of a method that never comes to rest: for FedLESAM, twice its ρ."""

STATEFUL = {
    f"{entry.name} {getattr(entry.make(1.0, FULL), 'variant', '')}".strip(): entry
    for entry in reversed(CATALOGUE)
    if not entry.make(1.0, FULL).keeps_only_the_model
}
"""Every algorithm that keeps more than the model, in its first variant; all variants of FedADMM."""


def changed(algorithm):
    """The algorithm with all of its free settings changed, where it allows them at all."""
    free = algorithm.free - algorithm.bound(3).keys() - {"clients_per_round"}
    for name in sorted(free, key=lambda name: name != "blocks"):
        with contextlib.suppress(ValueError):  # it has no such setting for a reason
            algorithm = algorithm.replace(**{name: CHANGES[name](getattr(algorithm, name))})
    return algorithm


@pytest.mark.parametrize("name", [name for name, entry in STATEFUL.items() if entry.make(1.0, FULL).free])
def test_free_settings_do_not_move_the_end(name):
    """Begun with other settings, clients and blocks, a run ends where one from the start does: at the optimum, or else
    where the method settles."""
    entry, problem = STATEFUL[name], laws.problem()
    bound = {"blocks", "clients_per_round"} & entry.make(1.0, FULL).bound(3).keys()
    before = entry.make(problem.curvature, FULL if bound else RANDOM_BLOCKS)
    after = changed(entry.make(problem.curvature, FULL))
    run = {"dtype": "float64", "eval_every": 10**6, "layout": Layout(1, 1), "rounds": 2000}
    start = losac.simulate(
        problem.task, before, keep_state=True, **run | {"rounds": 7, "clients_per_round": 10 if bound else 3}
    )
    end = losac.simulate(problem.task, after, state=start.state, **run).params
    if entry.full == EXACT:
        assert problem.distance(end) < 1e-9
    else:
        swing = SWINGS.get(name, 1e-5)
        np.testing.assert_allclose(end, losac.simulate(problem.task, after, **run).params, rtol=0, atol=swing)


def other_value(setting, value):
    """Another value of a setting."""
    known = {
        "scaling": "exact",
        "variant": "appendix" if value == "gong" else "gong",
        "optimizer": "adam",
        "window": 5,
        "uploads": (A.qsgd(4),),
    }
    known |= {"weighting": "average", "blocks": 3, "clients_per_round": 4, "rho": 7.0, "server_step": 0.5}
    known |= {"first": 0.5, "memory": "round", "horizon": 7, "step_size": "auto" if value == "a number" else 0.37}
    known |= {"batch_size": 4, "local_steps": 7, "epochs": 2, "clip_norm": 1.0, "local_optimizer": optax.sgd}
    return known[setting]


@pytest.mark.parametrize("name", STATEFUL)
def test_every_other_setting_is_refused_by_name(name):
    """All settings that are not free, one by one; nothing has to run for that."""
    algorithm = STATEFUL[name].make(1.0, FULL)
    if algorithm.partial and algorithm.table:
        algorithm = algorithm.replace(blocks=2)
    plan = SimulationOptions.of(PROBLEM.task, rounds=1, clients_per_round=3, dtype="float64")
    made = identify(PROBLEM.task, algorithm, plan)
    for setting, value in algorithm.bound(3).items():
        other, planned = algorithm, plan
        if setting == "clients_per_round":
            planned = dataclasses.replace(plan, sampled=4)
        else:
            with contextlib.suppress(ValueError):
                other = algorithm.replace(**{setting: other_value(setting, value)})
        if (other, planned) != (algorithm, plan):
            with pytest.raises(ValueError, match=rf"\b{setting}="):
                require_same(identify(PROBLEM.task, other, planned), made, other)
    free = changed(algorithm)
    require_same(identify(PROBLEM.task, free, plan), made, free)


def test_nothing_is_free_unless_it_is_declared():
    class Mine(A.losac):
        """A method made from another: what was said of that need not hold here."""

    assert Mine(0.1, 2, 3).bound(5) == {**Mine(0.1, 2, 3).settings(), "blocks": 3, "clients_per_round": 5}

    class Plain(A.fedavg):
        """One that keeps the model and nothing else."""

    assert set(Plain(0.1).bound(5)) == {"uploads"}


@pytest.mark.parametrize(
    ("first", "second", "problem", "options"),
    [
        (PAPER, PAPER, PROBLEM, {"clients_per_round": 2}),
        (PAPER, PAPER.replace(step_size=ETA, scaling="exact"), PROBLEM, {}),
        (PAPER.replace(step_size=ETA, scaling="exact"), PAPER, PROBLEM, {}),
        (PAPER, PAPER, OTHER, {}),
        (A.scaffold(ETA, 3), A.scaffold(ETA, 3), OTHER, {"clients_per_round": 2}),
        (A.fedadmm(3 * ETA, 5, rho=3.0, variant="exact"), A.fedadmm(3 * ETA, 5, rho=9.0, variant="exact"), PROBLEM, {}),
        (A.feddyn(ETA, 5, alpha=9.0), A.feddyn(ETA, 5, alpha=9.0), PROBLEM, {"clients_per_round": 2}),
    ],
    ids=lambda value: value.label if isinstance(value, A.Algorithm) else "",
)
def test_an_adapted_state_reaches_the_optimum(first, second, problem, options):
    """The dtype, and with it S, the scaling, the data or ρ, changed on the way: the run still ends at the optimum."""
    half = losac.simulate(PROBLEM.task, first, rounds=40, keep_state=True, **RUN | {"dtype": "float32"})
    state = losac.adapt(half, problem.task, second, **{"clients_per_round": 3, "dtype": "float64"} | options)
    end = losac.simulate(problem.task, second, rounds=6000, state=state, **RUN | options)
    assert end.rounds[0] == 40
    assert problem.distance(end.params) < 1e-9


def test_what_cannot_be_adapted_is_refused(half):
    with pytest.raises(ValueError, match="one of losac simulated by jax; adapt takes those of scaffold"):
        losac.adapt(half, PROBLEM.task, A.scaffold(ETA, 2))
    run = losac.simulate(PROBLEM.task, A.fedvarp(ETA, 2), rounds=2, keep_state=True)
    with pytest.raises(ValueError, match="fedvarp keeps sums that cannot be formed again"):
        losac.adapt(run, PROBLEM.task, A.fedvarp(ETA, 2), dtype="float64")
    with pytest.raises(ValueError, match=r"dtype=float32 \(here float64\).*begin a new run"):
        losac.simulate(PROBLEM.task, A.fedvarp(ETA, 2), rounds=1, state=run, dtype="float64")
    with pytest.raises(ValueError, match="shape"):
        losac.adapt(half, PROBLEM.task, PAPER.replace(blocks=3), dtype="float64")


@pytest.mark.parametrize("form", ["history", "state", "history of arrays", "arrays"])
def test_a_state_that_was_changed_must_fulfil_the_invariant(half, form):
    wrong = half.state._replace(server=half.state.server._replace(phi=2 * half.state.server.phi))
    with pytest.raises(ValueError, match="φ ≠ κ"):
        losac.simulate(PROBLEM.task, PAPER, rounds=1, state=forms(dataclasses.replace(half, state=wrong))[form], **RUN)
    right = map_trees(lambda a: 2 * a, (half.state.server.phi, half.state.store.table))
    server, store = half.state.server._replace(phi=right[0]), half.state.store._replace(table=right[1])
    doubled = dataclasses.replace(half, state=half.state._replace(server=server, store=store))
    losac.simulate(PROBLEM.task, PAPER, rounds=1, state=forms(doubled)[form], **RUN)


@pytest.mark.parametrize("form", ["history", "state", "history of arrays", "arrays"])
def test_honest_rounding_is_no_fault(form):
    """A long run in single precision loses more of φ = κ Σ y than an invariant to 1e-3 allows, once the gradients have
    become small; it still goes on."""
    run = losac.simulate(PROBLEM.task, PAPER, rounds=2, keep_state=True, clients_per_round=3)
    table = map_trees(lambda a: a * np.float32(1e-7), run.state.store.table)
    drifted = run.state._replace(store=run.state.store._replace(table=table))
    drifted = drifted._replace(identity=drifted.identity.sealed(drifted))  # as if the run itself had come to it
    history = dataclasses.replace(run, state=drifted)
    losac.simulate(PROBLEM.task, PAPER, rounds=1, state=forms(history)[form], clients_per_round=3)


def test_a_state_without_an_identity(half, caplog):
    """Of an earlier version, or made by hand: a state must fulfil the invariant, and arrays by name are warned of."""
    bare = half.state._replace(identity=())
    assert np.array_equal(
        losac.simulate(PROBLEM.task, PAPER, rounds=3, state=bare, **RUN).params,
        losac.simulate(PROBLEM.task, PAPER, rounds=3, state=half, **RUN).params,
    )
    with pytest.raises(ValueError, match="φ ≠ κ"):
        losac.simulate(PROBLEM.task, PAPER, rounds=1, state=bare, **RUN | {"clients_per_round": 2})
    losac.simulate(PROBLEM.task, PAPER, rounds=1, state=flatten(bare), **RUN | {"clients_per_round": 2})
    assert "does not say what it belongs to" in caplog.text


def test_another_seed_takes_over_all_that_is_random(half):
    """The state of a run can be gone on from with several seeds, and more than once."""
    ends = [losac.simulate(PROBLEM.task, PAPER, rounds=5, state=half.state, seed=s, **RUN).params for s in (0, 1, 1)]
    assert np.array_equal(ends[1], ends[2])
    assert not np.array_equal(ends[0], ends[1])
    rest = losac.simulate(PROBLEM.task, PAPER, rounds=5, state=half, **RUN)
    assert np.array_equal(rest.params, ends[0])


def test_harmless_options_go_on(half):
    options = {"eval_every": 2, "layout": Layout(3, 1), "store": "memory", "matmul": "float32", "loss_every": 2}
    options |= {"local_steps": [1, 2, 3, 1, 2, 3], "sampling": "uniform", "keep_state": True}
    rest = losac.simulate(PROBLEM.task, PAPER.replace(step_size=ETA / 8), rounds=4, state=half, **RUN | options)
    assert rest.rounds.tolist() == [0, 40, 42, 44]
    assert rest.state.identity == half.state.identity


def test_the_fingerprint_of_data(tmp_path):
    """It is that of the content, wherever this lies, and of who holds what; cheap for a million clients."""
    data = losac.data.load("digits", clients=10, partition="sorted")
    mapped = losac.data.map_npy(losac.data.write_npy(tmp_path, data))
    assert fingerprint(mapped) == fingerprint(data) == fingerprint(dataclasses.replace(data, name="other", test=None))
    x = data.x.copy()
    x[700, 3] += 1
    shifted = data.offsets.copy()
    shifted[1] += 1
    others = [dataclasses.replace(data, x=x), dataclasses.replace(data, offsets=shifted), data.subset(range(9))]
    assert len({fingerprint(one) for one in (data, *others)}) == 4
    many = losac.FederatedData(np.zeros((10**6, 8)), np.zeros(10**6), np.arange(10**6 + 1))
    began = time.perf_counter()
    whole = fingerprint(many)
    assert time.perf_counter() - began < 2
    many.x[-1] = 1
    assert fingerprint(many) != whole


@pytest.mark.parametrize("rounds", [8, 12], ids=["finished", "made longer"])
def test_a_run_in_a_folder_is_resumed_with_the_same_problem_only(tmp_path, rounds):
    """Also where the configuration in the folder is the same, such as with a file of another content."""
    options = {"clients_per_round": 3}
    record(PROBLEM.task, PAPER, tmp_path, rounds=8, **options)
    other = dataclasses.replace(PROBLEM.task, regularizer=losac.prox.l1(0.1))
    kept = {path.name: path.read_bytes() for path in tmp_path.iterdir() if path.is_file() and path.name != "log.txt"}
    for task, what in ((OTHER.task, "other data"), (other, "regularizer = None")):
        with pytest.raises(ValueError, match=re.escape(what)):
            record(task, PAPER, tmp_path, rounds=rounds, resume=True, **options)
    assert {name: (tmp_path / name).read_bytes() for name in kept} == kept
    assert record(PROBLEM.task, PAPER, tmp_path, rounds=rounds, resume=True, **options).rounds[-1] == rounds


def test_pytorch_makes_the_same_check():
    torch = pytest.importorskip("torch")
    module, mse = torch.nn.Linear(3, 1, bias=False).double(), lambda outputs, y: ((outputs[:, 0] - y) ** 2).mean()

    def run(algorithm=PAPER, data=PROBLEM.data, **options):
        return losac.torch.simulate(module, mse, data, algorithm, **{"rounds": 2, "clients_per_round": 3} | options)

    half = run(keep_state=True)
    for form in (half, half.state):
        assert np.array_equal(run(state=form).params["weight"], run(rounds=4).params["weight"])
        for what, options in (
            ("clients_per_round=3 (here 2)", {"clients_per_round": 2}),
            ("scaling='paper' (here 'exact')", {"algorithm": PAPER.replace(scaling="exact")}),
            ("data=", {"data": OTHER.data}),
            ("dtype=float64 (here float32)", {"dtype": "float32"}),
            ("reduction=sum (here mean)", {"reduction": "mean"}),
        ):
            with pytest.raises(ValueError, match=re.escape(what) + ".*begin a new run from its model"):
                run(state=form, **options)
        with pytest.raises(ValueError, match="engine=torch"):
            losac.simulate(PROBLEM.task, PAPER, rounds=1, state=form, **RUN)
    wrong = half.state._replace(server=half.state.server._replace(phi=map_trees(np.ones_like, half.state.server.phi)))
    for form in (wrong, dataclasses.replace(half, state=wrong)):
        with pytest.raises(ValueError, match="φ ≠ κ"):
            run(state=form)
