"""The simulator's promises: ragged clients exactly, drawing, sampling, weights, divergence, what a loss may take."""

from __future__ import annotations

import dataclasses
from itertools import combinations

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import losac
from losac.simulation import Layout
from losac.simulation.sampling import Available, Uniform, Weighted, draw_clients
from problems import quadratic

A = losac.algorithms
PROBLEM = quadratic(clients=6, samples=8, dim=3)
ETA = 0.1 / PROBLEM.curvature


def least_squares(clients, **options):
    data = losac.FederatedData.from_clients(clients)
    return losac.regression(losac.models.linear(clients[0][0].shape[1]), data, **options)


def random_clients(sizes, dim=2, seed=0, dtypes=(np.float64,)):
    rng = np.random.default_rng(seed)
    return [
        (
            rng.normal(size=(n, dim)).astype(dtypes[i % len(dtypes)]),
            rng.normal(size=n).astype(dtypes[-1 - i % len(dtypes)]),
        )
        for i, n in enumerate(sizes)
    ]


@settings(max_examples=12, deadline=None)
@given(
    sizes=st.lists(st.integers(1, 7), min_size=1, max_size=4),
    blocks=st.integers(1, 3),
    reduction=st.sampled_from(["sum", "mean"]),
    dtypes=st.sampled_from([(np.float64,), (np.float32, np.float64), (np.int64, np.float64)]),
)
def test_a_ragged_client_gives_the_same_as_alone(sizes, blocks, reduction, dtypes):
    """Blocks that do not divide n_i, one sample per client, larger neighbours, mixed dtypes: nothing leaks in."""
    clients = random_clients([max(sizes[0], blocks), *(n + blocks for n in sizes[1:])], dtypes=dtypes)
    algorithm = A.fedavg(0.05, 3, blocks)
    together = losac.simulate(
        least_squares(clients, reduction=reduction), algorithm, rounds=2, clients_per_round=1, sampling=[[0]],
        eval_every=2, dtype="float64",
    )  # fmt: skip
    alone = losac.simulate(
        least_squares(clients[:1], reduction=reduction), algorithm, rounds=2, eval_every=2, dtype="float64"
    )
    np.testing.assert_allclose(together.params, alone.params, rtol=1e-12, atol=1e-14)


def test_padding_cannot_leak_even_where_it_would_not_be_finite():
    """A loss that is infinite on zeros, and a neighbour on whose rows it is 1e300, leave the gradient clean."""
    clients = [(np.array([[1.0], [2.0], [3.0]]), np.ones(3)), (np.full((5, 1), 1e-300), np.ones(5))]

    def loss(params, batch):
        return jnp.mean(params**2 / batch[0][:, 0])

    task = losac.Task(loss, jnp.ones(()), losac.FederatedData.from_clients(clients))
    run = losac.simulate(task, A.fedavg(0.01, 2, 2), rounds=2, clients_per_round=1, sampling=[[0]], eval_every=2,
                         dtype="float64", loss_every=1000)  # fmt: skip
    assert np.isfinite(run.params)
    assert run.params < 1


@pytest.mark.parametrize("sizes", [[4, 4, 4], [1, 1, 1], [5, 2, 9]], ids=str)
def test_one_full_round_is_the_gradient_of_the_objective(sizes):
    """DSGD's step is η times the gradient of Σ p_i f_i, for both reductions and all weights."""
    clients = random_clients(sizes, seed=3)
    for reduction in ("sum", "mean"):
        for weights in ("uniform", "samples", [0.5, 0.2, 0.3]):
            task = least_squares(clients, reduction=reduction, weights=weights)
            p = {"uniform": np.ones(3) / 3, "samples": np.array(sizes) / sum(sizes)}.get(str(weights), weights)
            f = [x.T @ -y / (len(y) if reduction == "mean" else 1) for x, y in clients]
            run = losac.simulate(task, A.dsgd(0.1), rounds=1, dtype="float64")
            np.testing.assert_allclose(run.params, -0.1 * np.tensordot(p, f, 1), rtol=1e-12)
            losses = [0.5 * (x @ run.params - y) ** 2 for x, y in clients]
            per_client = [v.sum() if reduction == "sum" else v.mean() for v in losses]
            norm = np.dot(p, sizes) if reduction == "sum" else 1
            np.testing.assert_allclose(run.metrics["loss"][-1], np.dot(p, per_client) / norm, rtol=1e-12)


