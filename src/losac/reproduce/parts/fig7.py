"""Figure 7: low-rank matrix estimation, the error and the rank of what each proximal method returns.

The paper states neither n_i nor λ nor T. Here n_i = 100 and T = 5; with 50 samples the paper's step size is too long.
λ = 0.1 is the smallest of the grid whose exact optimum has the right rank for all five truths. All methods get the
same λ, so that all that are exact must end at the same optimum, which a centralised solver finds for comparison.
LoSAC-Prox and SCAFFOLD-Prox take no proximal step on the average of the clients' models; what one would give is read
off besides.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from losac.history import sweep
from losac.reproduce.lowrank import CLIENTS, COUNTED, lowrank_data, lowrank_task, one_thread_each, optimum
from losac.reproduce.parts.fig7_claims import claims
from losac.reproduce.problems import algorithm, mean_or_none, record
from losac.reproduce.study import Figure, Findings, Job, Measured, Options, Study, Table, select

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Drawing

RANKS, SAMPLED, BLOCKS, STEPS, ETA, ROUNDS = (32, 16, 8, 4, 2), 10, 5, 5, 2e-3, 400
SAMPLES, STRENGTH, STRENGTHS, SEARCHED = 100, 0.1, (0.05, 0.1, 0.2, 0.4), 8
RHO, SERVER_STEPS = (0.2, 1.0, 5.0, 20.0), (1.5, 2.0, 3.0, 5.0)
CURVES = ["error", "rank", "error after prox", "rank after prox"]


class Method(NamedTuple):
    """A curve.

    Args:
      label: its name.
      name: of the algorithm.
      settings: besides η, T and M.
      prox: the length of its proximal steps over η; 0 where the server's model is the image of one anyway.
      sampled: S.
      cost: seconds for a run, roughly.
    """

    label: str
    name: str
    settings: Mapping[str, Any] = {}
    prox: float = 0.0
    sampled: int = SAMPLED
    cost: float = 20.0


METHODS = {
    "losac": Method("LoSAC-Prox", "losac", prox=CLIENTS * BLOCKS / SAMPLED),
    "printed": Method("LoSAC-Prox, prox step as printed", "losac", {"prox_step": "printed"}, 1.0),
    "exact": Method("LoSAC-Prox, exact scaling", "losac", {"scaling": "exact"}, 1.0),
    "scaffold": Method("SCAFFOLD-Prox", "scaffold", prox=1.0),
    "feddualavg": Method("FedDualAvg", "feddualavg"),
    "fedadmm": Method("FedADMM, as printed", "fedadmm", {"step_size": 1e-4}, cost=8.0),
    "fedadmm-exact": Method("FedADMM, exact server step", "fedadmm", {"variant": "exact"}, cost=4.0),
    "fedadmm-all": Method("FedADMM, as printed, all clients", "fedadmm", {"step_size": 1e-4}, 0.0, CLIENTS),
    "fedadmm-exact-all": Method("FedADMM, exact, all clients", "fedadmm", {"variant": "exact"}, 0.0, CLIENTS, 16.0),
}
LOOKS = {"printed": "losac_printed", "exact": "losac_exact", "fedadmm-exact": "fedadmm_exact"}
"""Whose look a variant has, where it is not that of its own name."""
PROXIMAL = ("losac", "printed", "exact", "scaffold", "feddualavg")


def jobs(options: Options) -> list[Job]:
    """Return the runs of all methods at all ranks, the searches of λ, ρ, γ and n_i, and the optima.

    All seeds at rank 8, the first at the others. The short form has one rank, four methods and 40 rounds.
    """
    seeds = list(options.seeds)
    if options.quick:
        return [
            _job(name, SEARCHED, STRENGTH, seeds[:1], 40) for name in ("losac", "scaffold", "feddualavg", "fedadmm")
        ]
    found = [Job(best, {"rank": rank, "strengths": list(STRENGTHS)}, f"Figure 7: optimum, rank {rank}", 20.0)
             for rank in RANKS]  # fmt: skip
    found += [
        _job(name, rank, STRENGTH, seeds if rank == SEARCHED else seeds[:1]) for rank in RANKS for name in METHODS
    ]
    found += [_job(name, SEARCHED, s, seeds[:1]) for s in STRENGTHS if s != STRENGTH for name in PROXIMAL]
    found += [_job(f"fedadmm-exact{who}", SEARCHED, STRENGTH, seeds[:1], rho=list(RHO)) for who in ("", "-all")]
    found += [_job("scaffold", SEARCHED, STRENGTH, seeds[:1], server_step=list(SERVER_STEPS))]
    return found + [_job(name, SEARCHED, STRENGTH, seeds[:1], 100, 50) for name in ("losac", "exact", "scaffold")]


def _job(
    name: str, rank: int, strength: float, seeds: list[int], rounds: int = ROUNDS, samples: int = SAMPLES, **grid: Any
) -> Job:
    label = f"Figure 7: {METHODS[name].label}, rank {rank}, λ = {strength:g}, n_i = {samples}"
    arguments = {"method": name, "rank": rank, "strength": strength, "seeds": seeds, "rounds": rounds,
                 "samples": samples, "grid": grid}  # fmt: skip
    members = len(seeds) * max([1, *map(len, grid.values())])
    return Job(measure, arguments, label, METHODS[name].cost * members * rounds / ROUNDS)


def measure(
    method: str, rank: int, strength: float, seeds: list[int], rounds: int, samples: int, grid: dict[str, Any]
) -> list[dict[str, Any]]:
    """Return one record per seed (and ρ): curves, and how far the end is from the optimum."""
    chosen = METHODS[method]
    made = algorithm(
        chosen.name, **({"step_size": ETA, "local_steps": STEPS, "blocks": BLOCKS} | dict(chosen.settings))
    )
    task = lowrank_task(samples, rank, strength, strength * ETA * chosen.prox)
    with one_thread_each():
        found = sweep(
            task, made, grid, seeds, rounds=rounds, clients_per_round=chosen.sampled, eval_every=10, loss_every=rounds
        ).members
        goal = optimum(samples, rank, strength)[0] if (samples, rounds) == (SAMPLES, ROUNDS) else None
    return [
        record(one, grid, CURVES, 41, ()) | {
            "to optimum": None if goal is None or one.diverged is not None
            else float(np.linalg.norm(np.asarray(one.params) - goal))
        }
        for one in found
    ]  # fmt: skip


def best(rank: int, strengths: list[float]) -> list[dict[str, Any]]:
    """Return the error and the rank of the exact optimum for each λ: what any exact method must end at."""
    truth = lowrank_data(SAMPLES, rank).info["truth"]
    with one_thread_each():
        found = [(strength, *optimum(SAMPLES, rank, strength)) for strength in strengths]
    return [
        {"strength": strength, "error": float(np.linalg.norm(x - truth)), "moved": moved,
         "rank": int(np.sum(np.linalg.svd(x, compute_uv=False) > COUNTED))}
        for strength, x, moved in found
    ]  # fmt: skip


def conclude(measured: Sequence[Measured], options: Options) -> Findings:
    """Set the methods beside each other and beside the optimum."""
    optima = {one.arguments["rank"]: one.result for one in measured if "strengths" in one.arguments}
    runs = [one for one in measured if "method" in one.arguments]
    main = {(one.arguments["method"], one.arguments["rank"]): one.result
            for one in select(runs, strength=STRENGTH, samples=SAMPLES, grid={})}  # fmt: skip
    labels = {name: method.label for name, method in METHODS.items()}
    goals = {rank: next((o for o in found if o["strength"] == STRENGTH), None) for rank, found in optima.items()}
    longer = [(r["server_step"], r) for one in runs if "server_step" in one.arguments["grid"] for r in one.result]
    penalties = {one.arguments["method"]: one.result for one in runs if "rho" in one.arguments["grid"]}
    judged = claims(main, goals, labels, _tuned(runs), dict(longer), penalties)
    tables = [_main_table(main, goals)]
    if optima:
        tables += [_strength_table(runs, optima), _search_table(runs)]
    caption = (
        f"Error (above) and rank (below) of the estimate over the rounds, one column for each rank of the truth; "
        f"λ = {STRENGTH:g} for all methods. Grey: the exact optimum's error and the truth's rank. Mean over the seeds; "
        "runs that diverged are left out."
    )
    return Findings(judged.summary, judged.claims, tables, [Figure("fig7", caption, lambda: _draw(main, goals))])


def _tuned(runs: Sequence[Measured]) -> dict[str, tuple[float, float, float]]:
    """Return for each method the λ of the grid with its least error, that error and the rank there."""
    found: dict[str, tuple[float, float, float]] = {}
    for one in select(runs, rank=SEARCHED, samples=SAMPLES, grid={}):
        name, final = one.arguments["method"], one.result[0]["final"]
        if final["error"] is not None and (name not in found or final["error"] < found[name][1]):
            found[name] = (one.arguments["strength"], final["error"], final["rank"])
    return found


def _main_table(main: Mapping[Any, Any], goals: Mapping[int, Any]) -> Table:
    rows = []
    for rank in sorted({key[1] for key in main}, reverse=True):
        if goals.get(rank):
            rows.append([rank, "the exact optimum", goals[rank]["error"], goals[rank]["rank"], 0.0, None, None])
        rows += [[rank, METHODS[name].label, *_cells(records)] for (name, r), records in main.items() if r == rank]
    columns = (
        "rank",
        "method",
        "error",
        "rank found",
        "distance to the optimum",
        "error after prox",
        "rank after prox",
    )
    note = (
        f"At the last round, means over the seeds, λ = {STRENGTH:g}. *After prox*: of the server's model after one "
        "more proximal step of the method's own length, as a read-out only; FedDualAvg and FedADMM return such a model "
        "anyway."
    )
    return Table("methods", "All methods at the same λ", columns, rows, note)


def _cells(records: Sequence[Mapping[str, Any]]) -> list[Any]:
    if any(one["diverged"] is not None for one in records):
        return ["diverged", *[None] * 4]
    final = [mean_or_none([one["final"][name] for one in records]) for name in CURVES]
    return [final[0], final[1], mean_or_none([one["to optimum"] for one in records]), final[2], final[3]]


def _strength_table(runs: Sequence[Measured], optima: Mapping[int, Any]) -> Table:
    rows: list[list[Any]] = [
        ["the exact optimum", rank, one["strength"], one["error"], one["rank"], None, None]
        for rank, found in optima.items()
        for one in found
    ]
    for one in select(runs, rank=SEARCHED, samples=SAMPLES, grid={}):
        cells = _cells(one.result[:1])
        name = METHODS[one.arguments["method"]].label
        rows.append([name, SEARCHED, one.arguments["strength"], cells[0], cells[1], cells[2], cells[4]])
    columns = ("method", "rank", "λ", "error", "rank found", "distance to the optimum", "rank after prox")
    note = "The printed prox step at λ is the matched one at λ·S/(NM) = λ/50, step for step."
    return Table("strengths", "The search of λ", columns, rows, note)


def _search_table(runs: Sequence[Measured]) -> Table:
    rows: list[list[Any]] = []
    for one in runs:
        name, cells = METHODS[one.arguments["method"]].label, _cells(one.result)
        for setting, symbol in (("rho", "ρ"), ("server_step", "γ")):
            if setting in one.arguments["grid"]:
                rows += [[name, f"{symbol} = {r[setting]:g}", *_cells([r])[:2]] for r in one.result]
        if one.arguments["samples"] != SAMPLES:
            rows.append([name, f"n_i = {one.arguments['samples']}, {one.arguments['rounds']} rounds", *cells[:2]])
    title, columns = (
        f"The searches of ρ, of the server step γ and of n_i, at rank {SEARCHED}",
        ("method", "setting", "error", "rank found"),
    )
    return Table("search", title, columns, rows)


def _draw(main: Mapping[Any, Any], goals: Mapping[int, Any]) -> Drawing:
    from matplotlib.figure import Figure as Drawing

    from losac.reproduce.looks import line_of, plain_log

    ranks = sorted({key[1] for key in main}, reverse=True)
    drawing = Drawing((max(2.4 * len(ranks), 5) + 0.6, 5.6), layout="constrained")
    panels = drawing.subplots(2, len(ranks), squeeze=False, sharex=True, sharey="row")
    shown = [name for name in METHODS if not name.endswith("-all")]
    for column, rank in enumerate(ranks):
        for name in shown:
            records = main.get((name, rank))
            if not records:
                continue
            for row, metric in enumerate(("error", "rank")):
                curve: Any = records[0]["curve"]
                values: Any = np.array([one["curve"][metric] for one in records if one["diverged"] is None], float)
                if len(values):
                    values[values == 0] = np.nan  # the start's rank has no place on a logarithmic axis
                    panels[row, column].plot(curve["round"], values.mean(0), label=METHODS[name].label,
                                             **line_of(LOOKS.get(name, name), linewidth=1.4))  # fmt: skip
        if goals.get(rank):
            panels[0, column].axhline(goals[rank]["error"], color="0.5", linewidth=1, zorder=0)
        panels[1, column].axhline(rank, color="0.5", linewidth=1, zorder=0)
        panels[0, column].set(title=f"rank {rank}", yscale="log")
        plain_log(panels[0, column].yaxis)
        panels[1, column].set(xlabel="round", yscale="log", yticks=[2, 4, 8, 16, 32, 64], ylim=(1.5, 80))
        panels[1, column].yaxis.set_major_formatter("{x:.0f}")
        panels[1, column].minorticks_off()
    panels[0, 0].set_ylabel(r"error $\|X - X_G\|_F$")
    panels[1, 0].set_ylabel("rank of the estimate")
    lines = {line.get_label(): line for panel in panels[0] for line in panel.get_legend_handles_labels()[0]}
    drawing.legend(lines.values(), lines.keys(), loc="outside lower center", ncols=4 if len(ranks) > 3 else 2)
    return drawing


STUDY = Study("fig7", "Figure 7: low-rank matrix estimation", jobs, conclude)
