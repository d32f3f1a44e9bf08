"""Gradients kept as products: the same algorithms, in less memory and time."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import losac
from losac.simulation.engines.resident import ResidentEngine, precision
from losac.simulation.options import SimulationOptions
from losac.simulation.placement.layout import Layout
from losac.simulation.products.forms import entry_size, formed_table
from losac.simulation.products.layers import find_layers, gradient, trace
from losac.simulation.products.matrices import Matrix, Outer, UnsupportedMatrixError, rounded
from losac.simulation.program import setup

A = losac.algorithms
METHODS = {
    "fedavg": A.fedavg(0.02, 2, 4),
    "mime_svrg": A.mime_svrg(0.02, 2, 4),
    "fedsaga": A.fedsaga(0.02, 3, 4),
    "losac, paper": A.losac(0.005, 2, 4),
    "losac, exact": A.losac(0.05, 2, 1, scaling="exact"),
    "losac_lean": A.losac_lean(0.05, 3, 4),
}


@pytest.fixture(scope="module")
def task() -> losac.Task:
    data = losac.data.load("digits", clients=9, partition="dirichlet:1.0")
    return losac.classification(losac.models.Dense((64, 12, 10)), data, reduction="mean")


def run(task: losac.Task, algorithm: A.Algorithm, gradients: str, **options) -> losac.History:
    options = {"rounds": 6, "clients_per_round": 4, "eval_every": 6, "dtype": "float64", "keep_state": True} | options
    return losac.simulate(task, algorithm, gradients=gradients, **options)


def largest(a: object, b: object) -> float:
    pairs = zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True)
    return max(float(np.abs(u - v).max() / (1e-12 + np.abs(u).max())) for u, v in pairs)


def test_matrices_add_subtract_and_scale_as_arrays_do():
    rng = np.random.default_rng(0)
    x, phi = rng.normal(size=(2, 5, 3))
    a, b, c = rng.normal(size=(2, 5)), rng.normal(size=(2, 3)), rng.normal(size=(2, 3))
    g, y = (Matrix((5, 3), (), (Outer(a, entry),), True) for entry in (b, c))
    server = Matrix((5, 3), ((1.0, x),), (), True)
    ours = server - 0.1 * (phi / 7 - y + g) / 2
    with precision("float64"):
        np.testing.assert_allclose(ours.dense(), x - 0.1 * (phi / 7 - a.T @ c + a.T @ b) / 2, rtol=1e-12)
    assert len(ours.outers) == 1, "products with the same inputs are one product"
    assert (ours - server).known[0][1] is not x, "the server's own array cancels"
    with pytest.raises(UnsupportedMatrixError, match="times something of shape"):
        g * x


def test_dense_layers_are_found_however_deep_and_only_if_they_are_that():
    x = jnp.ones((4, 6))
    inner = jax.jit(lambda w, h: jax.nn.relu(h @ w))

    def loss(p):
        h = inner(p["deep"], x) @ p["next"]
        return (h @ p["twice"] @ p["twice"]).sum() + (p["turned"] @ h.T).sum() + h @ p["vector"] @ jnp.ones(4), ()

    shapes = {"deep": (6, 5), "next": (5, 3), "twice": (3, 3), "turned": (2, 3), "vector": (3,)}
    found = find_layers(loss, {name: jnp.ones(shape) for name, shape in shapes.items()})
    layers = dict(zip(sorted(shapes), found))
    assert (layers["twice"], layers["turned"]) == (None, None)
    assert (layers["deep"].rows, layers["deep"].inputs, layers["deep"].outputs) == (4, 6, 5)
    assert [layers[name].data for name in ("deep", "next", "vector")] == [True, False, False]
    assert layers["vector"].outputs == 1


def test_a_parameter_that_the_loss_also_regularises_is_not_only_a_layer():
    loss = losac.losses.BinaryCrossEntropy(losac.models.logistic_regression(6), l2=0.1)
    params = losac.models.logistic_regression(6).init(jax.random.key(0))
    batch = (jnp.ones((4, 6)), jnp.ones(4, int))
    assert find_layers(lambda p: (loss(p, batch), ()), params) == [None, None]


def test_the_products_are_the_gradient():
    model = losac.models.Dense((6, 5, 3))
    loss, params = losac.losses.CrossEntropy(model), model.init(jax.random.key(0))
    batch = (jax.random.normal(jax.random.key(1), (4, 6)), jnp.array([0, 2, 1, 1]))

    layers = find_layers(lambda p: (loss(p, batch), ()), params)
    traced = trace(lambda p: (loss(p, batch), ()), params, layers)
    ours, _ = gradient(traced, params, layers)
    theirs = jax.grad(loss)(params, batch)
    formed = jax.tree.map(lambda leaf: leaf.dense() if isinstance(leaf, Matrix) else leaf, ours)
    assert largest(theirs, formed) < 1e-5
    assert [type(leaf) is Matrix for leaf in jax.tree.leaves(ours)] == [False, True, False, True]


@pytest.mark.parametrize("name", METHODS)
def test_the_numbers_are_those_of_formed_gradients(task, name):
    formed, factored = (run(task, METHODS[name], how) for how in ("formed", "factored"))
    assert largest(formed.params, factored.params) < 1e-11


@pytest.mark.parametrize("layout", [Layout(1, 1), Layout(2, 2)])
def test_any_layout_gives_the_same(task, layout):
    method = METHODS["losac, paper"]
    formed, factored = run(task, method, "formed"), run(task, method, "factored", layout=layout)
    assert largest(formed.params, factored.params) < 1e-11


def factored(task, sampled, **more):
    return SimulationOptions.of(task, rounds=1, clients_per_round=sampled, gradients="factored", **more)


def test_methods_that_do_more_than_add_and_scale_fall_back(task):
    import optax

    clipped = A.fedavg(0.02, 2, 4, clip_norm=0.1)
    adam = A.fedavg(0.02, 2, 4, local_optimizer=optax.adam)
    for method in (clipped, adam, A.scaffold(0.02, 2, 4), A.losac(0.01, 2, 4, uploads=(A.qsgd(4),))):
        shape = setup.program_shape(task, method, factored(task, 4))
        assert all(form.factoring is None or not form.factoring.lazy_shapes for form in shape.client.phases)
    np.testing.assert_array_equal(
        run(task, clipped, "factored").metric("loss"), run(task, clipped, "formed").metric("loss")
    )


def test_the_paper_s_network_takes_a_twentieth_of_the_memory():
    data = losac.FederatedData.from_clients([(np.ones((60, 784), np.float32), np.zeros(60, int))] * 100)
    task = losac.classification(losac.models.two_nn(), data)
    shape = setup.program_shape(task, A.losac(1e-4, 5, 5), factored(task, 10))
    size = entry_size(shape.client, 199210)
    assert size == 12 * (200 + 200 + 200 + 200 + 10) + 410
    assert 199210 / size > 19


@pytest.mark.parametrize(
    "method", [A.fedavg(1e-4, 5, 5), A.losac(1e-4, 5, 5), A.losac_lean(1e-4, 5, 5)], ids=lambda m: m.label
)
def test_local_models_of_the_paper_s_network_stay_apart(method):
    data = losac.FederatedData.from_clients([(np.ones((60, 784), np.float32), np.zeros(60, int))] * 4)
    task = losac.classification(losac.models.two_nn(), data)
    shape = setup.program_shape(task, method, factored(task, 2))
    (form,) = shape.client.phases
    assert form.factoring.lazy_shapes >= {(784, 200), (200, 200)}


def test_a_linear_model_keeps_one_residual_for_each_row_and_output():
    data = losac.FederatedData.from_clients([(np.ones((20, 30)), np.ones(20))] * 4)
    task = losac.regression(losac.models.linear(30), data)
    shape = setup.program_shape(task, A.losac(1e-4, 2, 5), factored(task, 4))
    assert entry_size(shape.client, 30) == 4


def test_the_table_can_be_formed_and_phi_is_its_sum(task):
    with precision("float64"):
        engine = ResidentEngine(task, METHODS["losac, paper"], factored(task, 4, dtype="float64"))
        list(engine.run(losac.simulation.Uniform(9, 4), [5], False, lambda: None))
        table = formed_table(engine.shape, engine.problem, engine.state.store.table)
        due = jax.tree.map(lambda y: 9 / 4 * np.asarray(y).sum((0, 1)), table)
        assert largest(engine.state.server.phi, due) < 1e-11


def test_a_run_goes_on_from_its_state_and_an_inconsistent_one_is_refused(task):
    method = METHODS["losac, paper"]
    whole, half = (run(task, method, "factored", rounds=rounds) for rounds in (6, 3))
    rest = run(task, method, "factored", rounds=3, state=half.state)
    assert largest(whole.params, rest.params) == 0
    phi = jax.tree.map(lambda a: a + 1, half.state.server.phi)
    wrong = half.state._replace(server=half.state.server._replace(phi=phi))
    with pytest.raises(ValueError, match="φ ≠ κ"):
        run(task, method, "factored", rounds=1, state=wrong)


def test_a_table_of_less_precision_still_sums_to_phi(task):
    with precision("float64"):
        options = factored(task, 4, dtype="float64", table_dtype="bfloat16")
        engine = ResidentEngine(task, METHODS["losac, paper"], options)
        list(engine.run(losac.simulation.Uniform(9, 4), [8], False, lambda: None))
        kinds = {str(leaf.dtype) for leaf in jax.tree.leaves(engine.state.store.table)}
        table = formed_table(engine.shape, engine.problem, engine.state.store.table)
        due = jax.tree.map(lambda y: 9 / 4 * np.asarray(y).sum((0, 1)), table)
        assert kinds == {"bfloat16"}
        assert largest(engine.state.server.phi, due) < 1e-11


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
@pytest.mark.parametrize("computed", ["float32", "float64"])
def test_rounded_is_what_the_dtype_holds_also_when_compiled(dtype, computed):
    with precision(computed):
        a = jnp.asarray(np.random.default_rng(0).standard_normal(400) * np.logspace(-7, 3, 400), computed)
        values = jax.jit(lambda a: rounded({"w": a}, dtype))(a)["w"]
        assert values.dtype == computed
        np.testing.assert_array_equal(values, np.asarray(values).astype(dtype).astype(computed))
        np.testing.assert_allclose(values, a, rtol=float(jnp.finfo(dtype).eps) / 2, atol=3e-8)


def test_other_step_sizes_seeds_and_rounds_are_not_compiled_anew(task):
    from losac.simulation.engines.resident import _run

    def once(eta: float, seed: int, rounds: int) -> None:
        run(task, A.losac(eta, 2, 4), "factored", seed=seed, rounds=rounds, eval_every=2)

    once(0.005, 0, 4)
    before = _run._cache_size()
    once(0.001, 1, 4), once(0.002, 2, 9)
    assert _run._cache_size() == before


@pytest.mark.parametrize(
    ("option", "words"),
    [({"gradients": "lazy"}, "'auto', 'formed' or 'factored'"), ({"table_dtype": "int8"}, "bfloat16"),
     ({"matmul": "half"}, "tensorfloat32")],
)  # fmt: skip
def test_wrong_options_are_named(task, option, words):
    with pytest.raises(ValueError, match=words):
        losac.simulate(task, METHODS["fedavg"], rounds=1, **option)


def test_a_rounded_table_and_transformed_uploads_exclude_each_other(task):
    with pytest.raises(ValueError, match="either uploads or table_dtype"):
        losac.simulate(task, A.losac(0.01, 2, 4, uploads=(A.qsgd(4),)), rounds=1, table_dtype="bfloat16")