@pytest.mark.parametrize(
    "algorithm", [A.losac(ETA, 4, 2, scaling="exact"), A.scaffold(ETA, 4), A.dsgd(ETA)], ids=lambda a: a.label
)
def test_client_weights_mean_the_same_problem_for_every_algorithm(algorithm):
    weights = [1.0, 2.0, 0.0, 1.0, 3.0, 1.0]
    task = losac.regression(losac.models.linear(3), PROBLEM.data, weights=weights)
    due = losac.data.least_squares_optimum(PROBLEM.data, weights=np.array(weights) / sum(weights))
    run = losac.simulate(task, algorithm, rounds=5000, eval_every=5000, dtype="float64")
    np.testing.assert_allclose(run.params, due, atol=1e-9)


def test_fedavg_by_weighted_average():
    """weighting="average": plain local steps, and the models averaged with the weights p_i."""
    weights = np.array([1.0, 2.0, 3.0, 1.0, 1.0, 2.0])
    task = losac.regression(losac.models.linear(3), PROBLEM.data, weights=weights)
    run = losac.simulate(task, A.fedavg(ETA, 3, weighting="average"), rounds=1, dtype="float64")
    moved = []
    for x, y in map(PROBLEM.data.client, range(6)):
        w = np.zeros(3)
        for _ in range(3):
            w = w - ETA * x.T @ (x @ w - y)
        moved.append(w)
    np.testing.assert_allclose(run.params, np.tensordot(weights / weights.sum(), moved, 1), rtol=1e-12)


def test_more_blocks_than_samples_is_refused():
    with pytest.raises(ValueError, match="blocks=5, but client 1 has only 3 samples"):
        losac.simulate(least_squares(random_clients([9, 3])), A.losac(0.1, 2, 5), rounds=1)


def test_shuffled_batches_visit_every_sample_once_an_epoch():
    """With a loss linear in the parameters, an epoch moves by the sum of the batch means, whatever the order."""
    sizes, batch = [7, 4, 10], 4
    clients = [(np.arange(n, dtype=float)[:, None] + 100 * i, np.zeros(n)) for i, n in enumerate(sizes)]

    def loss(params, batch):
        return jnp.mean(params * batch[0][:, 0] ** 2)

    task = losac.Task(loss, jnp.zeros(()), losac.FederatedData.from_clients(clients), reduction="mean")
    for client, n in enumerate(sizes):
        if n % batch:
            continue
        run = losac.simulate(task, A.fedavg(1.0, batch_size=batch, epochs=3), rounds=1, clients_per_round=1,
                             sampling=[[client]], dtype="float64")  # fmt: skip
        np.testing.assert_allclose(
            run.params, -3 * (clients[client][0] ** 2).reshape(-1, batch).mean(1).sum(), rtol=1e-12
        )
    seven = losac.simulate(
        task, A.fedavg(1.0, batch_size=batch, epochs=1), rounds=1, clients_per_round=1, sampling=[[0]], dtype="float64"
    )
    squares = np.arange(7.0) ** 2
    possible = {round(sum(four) / 4 + (squares.sum() - sum(four)) / 3, 9) for four in combinations(squares, 4)}
    assert round(-float(seven.params), 9) in possible
    assert seven.gradients[-1] == 7


def test_local_steps_over_batches_continue_through_epochs():
    clients = random_clients([6, 6])
    task = least_squares(clients, reduction="mean")
    by_epochs = losac.simulate(task, A.fedavg(0.1, batch_size=3, epochs=2), rounds=2, dtype="float64")
    by_steps = losac.simulate(task, A.fedavg(0.1, local_steps=4, batch_size=3), rounds=2, dtype="float64")
    np.testing.assert_allclose(by_epochs.params, by_steps.params, rtol=1e-13)


def test_sampling_is_uniform_without_replacement_and_seeded():
    ids, active = draw_clients(Uniform(20, 5), 7, 0, 400, 20, 5)
    assert active.all()
    assert all(len(set(row)) == 5 for row in ids)
    counts = np.bincount(ids.ravel(), minlength=20)
    assert abs(counts - 100).max() < 45  # 100 ± 4.5 standard deviations
    again, _ = draw_clients(Uniform(20, 5), 7, 150, 100, 20, 5)
    assert np.array_equal(ids[150:250], again)
    other, _ = draw_clients(Uniform(20, 5), 8, 0, 400, 20, 5)
    assert not np.array_equal(ids, other)


def test_other_ways_to_sample():
    weighted, _ = draw_clients(Weighted(np.array([0.0, 1.0, 3.0, 0.0]), 1), 0, 0, 300, 4, 1)
    share = np.bincount(weighted.ravel(), minlength=4) / 300
    assert share[0] == share[3] == 0
    assert 0.65 < share[2] < 0.85
    trace = np.array([[True, False, True, True], [False, True, False, False]])
    ids, active = draw_clients(Available(trace, 2), 0, 0, 2, 4, 2)
    assert 1 not in ids[0]
    assert active.sum(1).tolist() == [2, 1]
    assert ids[1, 0] == 1


