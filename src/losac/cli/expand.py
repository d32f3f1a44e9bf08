"""Options written once as a dataclass, taken by several commands."""

from __future__ import annotations

import dataclasses
import functools
import inspect
from collections.abc import Callable
from typing import Any, get_type_hints


def expand(name: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Replace a command's parameter that is a dataclass by one parameter for each of its fields.

    Typer reads signatures, so the command line then has an option for each field, and the command itself still
    receives the one value.
    """

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        hints = get_type_hints(command, include_extras=True)
        bundle = hints[name]
        fields = dataclasses.fields(bundle)
        field_hints = get_type_hints(bundle, include_extras=True)
        own = [
            parameter.replace(annotation=hints[parameter.name], kind=inspect.Parameter.KEYWORD_ONLY)
            for parameter in inspect.signature(command).parameters.values()
            if parameter.name != name
        ]
        shared = [
            inspect.Parameter(
                field.name,
                inspect.Parameter.KEYWORD_ONLY,
                default=None if field.default is dataclasses.MISSING else field.default,
                annotation=field_hints[field.name],
            )
            for field in fields
        ]

        @functools.wraps(command)
        def expanded(**values: Any) -> None:
            bundled = {field.name: values.pop(field.name) for field in fields}
            command(**{name: bundle(**bundled)}, **values)

        parameters = own + shared
        expanded.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        expanded.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
        return expanded

    return decorate
