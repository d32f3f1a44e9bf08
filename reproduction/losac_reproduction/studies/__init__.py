"""The studies, one file each: every :class:`Study` that a module of this folder holds is one, in the paper's order.

A new study is a new file here: a function that measures, ``jobs`` that call it, claims as rows of
:class:`losac_reproduction.claims.Statement`, ``conclude``, and ``STUDY = Study("name", "title", jobs, conclude)``.
``python -m losac_reproduction.command`` then writes its name for the Tab key.
"""

from __future__ import annotations

from importlib import import_module
from pkgutil import iter_modules

from losac_reproduction.study import Study

_MODULES = [import_module(f"{__name__}.{each.name}") for each in iter_modules(__path__)]
_FOUND = {each.name: each for module in _MODULES for each in vars(module).values() if isinstance(each, Study)}

STUDIES: dict[str, Study] = dict(sorted(_FOUND.items(), key=lambda item: item[1].place))
"""All studies by name."""
