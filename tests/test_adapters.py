"""Low-rank adapters: W is never formed, and each rule of averaging keeps what it promises."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import losac
from lazy import needs
from losac import adapters
from losac._compat import enable_x64
from losac.adapters.federate import RuleEngine
from losac.adapters.ledger import Ledger
from losac.adapters.rules import average, products, residual, stacked, truncated
from losac.simulation.engines.resident import precision
from losac.simulation.options import SimulationOptions

A = losac.algorithms
N, SAMPLED, RANK = 4, 3, 2
RNG = np.random.default_rng(0)
DATA = losac.FederatedData.from_clients([(RNG.normal(size=(8, 6)) + i, RNG.integers(0, 3, 8)) for i in range(N)])
NET = losac.models.Dense((6, 5, 3))
MODEL = adapters.lora(NET, RANK, alpha=3.0)
TASK = losac.classification(MODEL, DATA)
METHOD = A.fedavg(0.02, 2, 2)
RUN: dict[str, Any] = {"rounds": 4, "clients_per_round": SAMPLED, "eval_every": 4, "dtype": "float64"}


def drawn(clients: int, seed: int = 0) -> list[dict[str, dict[str, np.ndarray]]]:
    rng = np.random.default_rng(seed)
    return [{"w": {"a": rng.normal(size=(2, 7)), "b": rng.normal(size=(5, 2))}} for _ in range(clients)]


def mean_of_products(clients: Any, weights: Any) -> Any:
    return sum(p * products(own)["w"] for p, own in zip(weights, clients))


@pytest.fixture
def double():
    with enable_x64(True):
        yield


WEIGHTS = (0.5, 0.2, 0.3)


def test_the_mean_of_products_is_not_the_product_of_means(double):
    clients = drawn(3)
    mean = average(clients, WEIGHTS)
    error = mean_of_products(clients, WEIGHTS) - products(mean)["w"]
    formula = sum(
        p * (own["w"]["b"] - mean["w"]["b"]) @ (own["w"]["a"] - mean["w"]["a"]) for p, own in zip(WEIGHTS, clients)
    )
    assert np.linalg.norm(error) > 0.1
    np.testing.assert_allclose(error, formula, atol=1e-12)
    assert np.linalg.matrix_rank(error) <= (3 - 1) * 2


def test_with_one_factor_in_common_it_is(double):
    """FFA-LoRA and RoLoRA: only one of the two differs."""
    for common in ("a", "b"):
        clients = drawn(3)
        clients = [{"w": {**own["w"], common: clients[0]["w"][common]}} for own in clients]
        found = products(average(clients, WEIGHTS))["w"]
        np.testing.assert_allclose(found, mean_of_products(clients, WEIGHTS), atol=1e-12)


def test_stacking_is_exact_with_the_weights_on_one_side(double):
    clients = drawn(3)
    found = stacked(clients, WEIGHTS)["w"]
    assert (found["a"].shape, found["b"].shape) == ((6, 7), (5, 6))
    np.testing.assert_allclose(found["b"] @ found["a"], mean_of_products(clients, WEIGHTS), atol=1e-12)
    twice = found["b"] * np.repeat(WEIGHTS, 2) @ found["a"]
    assert np.linalg.norm(twice - mean_of_products(clients, WEIGHTS)) > 0.1


def test_the_residual_makes_averaging_exact(double):
    for clients in (drawn(3), drawn(1)):
        p = np.full(len(clients), 1 / len(clients)) if len(clients) == 1 else WEIGHTS
        more, mean = residual(clients, p)["w"], average(clients, p)
        assert more["b"].shape[1] == max(1, len(clients) - 1) * 2
        found = products(mean)["w"] + more["b"] @ more["a"]
        np.testing.assert_allclose(found, mean_of_products(clients, p), atol=1e-12)


def test_truncation_is_exact_if_the_rank_allows_it(double):
    clients = drawn(2)
    whole = stacked(clients, (0.5, 0.5))
    exact = mean_of_products(clients, (0.5, 0.5))
    np.testing.assert_allclose(products(truncated(whole, 4))["w"], exact, atol=1e-12)
    tail = np.linalg.svd(exact, compute_uv=False)[2:]
    error = np.linalg.norm(products(truncated(whole, 2))["w"] - exact)
    assert error == pytest.approx(np.linalg.norm(tail), rel=1e-10)


def moved(model: Any, seed: int = 1) -> Any:
    """Parameters where B is not zero."""
    params = model.init(jax.random.key(seed))
    return jax.tree.map(lambda a: a + 0.1 * jnp.arange(a.size).reshape(a.shape) / a.size, params)


def as_merged(model: Any, plain: Any, x: Any) -> None:
    """The model and its gradients are those of the formed matrices."""
    params = moved(model)
    np.testing.assert_allclose(model(params, x), plain(model.merged(params), x), rtol=2e-5, atol=1e-5)
    mine, formed = (
        jax.grad(lambda p, f=f: (f(p) ** 2).sum())(params)
        for f in (lambda p: model(p, x), lambda p: plain(model.merged(p), x))
    )
    for one, other in zip(jax.tree.leaves(mine), jax.tree.leaves(formed)):
        np.testing.assert_allclose(one, other, rtol=2e-4, atol=2e-4)


def test_models_of_all_kinds_with_adapters_are_those_with_merged_weights():
    import equinox as eqx
    import flax.linen as nn

    x = jnp.asarray(DATA.x[:4], jnp.float32)
    as_merged(MODEL, NET, x)
    as_merged(adapters.lora(NET, 1, "0", also="1", train="b"), NET, x)
    module = eqx.nn.MLP(6, 3, width_size=5, depth=1, key=jax.random.key(0))
    whole = losac.models.from_equinox(module)
    as_merged(adapters.lora(whole, RANK, "layers.*.weight", outputs_first=True), whole, x)
    words = nn.Sequential([nn.Embed(9, 6), nn.Dense(4), nn.relu, nn.Dense(3)])
    tokens = jnp.arange(8).reshape(4, 2) % 9
    whole = losac.models.from_flax(words, tokens)
    as_merged(adapters.lora(whole, RANK), whole, tokens)  # the embedding is read by number, and formed for it


def test_no_matrix_of_the_size_of_w_is_made():
    model = adapters.lora(losac.models.Dense((30, 40, 3)), RANK, "0")
    x, params = jnp.ones((2, 30)), model.init(jax.random.key(0))
    traced = jax.make_jaxpr(lambda p, f: jax.grad(lambda p: model(p, x, frozen=f).sum())(p))(params, model.frozen)
    shapes = {v.aval.shape for eqn in traced.jaxpr.eqns for v in eqn.outvars}
    assert not shapes & {(30, 40), (40, 30)}


def test_what_does_not_fit_is_refused():
    with pytest.raises(ValueError, match=r"targets='2' selects no matrix; there is 0\.w, 1\.w"):
        adapters.lora(NET, 2, "2")
    with pytest.raises(ValueError, match="named by targets and by also"):
        adapters.lora(NET, 2, also="1")
    with pytest.raises(ValueError, match="rank=0 must be a whole number"):
        adapters.lora(NET, 0)
    for task, model, method, complaint in (
        (TASK, NET, METHOD, "made by losac.adapters.lora"),
        (TASK, adapters.lora(NET, 2), METHOD, "the task is of another model"),
        (TASK, MODEL, A.scaffold(0.1), "algorithm must be losac.algorithms.fedavg"),
        (TASK, MODEL, METHOD.replace(server_step=2.0), "the rule is the server's step"),
    ):
        with pytest.raises((TypeError, ValueError), match=complaint):
            adapters.federate(task, model, method, **RUN)
    with pytest.raises(ValueError, match="did you mean 'flora'"):
        adapters.federate(TASK, MODEL, METHOD, "florra", **RUN)


class Watched(RuleEngine):
    """Keeps what the clients of the last round sent."""

    def _averaged(self, sent: Any, ids: Any, round_index: Any) -> Any:
        self.sent, self.ids = sent, ids
        return super()._averaged(sent, ids, round_index)


def whole(params: Any, frozen: Any) -> list[np.ndarray]:
    return [np.asarray(leaf) for leaf in jax.tree.leaves(MODEL.merged(params, frozen))]


@pytest.mark.parametrize("rule", adapters.RULES)
def test_a_round_of_a_rule(rule):
    """The exact rules arrive at the mean of the clients' weights W₀ + sBA; the others do not."""
    with precision(np.dtype("float64")):
        engine = Watched(TASK, MODEL, METHOD, rule, SimulationOptions.of(TASK, **RUN, gradients="formed"))
        for r in range(3):
            before, base = engine.state.server, engine.frozen
            engine.one_round(np.array([0, 1, 3]))
            means = [np.mean(parts, axis=0) for parts in zip(*(whole(own, base) for own in engine.sent))]
            after = whole(engine.state.server, engine.frozen)
            error = max(np.abs(one - other).max() for one, other in zip(means, after))
            factors = engine.state.server["0.w"]
            assert np.array_equal(factors["a"], before["0.w"]["a"]) == (
                rule == "ffa" or (rule == "rolora" and r % 2 == 0)
            )
            if rule == "rolora":
                assert np.array_equal(factors["b"], before["0.w"]["b"]) == (r % 2 == 1)
        if rule in ("ffa", "flora", "rolora", "fedex"):
            assert error < 1e-13
        else:
            assert error > 1e-7
        assert sorted(engine.personal) == ([0, 1, 3] if rule == "fedsa" else [])
        if rule == "fedsa":
            mean = np.mean([own["0.w"]["a"] for own in engine.sent], axis=0)
            np.testing.assert_allclose(factors["a"], mean, rtol=1e-13)


