"""Federated LoRA: a small causal transformer, pretrained on one part of a text, learns the other parts by adapters.

The text is Python's own documentation, which the standard library carries (``pydoc_data``). Short topics pretrain the
transformer; each long topic is a client. Clients train adapters of rank 4 on queries, keys and outputs, send nothing
else, and are judged on rows of their topic that no run has seen. Each method has the same step sizes to choose from, by
other rows.

    python examples/gallery/09_lora.py [picture.png]
"""

import string
import sys
from pydoc_data import topics
from typing import Any, NamedTuple

import flax.linen as nn
import jax.numpy as jnp
import numpy as np
import optax

import losac

ALPHABET = string.printable[:96]
LENGTH = 32
RANK = 4
STEPS = (0.3, 1.0, 3.0)
COMPARED = (
    ("fedavg", "A and B"), ("scaffold", "A and B"), ("losac_lean", "A and B"),
    ("fedavg", "B only"), ("scaffold", "B only"), ("losac_lean", "B only"),
    ("fedavg", "all weights"),
)  # fmt: skip
RULES = ("fedex", "flora", "flexlora", "rolora", "fedsa")


class Block(nn.Module):
    """Causal self-attention of two heads, then two dense layers."""

    width: int

    @nn.compact
    def __call__(self, x):
        """Return the next representation [batch, length, width]."""
        h = nn.LayerNorm()(x)
        q, k, v = (nn.Dense(self.width, use_bias=False, name=name)(h) for name in ("query", "key", "value"))
        q, k, v = (a.reshape(*a.shape[:2], 2, -1) for a in (q, k, v))
        scores = jnp.einsum("bqhd,bkhd->bhqk", q, k) / q.shape[-1] ** 0.5
        causal = jnp.tril(jnp.ones(scores.shape[-2:], bool))
        mixed = jnp.einsum("bhqk,bkhd->bqhd", nn.softmax(jnp.where(causal, scores, -1e9)), v)
        x = x + nn.Dense(self.width, use_bias=False, name="output")(mixed.reshape(x.shape))
        return x + nn.Dense(self.width)(nn.gelu(nn.Dense(4 * self.width)(nn.LayerNorm()(x))))


class Writer(nn.Module):
    """A causal transformer over characters."""

    width: int = 48
    blocks: int = 2

    @nn.compact
    def __call__(self, characters):
        """Return the logits of each next character [batch, length, characters]."""
        x = nn.Embed(len(ALPHABET), self.width)(characters.astype(jnp.int32))
        x = x + self.param("place", nn.initializers.normal(0.02), (LENGTH, self.width))
        for k in range(self.blocks):
            x = Block(self.width, name=f"block_{k}")(x)
        return nn.Dense(len(ALPHABET))(nn.LayerNorm()(x))


def rows_of(text: str) -> tuple[np.ndarray, np.ndarray]:
    """Return pieces of a text as numbers of characters, and the same pieces one character later."""
    known = {letter: number for number, letter in enumerate(ALPHABET)}
    numbers = np.array([known.get(letter, 0) for letter in text], np.int32)
    count = (len(numbers) - 1) // LENGTH
    x = numbers[: count * LENGTH].reshape(count, LENGTH)
    return x, numbers[1 : count * LENGTH + 1].reshape(count, LENGTH)


class Text(NamedTuple):
    """The rows to pretrain on, and the clients' rows: to train on, to choose a step by, and to judge by."""

    general: losac.FederatedData
    train: losac.FederatedData
    choose: losac.FederatedData
    judge: losac.FederatedData


