"""A hostile client: with this folder on its PYTHONPATH, a node's app lies in most of what it sends.

Python imports this file in every process. Where ``LOSAC_HOSTILE`` names a log, it changes the functions by which an
app answers, message by message: every kind of lie here is one that a server must refuse, or survive.
"""

import importlib.abc
import importlib.util
import os
import random
import sys
import time

LOG = os.environ.get("LOSAC_HOSTILE")
HELLOS = ("honest", "honest", "another's name", "a newline", "all rows", "another protocol")
"""The first is honest: a name belongs to the first node that says it, and the run would lose the other client."""
REPLIES = (
    "honest", "honest", "NaN", "infinity", "a million times", "a declared shape", "a declared header", "junk",
    "another dtype", "a cost", "another token", "another status", "lost", "an unused record", "no records", "too late",
    "dead",
)  # fmt: skip


class Hook(importlib.abc.MetaPathFinder):
    """Changes the client's module once it is loaded."""

    def find_spec(self, name, path, target=None):
        """Return the module's own spec, with a loader that changes it."""
        if name != "losac.flower.client":
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        load = spec.loader.exec_module
        spec.loader.exec_module = lambda module: (load(module), spoil(module))
        return spec


def spoil(module):
    """Let a client lie about who it is and about what it computed."""
    introduce, reply_content = module._introduce, module.reply_content

    def lie_about_itself(context, worker):
        content, kind = introduce(context, worker), chosen(HELLOS if os.path.exists(LOG) else HELLOS[:1])
        hello = content["hello"]
        if kind == "another's name":
            hello["name"] = "client-0"
        elif kind == "a newline":
            hello["name"] = "client\n\x1b[31m"
        elif kind == "all rows":
            hello["rows"] = 2**62
        elif kind == "another protocol":
            hello["protocol"] = 99
        return content

    def lie_about_work(reply):
        content, kind = reply_content(reply), chosen(REPLIES)
        change(content, kind)
        return content

    module._introduce, module.reply_content = lie_about_itself, lie_about_work


def change(content, kind):
    """Change a reply."""
    import numpy as np
    from flwr.app import Array, ArrayRecord

    config = content["reply"]
    if kind == "too late":
        time.sleep(600)
    elif kind == "dead":
        os._exit(9)
    elif kind == "a cost":
        config["gradients"] = random.choice([float("nan"), 1e300, -1.0])
    elif kind == "another token":
        config["token"] = "0" * 12 + "/1/1"
    elif kind == "another status":
        config["status"] = "great\n"
    elif kind == "lost":
        config["status"] = "lost"
    elif kind == "an unused record":
        content["more"] = ArrayRecord({"a": Array("float32", (1,), "numpy.ndarray", bytes(2**25))})
    elif kind == "no records":
        for name in list(content):
            del content[name]
    elif "message" in content:
        name, array = next(iter(content["message"].items()))
        factors = {"NaN": np.nan, "infinity": np.inf, "a million times": 1e6}
        data = array.data
        if kind in factors:
            array = Array((array.numpy() * factors[kind]).astype(array.dtype))
        elif kind == "another dtype":
            array = Array(array.numpy().astype(np.float16))
        elif kind == "a declared shape":
            array = Array(array.dtype, (2**31 - 1,), array.stype, data)
        elif kind == "a declared header":
            array = Array(array.dtype, array.shape, array.stype, data.replace(b"10)", b"1000000000)"))
        elif kind == "junk":
            array = Array(array.dtype, array.shape, array.stype, os.urandom(len(data)))
        content["message"][name] = array


def chosen(kinds):
    """Choose a lie, and write it down."""
    kind = random.choice(kinds)
    with open(LOG, "a", encoding="utf-8") as file:
        file.write(f"{kind}\n")
    return kind


if LOG:
    sys.meta_path.insert(0, Hook())