def test_plain_averaging_is_fedavg_on_the_adapters():
    found = adapters.federate(TASK, MODEL, METHOD, "fedit", **RUN).history
    same = losac.simulate(TASK, METHOD, **RUN)
    for one, other in zip(jax.tree.leaves(found.params), jax.tree.leaves(same.params)):
        np.testing.assert_allclose(one, other, rtol=1e-13)
    for name in found.costs:
        assert found.costs[name].tolist() == same.costs[name].tolist()


def test_with_a_frozen_every_method_averages_exactly_and_sends_b_only():
    model = adapters.lora(NET, RANK, alpha=3.0, train="b")
    task = losac.classification(model, DATA)
    history = losac.simulate(task, A.losac_lean(0.02, 2, 2), **RUN)
    assert history.costs["bytes_up"][-1] == 4 * SAMPLED * RANK * (5 + 3) * 8
    assert history.final("loss") < history.metrics["loss"][0]


def test_the_bytes_are_those_that_a_rule_must_send():
    """Rank 2 on 6 → 5 → 3 in double precision; clients that come back get what was merged while they were away."""
    a, b = RANK * (6 + 5) * 8, RANK * (5 + 3) * 8
    rounds = [np.array([0, 1, 2]), np.array([0, 1, 3])]
    dense = (6 * 5 + 5 * 3) * 8
    expected = {
        "fedit": (6 * (a + b), 6 * (a + b)),
        "flexlora": (6 * (a + b), 6 * (a + b)),
        "ffa": (6 * b, 6 * b),
        "fedsa": (6 * a, 6 * a),
        "rolora": (3 * b + 3 * a, 3 * (a + b) + 2 * b + (a + b)),
        "fedex": (6 * (a + b), 6 * (a + b) + 3 * min(dense, 2 * (a + b))),
        "flora": (6 * (a + b), 3 * min(dense, 3 * (a + b))),
    }
    with precision(np.dtype("float64")):
        params = jax.tree.map(lambda x: np.zeros(x.shape), MODEL.init(jax.random.key(0)))
        frozen = jax.tree.map(lambda x: np.zeros(x.shape), MODEL.frozen)
    for rule, (up, down) in expected.items():
        ledger = Ledger(rule, MODEL, params, frozen)
        for r, ids in enumerate(rounds):
            ledger.add(r, ids, {"ffa": "b", "rolora": "ba"[r]}.get(rule, "both"))
        assert ledger.totals[-1][:2].tolist() == [up, down], rule


