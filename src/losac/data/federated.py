"""`FederatedData`: the rows of all clients in one flat array, and who owns which."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from losac import _random
from losac._checks import check_kind, check_list, check_share, check_text, described, is_list
from losac._seeds import check_seed
from losac.data.checks import (
    check_arrays,
    check_client,
    check_label_names,
    check_labels,
    check_offsets,
    check_parts,
    check_test,
    stack_clients,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Array = NDArray[Any]


@dataclass(frozen=True, eq=False, repr=False)
class FederatedData:
    """Data of N clients, kept flat: clients of any sizes fit without padding.

    Attributes:
        x: inputs [n, ...] of all clients, client after client.
        y: targets [n, ...], row by row with `x`.
        offsets: int64 [N + 1]; client i owns the rows `offsets[i]:offsets[i + 1]`.
        test: held-out (x, y) that no client sees; None if there is none.
        name: what figures and tables call the data.
        num_classes: number of labels if `y` holds labels 0, 1, ...; None for regression.
        groups: which person, device or recording each row came from, if known.
        label_names: the names of the labels.
        info: facts about the data, such as a known optimum.

    >>> data = FederatedData.from_clients([([[1.0], [2.0]], [0, 1]), ([[3.0]], [1])], num_classes=2)
    >>> data
    FederatedData('data': 2 clients, 3 rows (1 to 2 each), x (1,) float64, y () int64, 2 classes)
    >>> data.client(1)
    (array([[3.]]), array([1]))
    """

    x: Array
    y: Array
    offsets: NDArray[np.int64]
    test: tuple[Array, Array] | None = None
    name: str = "data"
    num_classes: int | None = None
    groups: Array | None = None
    label_names: tuple[str, ...] | None = None
    info: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check_arrays(self.x, self.y, self.offsets)
        check_offsets(self.offsets, len(self.x))
        check_text("name", self.name)
        if not isinstance(self.info, Mapping):
            raise TypeError(f"info must map names to facts, not {described(self.info)}")
        if self.num_classes is not None:
            check_labels(self.y, self.num_classes, self.offsets)
        if self.label_names is not None:
            check_label_names(self.label_names, self.num_classes)
        if self.groups is not None:
            if not is_list(self.groups):
                raise TypeError(f"groups must be an array with one entry per row, not {described(self.groups)}")
            if len(self.groups) != len(self.x):
                raise ValueError(f"groups has {len(self.groups)} entries for {len(self.x)} rows; give one per row")
        if self.test is not None:
            test = check_test(self.test, self.x, self.y)
            if self.num_classes is not None:
                check_labels(test[1], self.num_classes, np.array([0, len(test[1])]), owner="test")
            object.__setattr__(self, "test", test)

    @classmethod
    def from_clients(
        cls,
        clients: Iterable[tuple[ArrayLike, ArrayLike]],
        *,
        test: tuple[ArrayLike, ArrayLike] | None = None,
        name: str = "data",
        num_classes: int | None = None,
        label_names: tuple[str, ...] | None = None,
        info: Mapping[str, Any] | None = None,
    ) -> "FederatedData":
        """Build from one (x, y) pair per client; sizes may differ, dtypes are promoted to a common one.

        >>> FederatedData.from_clients([(np.ones((4, 3)), np.ones(4)), (np.ones((2, 3)), np.ones(2))]).sizes
        array([4, 2])
        """
        x, y, offsets = stack_clients(clients)
        return cls(
            x=x,
            y=y,
            offsets=offsets,
            test=test,  # type: ignore[arg-type]
            name=name,
            num_classes=num_classes,
            label_names=label_names,
            info={} if info is None else info,
        )

    @classmethod
    def from_partition(
        cls,
        x: Array,
        y: Array,
        parts: Sequence[NDArray[np.integer[Any]]],
        *,
        test: tuple[Array, Array] | None = None,
        name: str = "data",
        num_classes: int | None = None,
        groups: Array | None = None,
        label_names: tuple[str, ...] | None = None,
        info: Mapping[str, Any] | None = None,
    ) -> "FederatedData":
        """Build from pooled rows and the row indices of each client.

        >>> x, y = np.arange(5.0)[:, None], np.array([0, 1, 0, 1, 1])
        >>> FederatedData.from_partition(x, y, [np.array([4, 0]), np.array([1, 2, 3])]).client(0)
        (array([[4.],
           [0.]]), array([1, 0]))
        """
        rows, offsets = check_parts(parts, x, y)
        return cls(
            x=x[rows],
            y=y[rows],
            offsets=offsets,
            test=test,
            name=name,
            num_classes=num_classes,
            groups=None if groups is None else np.asarray(groups)[rows],
            label_names=label_names,
            info={} if info is None else info,
        )

    @property
    def num_clients(self) -> int:
        """The number of clients, N."""
        return len(self.offsets) - 1

    @property
    def sizes(self) -> NDArray[np.int64]:
        """The number of rows of each client, n_i."""
        return np.diff(self.offsets)

    def client(self, i: int) -> tuple[Array, Array]:
        """Return (x_i, y_i), views of client i's rows."""
        i = check_client(i, self.num_clients)
        rows = slice(self.offsets[i], self.offsets[i + 1])
        return self.x[rows], self.y[rows]

    def subset(self, clients: Iterable[int]) -> "FederatedData":
        """Return the data of some clients, in the given order; it keeps the test part and drops a known optimum."""
        listed = check_list("clients", clients, "a list of the numbers of clients")
        chosen = [check_client(i, self.num_clients) for i in listed]
        part = self.keep([np.arange(self.offsets[i], self.offsets[i + 1]) for i in chosen])
        if "client_names" not in self.info:
            return part
        names = tuple(self.info["client_names"][i] for i in chosen)
        return replace(part, info={**part.info, "client_names": names})

    def split(self, fraction: float, seed: int) -> tuple["FederatedData", tuple[Array, Array]]:
        """Set aside a share of every client's rows for tuning; return (the rest, (x, y) set aside).

        Each client keeps at least one row. The test part is not used, so settings tuned on the rows set aside are still
        judged on unseen rows.

        >>> data = FederatedData.from_clients([(np.ones((n, 2)), np.ones(n)) for n in (10, 4)])
        >>> train, (x, y) = data.split(0.25, seed=0)
        >>> train.sizes, len(x)
        (array([8, 3]), 3)
        """
        check_share("fraction", fraction)
        rng = _random.held_out_generator(check_seed(seed))
        kept, aside = [], []
        for start, size in zip(self.offsets, self.sizes):
            taken = min(round(fraction * size), int(size) - 1)
            order = start + rng.permutation(size)
            aside.append(np.sort(order[:taken]))
            kept.append(np.sort(order[taken:]))
        held = np.concatenate(aside)
        if len(held) == 0:
            raise ValueError(
                f"fraction={fraction} of clients with at most {self.sizes.max()} rows rounds to zero rows; "
                "give a larger fraction"
            )
        return self.keep(kept), (self.x[held], self.y[held])

    def label_counts(self) -> NDArray[np.int64]:
        """Return how often each label occurs at each client, [N, classes].

        >>> data = FederatedData.from_clients([(np.ones((3, 1)), [0, 1, 1]), (np.ones((1, 1)), [0])])
        >>> data.label_counts()
        array([[1, 2],
               [1, 0]])
        """
        if self.y.ndim != 1 or self.y.dtype.kind not in "biu" or self.y.min() < 0:
            raise ValueError(
                f"{self.name!r} has no labels to count: y is {self.y.dtype} with rows of shape "
                f"{self.y.shape[1:]}; labels are whole numbers from 0"
            )
        classes = self.num_classes or int(self.y.max()) + 1
        owner = np.repeat(np.arange(self.num_clients), self.sizes)
        counts = np.bincount(owner * classes + self.y.astype(np.int64), minlength=self.num_clients * classes)
        return counts.reshape(self.num_clients, classes)

    def plot(self, ax: "Axes | None" = None) -> "Figure":
        """Draw how many rows of each label each client holds; return the figure."""
        from losac.data.plot import plot_clients

        return plot_clients(self, ax)

    def __len__(self) -> int:
        return len(self.x)

    def __repr__(self) -> str:
        low, high = self.sizes.min(), self.sizes.max()
        parts = [
            f"{self.num_clients:,} clients",
            f"{len(self):,} rows ({f'{low:,}' if low == high else f'{low:,} to {high:,}'} each)",
            f"x {self.x.shape[1:]} {self.x.dtype}",
            f"y {self.y.shape[1:]} {self.y.dtype}",
        ]
        if self.num_classes is not None:
            parts.append(f"{self.num_classes} classes")
        if self.test is not None:
            parts.append(f"test {len(self.test[0]):,} rows")
        return f"FederatedData({self.name!r}: {', '.join(parts)})"

    def keep(self, parts: Sequence[NDArray[np.int64]]) -> "FederatedData":
        """Return clients with these rows of the flat arrays; keep the test part and drop a known optimum."""
        return FederatedData.from_partition(
            self.x,
            self.y,
            parts,
            test=self.test,
            name=self.name,
            num_classes=self.num_classes,
            groups=self.groups,
            label_names=self.label_names,
            info={key: value for key, value in self.info.items() if key != "optimum"},
        )


def check_data(data: Any) -> FederatedData:
    """Return the clients' data; refuse anything else."""
    return check_kind("data", data, FederatedData, "make it with losac.FederatedData.from_clients([(x_0, y_0), …])")
