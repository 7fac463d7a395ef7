"""Records as plain JSON values: dataclasses as objects, dates in ISO 8601, bytes in hexadecimal."""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from datetime import date
from pathlib import Path
from typing import Any


def to_jsonable(value: Any) -> Any:
    """`value` with everything that JSON lacks turned into what it has.

    Raises:
        TypeError: for a type that is in no record.
    """
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: to_jsonable(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, dict):
        return {str(key): to_jsonable(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [to_jsonable(each) for each in value]
    if isinstance(value, date):  # a datetime is a date too
        return value.isoformat()
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, Path):
        return str(value)
    if value is None or isinstance(value, str | int | float | bool):
        return value
    raise TypeError(f"{type(value).__name__} is in no record")