def test_the_outcome_can_be_used_and_evaluated():
    run = RUN | {"clients_per_round": 2, "rounds": 2, "eval_every": 1}
    found = adapters.federate(TASK, MODEL, METHOD, "flora", **run)
    x = jnp.asarray(DATA.x[:4], jnp.float32)
    merged = jax.tree.map(lambda a: jnp.asarray(a, jnp.float32), found.merged())
    np.testing.assert_allclose(NET(merged, x), MODEL(found.history.params, x, frozen=found.task.frozen), rtol=1e-4)
    per_client = losac.evaluate(found.task, found.history.params)
    assert per_client.mean("loss") == pytest.approx(found.history.final("loss"), rel=1e-6)
    own = adapters.federate(TASK, MODEL, METHOD, "fedsa", **run)
    someone = next(iter(own.personal))
    assert np.array_equal(own.params_of(someone)["0.w"]["a"], own.history.params["0.w"]["a"])
    assert np.array_equal(own.params_of(someone)["0.w"]["b"], own.personal[someone]["0.w"]["b"])


@needs("peft")
@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_a_checkpoint_of_a_folder_gets_adapters_and_nothing_else_is_sent(tmp_path, monkeypatch):
    """A tiny GPT-2, saved as Hugging Face does: the way to a real checkpoint."""
    import torch
    import transformers

    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    torch.manual_seed(0)
    words = {"bos_token_id": 0, "eos_token_id": 0}
    sizes = transformers.GPT2Config(vocab_size=11, n_positions=4, n_embd=8, n_layer=1, n_head=2, **words)
    transformers.GPT2LMHeadModel(sizes).save_pretrained(tmp_path)
    plain = transformers.AutoModelForCausalLM.from_pretrained(tmp_path)
    rows = np.random.default_rng(0).integers(0, 11, (12, 5)).astype(np.int32)
    data = losac.FederatedData.from_clients([(part[:, :-1], part[:, 1:]) for part in np.split(rows, 3)])
    tokens = torch.tensor(data.x[:2])
    expected = plain(tokens).logits.detach()
    module = adapters.peft(plain, 2, ["c_attn"], train="b")
    np.testing.assert_allclose(module(tokens).detach(), expected, rtol=1e-5, atol=1e-6)

    def next_words(outputs: Any, y: Any) -> Any:
        return torch.nn.functional.cross_entropy(outputs.flatten(0, 1), y.flatten())

    history = losac.torch.simulate(module, next_words, data, A.fedavg(0.1, 2), rounds=2, eval_every=2)
    assert history.final("loss") < history.metrics["loss"][0]
    assert next(iter(adapters.factors(history.params).values()))["b"].shape == (24, 2)
    assert history.costs["bytes_up"][-1] == 2 * 3 * 24 * 2 * 4