def test_a_sampler_may_look_at_the_history():
    seen = []

    def sampler(round_index, rng, history):
        seen.append((round_index, int(history.rounds[-1])))
        return [round_index % 6, (round_index + 1) % 6]

    run = losac.simulate(PROBLEM.task, A.fedavg(ETA), rounds=4, clients_per_round=2, sampling=sampler)
    assert seen == [(0, 0), (1, 1), (2, 2), (3, 3)]
    assert run.rounds.tolist() == [0, 1, 2, 3, 4]


@pytest.mark.parametrize(
    ("sampling", "message"),
    [([[0, 0]], "different clients"), ([[9]], "outside"), ([[0, 1, 2]], "clients_per_round=2"), ("unform", "must be")],
)
def test_bad_samplers_are_refused(sampling, message):
    with pytest.raises(ValueError, match=message):
        losac.simulate(PROBLEM.task, A.fedavg(ETA), rounds=1, clients_per_round=2, sampling=sampling)


def test_a_method_that_needs_everybody_takes_no_lists():
    with pytest.raises(ValueError, match="every client in every round"):
        losac.simulate(PROBLEM.task, A.scaffnew(ETA), rounds=1, sampling=[[0, 1]])


def test_divergence_is_named_and_what_was_measured_is_kept():
    with pytest.raises(
        losac.DivergedError, match=r"losac with step_size=10 diverged at round \d+.*try step_size=2\.5"
    ) as caught:
        losac.simulate(PROBLEM.task, A.losac(10.0, 5, 2), rounds=400, clients_per_round=2)
    history = caught.value.history
    assert history.diverged is not None
    assert len(history.rounds) >= 2
    assert history.rounds[-1] < history.diverged
    assert np.isfinite(history.metrics["loss"]).all()


def test_schedules_of_the_step_size():
    """A schedule over rounds equals the runs with its values, one after the other."""
    schedule = optax.piecewise_constant_schedule(ETA, {2: 0.1})
    whole = losac.simulate(PROBLEM.task, A.scaffold(schedule, 3), rounds=4, clients_per_round=3, dtype="float64")
    first = losac.simulate(
        PROBLEM.task, A.scaffold(ETA, 3), rounds=2, clients_per_round=3, dtype="float64", keep_state=True
    )
    rest = losac.simulate(
        PROBLEM.task, A.scaffold(0.1 * ETA, 3), rounds=2, clients_per_round=3, dtype="float64", state=first.state
    )
    np.testing.assert_allclose(whole.params, rest.params, rtol=1e-6)  # optax's schedule counts in single precision


def test_local_optimisers_and_clipping_of_fedavg():
    x, y = PROBLEM.data.client(0)
    task = least_squares([(x, y)])
    run = losac.simulate(task, A.fedavg(0.01, 3, local_optimizer=optax.adam), rounds=1, dtype="float64")
    w, state = np.zeros(3), optax.adam(0.01).init(np.zeros(3))
    for _ in range(3):
        updates, state = optax.adam(0.01).update(x.T @ (x @ w - y), state, w)
        w = w + np.asarray(updates)
    np.testing.assert_allclose(run.params, w, rtol=1e-5)
    clipped = losac.simulate(task, A.fedavg(0.01, 1, clip_norm=0.5), rounds=1, dtype="float64")
    assert np.linalg.norm(clipped.params) == pytest.approx(0.01 * 0.5)
    loose = losac.simulate(task, A.fedavg(1e-5, 1, clip_norm=1e9), rounds=1, dtype="float64")
    np.testing.assert_allclose(loose.params, 1e-5 * x.T @ y, rtol=1e-12)


@pytest.mark.parametrize(
    "loss",
    [
        lambda p, batch: ((batch[0] - p) ** 2).sum(),
        lambda p, batch: jnp.sqrt(((batch[0] - p) ** 2).mean()),
        lambda p, batch: (p * batch[0] ** 2).mean() - (p * batch[0].mean()) ** 2,
    ],
    ids=["a sum", "a root of a mean", "a variance"],
)
def test_a_loss_that_is_no_mean_over_rows_is_refused_unless_it_says_so(loss):
    """Its values were means of the rows' one by one (0 for the variance), while even batches trained on all at once."""
    rng = np.random.default_rng(0)
    data = losac.FederatedData.from_clients([(rng.normal(size=n), np.zeros(n)) for n in (3, 5)])
    task, fedavg = losac.Task(loss, jnp.ones(()), data), losac.algorithms.fedavg(0.01)
    for run in (losac.simulate, lambda *given, **how: losac.sweep(*given, {"step_size": [0.01]}, **how)):
        with pytest.raises(ValueError, match="the loss is not a mean over rows: on 8 rows"):
            run(task, fedavg, rounds=1)
    losac.simulate(dataclasses.replace(task, coupled=True), fedavg, rounds=1)


