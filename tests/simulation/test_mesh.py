"""Several devices and several processes: the same results as on one, and each holds its part of the clients' state."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import jax
import numpy as np
import pytest

import losac
from losac._devices import _forget_oldest, prepare_jax
from losac.simulation import Layout
from losac.simulation.engines import resident as engines
from losac.simulation.engines.schedule import blank_schedule
from losac.simulation.options import SimulationOptions
from losac.simulation.placement import layout
from losac.simulation.placement.mesh import check_devices, share, store_rows
from losac.simulation.program import setup
from mesh_runs import CASES, CLIENTS, SAMPLED
from paths import TESTS
from problems import quadratic

A = losac.algorithms
ROUNDING = 1e-12


def start(*arguments: object, devices: int) -> subprocess.Popen[str]:
    """Start a program with so many devices; compiled in a hurry, since the numbers are tested and not the speed."""
    path = os.pathsep.join([str(Path(losac.__file__).parent.parent), str(TESTS)])
    environment = os.environ | {"LOSAC_CPU_DEVICES": str(devices), "PYTHONPATH": path}
    environment["JAX_DISABLE_MOST_OPTIMIZATIONS"] = "1"
    return subprocess.Popen(
        [sys.executable, TESTS / "mesh_runs.py", *map(str, arguments)],
        env=environment,
        stderr=subprocess.PIPE,
        text=True,
    )


def finish(*programs: subprocess.Popen[str]) -> None:
    try:
        said = [program.communicate(timeout=240)[1] for program in programs]
    finally:
        for program in programs:
            program.kill()
    for program, text in zip(programs, said):
        assert program.returncode == 0, text


def free_port() -> int:
    with socket.socket() as s:
        s.bind(("localhost", 0))
        return s.getsockname()[1]


def assert_alike(found, shown: str) -> None:
    names = [name.removeprefix(f"{shown} ") for name in found if name.startswith(f"{shown} ")]
    assert len(names) > 1
    for name in set(names) - {"held"}:
        a, b = found[f"{shown} {name}"], found[f"1x1 {name}"]
        np.testing.assert_allclose(a, b, rtol=ROUNDING, atol=ROUNDING * np.abs(b).max(), err_msg=f"{shown} {name}")


def test_two_and_four_devices_agree_with_one_to_rounding(tmp_path):
    runs = (f"1x1:{','.join(CASES)}", f"2x4s:{','.join(CASES)}", "1x2s:scaffold,fedlin", "2x4:losac", "--")
    finish(start(tmp_path / "found.npz", *runs, devices=4))
    found = np.load(tmp_path / "found.npz")
    held = {"2x4s": [4] * 4, "1x2s": [6] * 2, "2x4": [CLIENTS] * 4}
    for name, clients in held.items():
        assert_alike(found, name)
        assert found[f"{name} held"].tolist() == clients


@pytest.mark.parametrize("devices", [2])
def test_two_processes_agree_with_one_to_rounding_and_with_each_other_exactly(tmp_path, devices):
    paths = [tmp_path / "0.npz", tmp_path / "1.npz"]
    shown, coordinator = f"1x{2 * devices}s", f"localhost:{free_port()}"
    cases = "scaffold,fedlin" if devices == 1 else "losac"
    runs = (f"1x1:{cases}", f"{shown}:{cases}", "--")
    finish(*(start(paths[p], *runs, coordinator, 2, p, devices=devices) for p in (0, 1)))
    first, second = map(np.load, paths)
    assert_alike(first, shown)
    assert first[f"{shown} held"].tolist() == second[f"{shown} held"].tolist() == [6 // devices] * devices
    for name in first:
        np.testing.assert_array_equal(first[name], second[name], err_msg=name)


def engine(algorithm, sampled: int, where: Layout, clients: int = CLIENTS, dim: int = 4) -> engines.ResidentEngine:
    task = quadratic(clients=clients, samples=24, dim=dim).task
    options = SimulationOptions.of(task, rounds=1, clients_per_round=sampled, layout=where, gradients="formed")
    return engines.ResidentEngine(task, algorithm, options)


def test_the_store_stays_shared_out_and_everything_else_on_every_device():
    made = engine(A.losac(1e-4, 2, 4), SAMPLED, Layout(1, 2, shared=True))
    list(made.run(losac.simulation.Uniform(CLIENTS, SAMPLED), [3], False, lambda: None))
    for leaf in jax.tree.leaves(made.state.store):
        assert [shard.data.shape[0] for shard in leaf.addressable_shards] == [6, 6]
    assert all(leaf.is_fully_replicated for leaf in jax.tree.leaves(made.state._replace(store=())))


@pytest.mark.parametrize(
    ("algorithm", "sampled"),
    [(A.scaffold(1e-3, 3, 2), SAMPLED), (A.losac(1e-4, 2, 4), SAMPLED), (A.fedlin(1e-3, 3, 2), 37)],
    ids=lambda value: getattr(value, "label", value),
)
def test_no_device_ever_holds_the_state_of_all_clients(algorithm, sampled):
    """The compiled program has arrays of a device's share [19, …, 23], and none of all clients' [37 or 38, …, 23]."""
    made = engine(algorithm, sampled, Layout(1, 2, shared=True), 37, 23)
    schedule = engines.to_device(blank_schedule(1, 2, sampled), made.shape.layout)
    run = jax.jit(engines._run.__wrapped__, static_argnums=0)
    program = run.lower(made.shape, made.problem, made.state, schedule, np.int32(1)).compile().as_text()
    leading = {int(n) for n in re.findall(r"f32\[(\d+),(?:\d+,)*23\]", program)}
    assert 19 in leading
    assert not leading & {37, 38}


def test_a_state_goes_on_on_another_layout():
    task = quadratic(clients=CLIENTS).task
    options = {"rounds": 5, "clients_per_round": SAMPLED, "eval_every": 5, "dtype": "float64"}
    algorithm = A.scaffold(1e-3, 3, 2)
    whole = losac.simulate(task, algorithm, layout=Layout(1, 1), **options | {"rounds": 10})
    one, two = Layout(1, 1), Layout(1, 2, shared=True)
    for first, second in ((one, two), (two, one)):
        half = losac.simulate(task, algorithm, layout=first, keep_state=True, **options)
        assert {leaf.shape[0] for leaf in jax.tree.leaves(half.state.store)} == {CLIENTS}
        rest = losac.simulate(task, algorithm, layout=second, state=half.state, **options)
        np.testing.assert_allclose(rest.params, whole.params, rtol=ROUNDING)


def test_a_small_store_is_copied_and_a_large_one_shared_out(monkeypatch):
    assert engine(A.scaffold(1e-3), SAMPLED, Layout(1, 2)).shape.layout.shared is False
    monkeypatch.setattr(setup, "COPIED", CLIENTS * 4 * 4 - 1)  # SCAFFOLD keeps one float32 for each parameter
    assert engine(A.scaffold(1e-3), SAMPLED, Layout(1, 2)).shape.layout.shared is True


@pytest.mark.parametrize("width", [1, 3, 7, 100])
@pytest.mark.parametrize("devices", [1, 2, 3, 8])
def test_shares_hold_all_clients_with_little_to_spare(width, devices):
    for clients in (1, 2, 7, 50, 101, 1000):
        where = Layout(width, devices, shared=True)
        mine = share(where, clients)
        assert mine.width <= width
        assert clients <= store_rows(where, clients) < clients + devices * (mine.groups + 1)
        assert devices > 1 or store_rows(where, clients) == clients


def test_several_gpus_and_several_processes_are_all_used(monkeypatch):
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    monkeypatch.setattr(jax, "device_count", lambda: 4)
    assert layout.default_layout(50, False, False, 200_000) == Layout(13, 4)
    assert layout.default_layout(3, False, False, 200_000) == Layout(3, 1)
    assert layout.default_layout(50, False, False, 1000) == Layout(50, 1)
    monkeypatch.setattr(jax, "process_count", lambda: 2)
    assert layout.default_layout(50, True, False, 1000) == Layout(13, 4)


def test_a_layout_beyond_the_devices_is_refused():
    with pytest.raises(ValueError, match="more devices than there are"):
        engine(A.fedavg(1e-3), SAMPLED, Layout(1, 99))


def test_a_layout_takes_equally_many_devices_of_each_process(monkeypatch):
    monkeypatch.setattr(jax, "process_count", lambda: 2)
    monkeypatch.setattr(jax, "device_count", lambda: 4)
    monkeypatch.setattr(jax, "devices", lambda: [SimpleNamespace(process_index=p) for p in (0, 0, 0, 1)])
    with pytest.raises(ValueError, match="equally many devices of each of the 2 processes"):
        check_devices(Layout(1, 3))
    with pytest.raises(ValueError, match="takes 2 devices of each process; one has only 1"):
        check_devices(Layout(1, 4))
    check_devices(Layout(1, 2))
    check_devices(Layout(1, 1))


def test_joining_too_late_says_so():
    jax.devices()
    with pytest.raises(RuntimeError, match="too late"):
        losac.distributed("localhost:1", 2, 0)


@pytest.mark.parametrize("value", ["x", "0", "-1", "1.5"])
def test_a_number_of_devices_that_is_none_is_refused(value, monkeypatch):
    monkeypatch.setenv("LOSAC_CPU_DEVICES", value)
    with pytest.raises(ValueError, match=f"LOSAC_CPU_DEVICES='{value}', which must be a whole number of at least 1"):
        prepare_jax()


def test_programs_that_another_process_forgets_are_no_error(tmp_path, monkeypatch):
    """Each process forgets the oldest: a file that is listed may be gone when it is looked at."""
    (tmp_path / "here").write_bytes(b"program")
    (tmp_path / "gone").symlink_to(tmp_path / "nowhere")
    monkeypatch.setattr("losac._devices.CACHE_BYTES", 1)
    _forget_oldest(tmp_path)
    assert not (tmp_path / "here").exists()
