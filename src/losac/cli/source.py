"""What the sources say of names and settings, read without importing them: the Tab key cannot wait for jax."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parent.parent
_ALGORITHMS = ROOT / "algorithms" / "__init__.py"


def table(path: Path, name: str) -> dict[str, ast.expr]:
    """Return the dictionary that a file assigns to a name: its keys, and the expressions of its values."""
    for node in _parsed(path).body:
        targets = [node.target] if isinstance(node, ast.AnnAssign) else getattr(node, "targets", [])
        value = getattr(node, "value", None)
        if isinstance(value, ast.Dict) and any(isinstance(each, ast.Name) and each.id == name for each in targets):
            return {_text(key): entry for key, entry in zip(value.keys, value.values) if key is not None}
    raise LookupError(f"{path} assigns no dictionary to {name}")


def calls(path: Path, name: str) -> Iterator[tuple[list[str], dict[str, str]]]:
    """Yield the arguments, as far as they are texts, of every call of a name in a file."""
    for node in ast.walk(_parsed(path)):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == name:
            named = {each.arg: each.value for each in node.keywords if each.arg}
            yield (
                [_text(each) for each in node.args if isinstance(each, ast.Constant)],
                {word: _text(each) for word, each in named.items() if isinstance(each, ast.Constant)},
            )


def first_text(node: ast.expr) -> str:
    """Return the first text in an expression."""
    constants = (each.value for each in ast.walk(node) if isinstance(each, ast.Constant))
    return next(each for each in constants if isinstance(each, str))


def algorithms() -> list[str]:
    """Return the names of the algorithms."""
    return list(table(_ALGORITHMS, "ALGORITHMS"))


def first_sentence(algorithm: str) -> str:
    """Return what the docstring of an algorithm begins with."""
    words = ast.get_docstring(_class(*_imports(_ALGORITHMS)[algorithm])) or ""
    return words.partition("\n")[0]


def settings(algorithm: str) -> list[str]:
    """Return the settings of an algorithm, those of its bases first."""
    return list(dict.fromkeys(_fields(*_imports(_ALGORITHMS)[algorithm])))


def _fields(module: str, name: str) -> Iterator[str]:
    node, imports = _class(module, name), _imports(_path(module))
    for base in node.bases:
        where, called = imports.get(ast.unparse(base), (module, ast.unparse(base)))
        if where.startswith("losac.algorithms."):
            yield from _fields(where, called)
    for line in node.body:
        if isinstance(line, ast.AnnAssign) and not ast.unparse(line.annotation).startswith("ClassVar"):
            yield ast.unparse(line.target)


def _class(module: str, name: str) -> ast.ClassDef:
    return next(each for each in _parsed(_path(module)).body if isinstance(each, ast.ClassDef) and each.name == name)


def _imports(path: Path) -> dict[str, tuple[str, str]]:
    """Return where the names come from that a file imports: the module, and the name there."""
    found = (each for each in _parsed(path).body if isinstance(each, ast.ImportFrom))
    return {alias.asname or alias.name: (str(each.module), alias.name) for each in found for alias in each.names}


def _path(module: str) -> Path:
    return ROOT.joinpath(*module.split(".")[1:]).with_suffix(".py")


def _text(node: ast.expr) -> str:
    return str(ast.literal_eval(node))


def _parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))
