"""``losac schema``: what an experiment's file may hold, as JSON schema."""

from __future__ import annotations

from typing import Any

import typer

from losac.cli.errors import one_line_errors

EPILOG = """Examples:

losac schema > experiment.schema.json"""


def schema() -> None:
    """Print the JSON schema of an experiment's file, for editors and for other programs."""
    with one_line_errors():
        from losac.cli.output import to_json

        typer.echo(to_json(file_schema()))


def file_schema() -> dict[str, Any]:
    """Return the schema: the sections, and for each algorithm the settings that it has."""
    from losac.algorithms import ALGORITHMS
    from losac.cli.sections import file_model

    found = file_model().model_json_schema()
    found["$schema"] = "https://json-schema.org/draft/2020-12/schema"
    found["$defs"]["Algorithm"]["allOf"] = [
        {"if": {"properties": {"name": {"const": name}}, "required": ["name"]}, "then": _settings(name)}
        for name in ALGORITHMS
    ]
    return found


def _settings(name: str) -> dict[str, Any]:
    """Return the settings of one algorithm; those that take objects are for Python only."""
    import dataclasses

    from losac.algorithms import ALGORITHMS
    from losac.cli.algorithms import plain_text
    from losac.report.profile import describe

    fields = {field.name: field for field in dataclasses.fields(ALGORITHMS[name])}
    words = {p.name: p for p in describe(name).parameters if p.name != "uploads"}
    settings: dict[str, Any] = {"name": {"const": name}}
    for key, parameter in words.items():
        text = plain_text(f"{parameter.meaning} ({parameter.allowed}; default: {parameter.default})")
        settings[key] = {**_kind(fields[key].metadata), "description": text}
    return {"properties": settings, "additionalProperties": False}


def _kind(metadata: Any) -> dict[str, Any]:
    if "number" in metadata:
        return {"type": "number"}
    if metadata.get("count"):
        return {"type": "integer", "minimum": 1}
    choices = metadata.get("choices")
    return {"enum": list(choices)} if choices else {"type": "string"}
