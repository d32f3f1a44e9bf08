"""A Flax transformer on text: characters in, one of three languages out.

Every client writes in one made-up language only. A line is a sequence of characters; the model is one block of
self-attention. The text is generated here, so nothing is downloaded.

    python examples/gallery/06_flax_transformer.py [picture.png]
"""

import sys

import flax.linen as nn
import jax.numpy as jnp
import numpy as np

import losac

SYLLABLES = {
    "north": ("ska", "fjo", "lun", "hei", "gra", "vik"),
    "south": ("pao", "lea", "mia", "tui", "noa", "roa"),
    "east": ("chz", "szy", "krz", "wol", "dni", "pra"),
}
LENGTH = 24
ALPHABET = " abcdefghijklmnopqrstuvwxyz"


class Reader(nn.Module):
    """Embeddings, one block of attention and one of ReLU, and the mean over the line."""

    classes: int
    width: int = 32

    @nn.compact
    def __call__(self, characters):
        """Return the logits [batch, classes]."""
        x = nn.Embed(len(ALPHABET), self.width)(characters.astype(jnp.int32))
        x = x + self.param("place", nn.initializers.normal(0.02), (LENGTH, self.width))
        x = x + nn.MultiHeadDotProductAttention(num_heads=2)(nn.LayerNorm()(x))
        x = x + nn.Dense(self.width)(nn.relu(nn.Dense(2 * self.width)(nn.LayerNorm()(x))))
        return nn.Dense(self.classes)(x.mean(1))


def write(language: str, lines: int, rng: np.random.Generator) -> np.ndarray:
    """Return lines of a language as numbers of characters; a fifth of the characters are wrong."""
    words = SYLLABLES[language]
    text = [
        "".join(rng.choice(words) + (" " if rng.random() < 0.3 else "") for _ in range(LENGTH)) for _ in range(lines)
    ]
    numbers = np.array([[ALPHABET.index(letter) for letter in line[:LENGTH]] for line in text], np.int32)
    noise = rng.integers(1, len(ALPHABET), numbers.shape)
    return np.where(rng.random(numbers.shape) < 0.2, noise, numbers).astype(np.int32)


def corpus(clients: int, lines: int, seed: int = 0) -> losac.FederatedData:
    """Return clients that write in one language each, and test lines of all."""
    rng = np.random.default_rng(seed)
    names = list(SYLLABLES)
    pairs = [(write(names[i % 3], lines, rng), np.full(lines, i % 3, np.int32)) for i in range(clients)]
    test = [(write(name, 60, rng), np.full(60, label, np.int32)) for label, name in enumerate(names)]
    x, y = (np.concatenate(part) for part in zip(*test))
    return losac.FederatedData.from_clients(
        pairs, test=(x, y), num_classes=3, label_names=tuple(names), name="three languages"
    )


def main(picture: str | None = None, rounds: int = 20, clients: int = 9, lines: int = 40) -> losac.History:
    """Train and print the test accuracy."""
    data = corpus(clients, lines)
    model = losac.models.from_flax(Reader(3), data.x[:2])
    task = losac.classification(model, data, reduction="mean")
    method = losac.algorithms.scaffold(0.1, local_steps=3, batch_size=20)
    run = losac.simulate(task, method, rounds=rounds, clients_per_round=6, eval_every=max(1, rounds // 10))
    print(f"{run.metrics['accuracy'][0]:.3f} at the start, {run.final('accuracy'):.3f} after {rounds} rounds")
    if picture:
        run.plot(["loss", "accuracy"]).savefig(picture, dpi=60)
    return run


if __name__ == "__main__":
    main(*sys.argv[1:2])
