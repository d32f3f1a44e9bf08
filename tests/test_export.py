"""Models of finished runs in formats that other programs read."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from commands import losac as command
from commands import refused
from lazy import needs
from losac._costs import COSTS
from losac.history import History
from losac.runs.export import export_safetensors, tensors


def history(params: object, model_state: object = ()) -> History:
    return History(
        algorithm="fedavg", settings={}, task="toy", seed=3, rounds=np.array([0, 7]), metrics={},
        costs={name: np.zeros(2) for name in COSTS},
        seconds=np.zeros(2), params=params, model_state=model_state,
    )  # fmt: skip


@needs("safetensors")
def test_a_model_is_read_back_by_the_format_s_own_library(tmp_path):
    from safetensors import safe_open
    from safetensors.numpy import load_file

    params = {"dense": {"w": np.arange(6.0).reshape(2, 3).T, "b": np.float32(1.5)}, "layers": [np.zeros(2), np.ones(2)]}
    history(params, {"mean": np.ones(3), "layers": [np.full(2, 5.0)]}).save(tmp_path / "history.npz")
    file = tmp_path / "model.safetensors"
    done = command("export", str(tmp_path), str(file), "--json")
    assert done.exit_code == 0, done.output
    found = load_file(file)
    assert set(found) == set(json.loads(done.stdout)["arrays"])
    assert set(found) == {"dense.w", "dense.b", "layers.0", "layers.1", "mean", "model_state.layers.0"}
    np.testing.assert_array_equal(found["dense.w"], params["dense"]["w"])
    with safe_open(file, "np") as opened:
        assert opened.metadata() == {"algorithm": "fedavg", "task": "toy", "rounds": "7", "seed": "3"}
    assert "exists; give another file, or --overwrite" in refused("export", str(tmp_path), str(file))
    assert command("export", str(tmp_path), str(file), "--overwrite").exit_code == 0


def test_a_model_that_is_one_array_has_a_name():
    assert set(tensors(history(np.zeros(3)))) == {"params"}


def test_what_cannot_be_exported_is_refused(tmp_path):
    assert "holds no finished run" in refused("export", str(tmp_path), str(tmp_path / "a.onnx"))
    assert "ends neither with .safetensors nor with .onnx" in refused("export", str(tmp_path), "model.bin")
    history(None).save(tmp_path / "history.npz")
    assert "holds no model" in refused("export", str(tmp_path), str(tmp_path / "a.safetensors"))
    history({"w": np.zeros(3)}).save(tmp_path / "history.npz")
    export = ("export", str(tmp_path), str(tmp_path / "a.onnx"))
    assert "needs the module and the shape of a row" in refused(*export)
    assert "is not of the form" in refused(*export, "--module", "a", "--shape", "3")
    assert "there is no module 'nowhere'" in refused(*export, "--module", "nowhere:make", "--shape", "3")
    assert "is no shape" in refused(*export, "--module", "collections:OrderedDict", "--shape", "3,-1")


@needs("torch")
@needs("onnxscript")
def test_a_pytorch_module_becomes_onnx_with_the_run_s_numbers_and_any_number_of_rows(tmp_path):
    import torch
    from onnx import load
    from onnx.reference import ReferenceEvaluator

    from losac.torch.onnx import export_onnx

    module = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.BatchNorm1d(3), torch.nn.Dropout(0.5))
    params = {name: np.full(tuple(p.shape), 0.5, np.float32) for name, p in module.named_parameters()}
    state = {"1.running_mean": np.ones(3, np.float32), "1.running_var": np.full(3, 4.0, np.float32)}
    trained = history(params, state)
    file = export_onnx(module, trained, tmp_path / "model.onnx", (4,))
    rows = np.linspace(-1, 1, 20, dtype=np.float32).reshape(5, 4)
    (found,) = ReferenceEvaluator(load(file)).run(None, {"input": rows})
    due = module.eval()(torch.tensor(rows)).detach().numpy()
    np.testing.assert_allclose(found, due, rtol=1e-5)
    assert set(tensors(trained)) == set(params) | set(state), "the names of the module's state_dict"
    module.load_state_dict({name: torch.tensor(a) for name, a in tensors(trained).items()}, strict=False)


def test_a_missing_library_is_named(tmp_path, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "safetensors.numpy", None)
    with pytest.raises(ImportError, match=r"needs safetensors: pip install 'losac\[export\]'"):
        export_safetensors(history({"w": np.zeros(3)}), Path(tmp_path / "a.safetensors"))