def test_a_coupled_loss_sees_only_real_rows():
    """A loss of batch statistics on ragged clients: each client's own variance, no padding, no neighbours."""
    clients = random_clients([3, 5, 2], dim=1, seed=5)

    def loss(params, batch):
        return jnp.var(batch[0]) * params

    task = losac.Task(loss, jnp.zeros(()), losac.FederatedData.from_clients(clients), reduction="mean", coupled=True)
    for layout in (Layout(1, 1), Layout(3, 1)):
        run = losac.simulate(task, A.fedavg(1.0, 1), rounds=1, dtype="float64", layout=layout)
        np.testing.assert_allclose(run.params, -np.mean([x.var() for x, _ in clients]), rtol=1e-12)


def test_a_loss_may_take_a_key_and_a_state():
    """The key differs between steps and clients; the state is carried through the steps and averaged."""

    def loss(params, batch, state, key):
        count = state["count"] + 1
        return params * jax.random.normal(key) + 0 * count, {"count": count}

    task = losac.Task(
        loss, jnp.zeros(()), losac.FederatedData.from_clients(random_clients([4, 4])), state={"count": jnp.zeros(())},
        reduction="mean",
    )  # fmt: skip
    run = losac.simulate(task, A.fedavg(1.0, 3), rounds=2, dtype="float64")
    assert run.model_state["count"] == pytest.approx(6)
    assert run.params != 0
    assert run.bytes_up[-1] == 2 * 2 * (8 + 8)


def test_losac_keeps_its_word_in_single_precision():
    run = losac.simulate(PROBLEM.task, A.losac(ETA / 20, 4, 2), rounds=3000, clients_per_round=3, eval_every=3000)
    assert run.params.dtype == np.float32
    assert np.abs(run.params - PROBLEM.optimum).max() < 1e-5


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"rounds": 0}, "rounds=0 must be a whole number"),
        ({"clients_per_round": 7}, "must lie between 1 and the number of clients, 6"),
        ({"dtype": "float16"}, "must be 'float32' or 'float64'"),
        ({"local_steps": [1, 2]}, "for each of the 6 clients"),
        ({"eval_every": 2.5}, "eval_every=2.5"),
    ],
    ids=str,
)
def test_bad_arguments_get_a_clear_error(change, message):
    with pytest.raises(ValueError, match=message):
        losac.simulate(PROBLEM.task, A.fedavg(ETA), **({"rounds": 1} | change))


def test_a_regulariser_needs_a_proximal_method():
    task = losac.regression(losac.models.linear(3), PROBLEM.data, regularizer=losac.prox.l1(0.1))
    with pytest.raises(ValueError, match="fedavg has no proximal step"):
        losac.simulate(task, A.fedavg(ETA), rounds=1)


def test_cost_of_a_round_does_not_grow_with_the_number_of_clients():
    """The compiled round of SCAFFOLD does the same number of floating-point operations for N = 40 and N = 4000."""
    from losac.simulation.engines.resident import ResidentEngine
    from losac.simulation.options import SimulationOptions
    from losac.simulation.program import rounds as program

    flops = []
    for n in (40, 4000):
        data = losac.FederatedData.from_clients(random_clients([2] * n))
        task = losac.regression(losac.models.linear(2), data)
        options = SimulationOptions.of(task, rounds=1, clients_per_round=4, gradients="formed")
        engine = ResidentEngine(task, A.scaffold(0.1, 2), options)
        ids, active = np.arange(4, dtype=np.int32), np.ones(4, bool)
        lowered = jax.jit(program.one_round, static_argnums=0).lower(
            engine.shape, engine.problem, engine.state, ids, active
        )
        flops.append(lowered.compile().cost_analysis()["flops"])
    assert flops[1] < 1.01 * flops[0]


@pytest.mark.parametrize("layout", [Layout(1, 1), None])
@pytest.mark.parametrize("method", [A.losac, A.fedsaga])
def test_more_steps_than_the_algorithms_own_have_entries_of_their_own(method, layout):
    """A client may draw more blocks than the algorithm's T: each has its y_j."""
    run = {"rounds": 9, "clients_per_round": 3, "dtype": "float64", "layout": layout}
    wanted = losac.simulate(PROBLEM.task, method(ETA, 3, 4), **run)
    found = losac.simulate(PROBLEM.task, method(ETA, 1, 4), local_steps=[3] * 6, **run)
    np.testing.assert_allclose(found.params, wanted.params, rtol=1e-12)
    steps = [1, 2, 3, 4, 5, 6]
    many, few = (losac.simulate(PROBLEM.task, method(ETA, t, 4), local_steps=steps, **run) for t in (6, 1))
    np.testing.assert_allclose(few.params, many.params, rtol=1e-12)
