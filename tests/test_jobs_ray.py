"""Jobs on a real Ray cluster: two nodes with addresses of the loopback interface, of which one is killed midway."""

from __future__ import annotations

import threading
import time
from importlib.util import find_spec

import pytest

from errands import fail, power
from losac.jobs import JobCall, Workers, open_engine
from paths import ROOT

pytestmark = [
    pytest.mark.processes,
    pytest.mark.skipif(find_spec("ray") is None, reason="ray is not here: pip install 'losac[ray]'"),
]

SECOND = "127.0.0.3"


@pytest.fixture
def nodes(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    from cluster import ray_nodes

    with ray_nodes(2) as cluster:
        yield cluster


def wait_for_the_end(path: str) -> str:
    """Wait until a node is killed; on the second node, that is the end of this process."""
    import pathlib
    import time

    import ray

    folder, address = pathlib.Path(path), ray.util.get_node_ip_address()
    (folder / f"{address} {time.time_ns()}").touch()
    until = time.monotonic() + 300
    while (address == SECOND or not (folder / "killed").exists()) and time.monotonic() < until:
        time.sleep(0.1)
    return address


@pytest.mark.filterwarnings("ignore")
def test_a_node_that_is_killed_costs_its_job_one_try(nodes, tmp_path):
    table = {"more": 0.5}
    calls = [
        *(JobCall(f"wait {k}", wait_for_the_end, {"path": str(tmp_path)}) for k in range(2)),
        JobCall("square", power, {"base": 3.0, "exponent": 2.0}, {"table": table}),
        JobCall("root", power, {"base": 9.0, "exponent": 0.5}, {"table": table}),
        JobCall("missing", fail, {"word": "key"}),
    ]

    def kill() -> None:
        while not list(tmp_path.glob(f"{SECOND} *")):
            time.sleep(0.1)
        nodes.kill(1)
        (tmp_path / "killed").touch()

    with open_engine(Workers(on="ray", address=nodes.address)) as engine:
        assert engine.at_once == 2
        killer = threading.Thread(target=kill, daemon=True)
        killer.start()
        found = {outcome.call.name: outcome for outcome in engine.run(calls)}
    assert [found[f"wait {k}"].result for k in range(2)] == ["127.0.0.2"] * 2
    begun = sorted(path.name.split()[0] for path in tmp_path.glob("127*"))
    assert begun == ["127.0.0.2", "127.0.0.2", SECOND]
    assert (found["square"].result, found["root"].result) == (9.5, 3.5)
    assert "3.0 to the 2.0" in found["square"].log
    assert "(127.0.0.2)" in found["square"].host
    assert "LookupError: there is no key" in str(found["missing"].error)