def split(clients: int, rows: int, letters: int) -> Text:
    """Let each of the longest topics be a client; all others are the general text."""
    longest = sorted(topics.topics, key=lambda name: (-len(topics.topics[name]), name))
    general = rows_of("".join(topics.topics[name] for name in sorted(longest[clients:]))[:letters])
    parts: list[list[Any]] = [[], [], []]
    for name in longest[:clients]:
        x, y = rows_of(topics.topics[name])
        order = np.random.default_rng(0).permutation(len(x))
        for part, chosen in zip(parts, np.split(order[: 2 * rows], [rows, rows + rows // 2])):
            part.append((x[chosen], y[chosen]))
    pooled = losac.FederatedData.from_clients([general], name="general text")
    return Text(pooled, *(losac.FederatedData.from_clients(part, name="topics") for part in parts))


def pretrained(text: Text, epochs: int) -> tuple[Any, Any]:
    """Return the transformer as a model, and its weights after some epochs of Adam on the general text."""
    model = losac.models.from_flax(Writer(), text.general.x[:2])
    adam = losac.algorithms.fedavg(3e-3, batch_size=64, epochs=1, local_optimizer=optax.adam)
    task = losac.classification(model, text.general, reduction="mean", test=None)
    run = losac.simulate(task, adam, rounds=epochs, eval_every=epochs)
    print(f"pretrained: loss {run.metrics['loss'][0]:.3f} -> {run.final('loss'):.3f} per character on the general text")
    return model, run.params


class Result(NamedTuple):
    """A method's loss on the clients' unseen rows, and its megabytes."""

    loss: float
    up: float
    down: float
    step: float


def main(
    picture: str | None = None, rounds: int = 20, epochs: int = 6, clients: int = 8, rows: int = 40,
    steps: tuple[float, ...] = STEPS, letters: int = 80_000, compared: tuple[tuple[str, str], ...] = COMPARED,
    rules: tuple[str, ...] = RULES,
) -> dict[str, Result]:  # fmt: skip
    """Pretrain, federate the adapters in all ways, and print the losses and the bytes."""
    text = split(clients, rows, letters)
    model, weights = pretrained(text, epochs)
    run = {"rounds": rounds, "clients_per_round": clients // 2, "eval_every": rounds}
    attention = [f"block_*.{name}" for name in ("query", "key", "output")]
    tasks, models = {}, {}
    for name, train in (("A and B", "both"), ("B only", "b")):
        models[name] = losac.adapters.lora(model, RANK, attention, params=weights, train=train)
        tasks[name] = losac.classification(models[name], text.train, reduction="mean", test=None)
    whole = losac.models.Function(lambda key: weights, model)
    tasks["all weights"] = losac.classification(whole, text.train, reduction="mean", test=None)
    print(tasks["A and B"])

    def judged(task: losac.Task, params_of: Any, data: losac.FederatedData) -> float:
        """Return the mean loss over the clients, each with the parameters that it uses."""
        if not callable(params_of):
            return losac.evaluate(task, params_of, data=data).mean("loss")
        found = [losac.evaluate(task, params_of(i), data=data.subset([i])).mean("loss") for i in range(clients)]
        return float(np.mean(found))

    def best(candidates: list[tuple[float, losac.Task, Any, losac.History]]) -> Result:
        """Return the result of the step that is best on the rows for choosing."""
        step, task, params, history = min(candidates, key=lambda c: judged(c[1], c[2], text.choose))
        cost = {name: history.costs[name][-1] / 1e6 for name in ("bytes_up", "bytes_down")}
        return Result(judged(task, params, text.judge), cost["bytes_up"], cost["bytes_down"], step)

    results = {"pretrained": Result(judged(tasks["all weights"], weights, text.judge), 0.0, 0.0, 0.0)}
    for method, name in compared:
        task, algorithm = tasks[name], losac.algorithms.ALGORITHMS[method](steps[0], local_steps=5, blocks=5)
        members = losac.sweep(task, algorithm, {"step_size": steps}, **run).members
        fine = [m for m in members if m.diverged is None]
        results[f"{algorithm.title}, {name}"] = best([(m.settings["step_size"], task, m.params, m) for m in fine])
    for rule in rules:
        found = []
        for step in steps:
            fedavg = losac.algorithms.fedavg(step, local_steps=5, blocks=5)
            try:
                one = losac.adapters.federate(tasks["A and B"], models["A and B"], fedavg, rule, **run)
            except losac.DivergedError:
                continue
            found.append((step, one.task, one.params_of if rule == "fedsa" else one.history.params, one.history))
        results[losac.adapters.RULES[rule].split(":")[0]] = best(found)
    for name, result in results.items():
        print(
            f"{name:24} loss {result.loss:.3f}, {result.up:6.2f} MB up, {result.down:6.2f} MB down, η {result.step:g}"
        )
    if picture:
        draw(results, picture)
    return results


def draw(results: dict[str, Result], picture: str) -> None:
    """Save the losses over the bytes, both directions together."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 3.6), layout="constrained")
    axes = figure.subplots()
    for k, (name, result) in enumerate(results.items()):
        if result.up:
            marker = "osD^vP*X<>hp"[k % 12]
            axes.scatter(result.up + result.down, result.loss, marker=marker, s=42, label=name)
    axes.axhline(results["pretrained"].loss, color="#999999", linestyle=":", label="pretrained")
    axes.set(xlabel="megabytes, up and down", ylabel="loss on unseen rows", xscale="log")
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(fontsize=7, bbox_to_anchor=(1, 1), loc="upper left", frameon=False)
    figure.savefig(picture, dpi=80)


if __name__ == "__main__":
    main(*sys.argv[1:2])
