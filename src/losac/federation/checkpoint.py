"""A server's book and measurements in one file that survives a crash."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax

from losac.federation import durable
from losac.federation.book import Book, Member
from losac.federation.bounds import Tracked
from losac.federation.durable import Record
from losac.federation.fingerprint import fingerprint
from losac.federation.protocol import fill
from losac.federation.setting import Setting
from losac.trees import Tree

TREES = ("server", "model_state", "total", "first")
PLAIN = ("run", "starts", "tick", "round", "unsettled")


def about_run(setting: Setting) -> dict[str, Any]:
    """Return what must not change during a run: otherwise the sums no longer match what the clients hold."""
    fixed = ("clients", "clients_per_round", "seed", "recovery", "dtype")
    own = {"algorithm": fingerprint(setting.given), "frozen": setting.frozen}
    return own | {name: getattr(setting.rules, name) for name in fixed}


def save_book(path: Path, setting: Setting, book: Book, log: list[dict[str, Any]]) -> None:
    """Write a book with the log of its rounds."""
    about = about_run(setting)
    arrays = {name: jax.tree.leaves(getattr(book, name)) for name in TREES}
    members: dict[str, Any] = {}
    for k, (name, member) in enumerate(book.members.items()):
        members[name] = {"client": member.client, "rows": member.rows, "weight": member.weight}
        members[name] |= {"accepted": member.accepted, "has_credit": member.credit is not None, "key": member.key}
        members[name] |= {"moved": member.moved, "has_share": member.share is not None}
        arrays[f"share {k}"] = jax.tree.leaves(member.share)
        arrays[f"credit {k}"] = jax.tree.leaves(member.credit)
        arrays[f"row {k}"] = jax.tree.leaves(member.row)
    values = {name: getattr(book, name) for name in PLAIN} | {"members": members, "log": log, "about": about}
    values |= {"bounds": book.bounds, "answered": list(book.answered)}
    if book.sealed is not None:
        values["sealed"], more = book.sealed.parts()
        arrays |= {name: list(part) for name, part in more.items()}
    durable.write(path, Record(values, arrays))


def load_book(path: Path, setting: Setting) -> tuple[Book, list[dict[str, Any]]] | None:
    """Return a book and its log; None if there is no file. A damaged file is an error: nothing is thrown away."""
    record = durable.read(path)
    if record is None:
        return None
    for name, value in about_run(setting).items():
        began = record.values["about"].get(name, "")
        if began != value:
            raise ValueError(
                f"{path} is of a run with {name}={began or 'none'}, not {value or 'none'}: continue with the "
                "settings it began with, or start a new run in another folder"
            )
    blank = setting.first_book("")
    trees = {name: fill(getattr(blank, name), record.arrays[name]) for name in TREES}
    row_like = setting.own(setting.algorithm.at(0).init_server_row(setting.params))
    members = {}
    for k, (name, about) in enumerate(record.values["members"].items()):
        credit = fill(setting.no_credit, record.arrays[f"credit {k}"]) if about.pop("has_credit") else None
        told = about.pop("has_share", False)
        share = fill(setting.share_like, record.arrays[f"share {k}"]) if told else None
        row = fill(row_like, record.arrays[f"row {k}"])
        members[name] = Member(**{"moved": float("inf")} | about, credit=credit, row=row, share=share)
    plain = {name: record.values[name] for name in PLAIN}
    bounds = {kind: Tracked(*each) for kind, each in record.values.get("bounds", {}).items()}
    sealed, answered = _sealed(record, blank.server), tuple(record.values.get("answered", ()))
    book = Book(**plain, **trees, members=members, bounds=bounds, sealed=sealed, answered=answered)
    return book, list(record.values["log"])


def _sealed(record: Record, server: Tree) -> Any:
    """Return the round whose sum is still to be unmasked."""
    if "sealed" not in record.values:
        return None
    from losac.federation.secure.sealed import from_parts

    return from_parts(record.values["sealed"], record.arrays, server)


def members(out: Path) -> list[str]:
    """Return the names of the clients in the checkpoint of a folder of results."""
    record = durable.read(out / "checkpoint")
    return [] if record is None else list(record.values["members"])
