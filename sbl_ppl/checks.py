"""Checks of arguments, one for each kind.

Each raises ValueError with the argument's name, what came, what is wanted and, where there is one, the remedy; else it
returns the value, NumPy's numbers and truth values as Python's.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from numbers import Real
from pathlib import Path
from typing import Any, TypeGuard

import numpy as np


def whole_number(name: str, value: Any, least: int, remedy: str = "", most: float = np.inf) -> int:
    """An integer of at least `least`; no float, and no truth value, which Python counts among the integers."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or not least <= value <= most:
        limit = f" and at most {most}" * (most < np.inf)
        raise ValueError(f"{name}={value!r} must be a whole number of at least {least}{limit}{remedy}")
    return int(value)


def seed_number(value: Any) -> int:
    """A seed that NumPy and JAX both take."""
    return whole_number("seed", value, 0, most=2**63 - 1)


def is_number(value: Any) -> TypeGuard[Any]:
    """Whether this is one real number: no text, no truth value, no array but one without dimensions."""
    if isinstance(value, bool | np.bool_):
        return False
    kind = getattr(getattr(value, "dtype", None), "kind", "")
    return isinstance(value, Real) or (kind in ("i", "u", "f") and np.ndim(value) == 0)


def number(name: str, value: Any, holds: Callable[[Any], Any], wanted: str) -> Any:
    """A real number for which `holds` is true, and which is `wanted` in words."""
    if not (is_number(value) and holds(value)):
        raise ValueError(f"{name}={value!r} must be {wanted}")
    return value.item() if isinstance(value, np.generic) else value


def positive(name: str, value: Any, remedy: str = "") -> Any:
    """A number above zero and below infinity."""
    return number(name, value, lambda x: 0 < x < np.inf, f"positive and finite{remedy}")


def noise_pair(value: Any) -> Any:
    """Shape and rate of the inverse gamma of a noise variance."""
    pair = tuple(value) if isinstance(value, Sequence | np.ndarray) else ()
    if len(pair) != 2 or not all(is_number(each) and 0 <= each < np.inf for each in pair):
        raise ValueError(f"noise_prior={value!r} must be a pair of two finite numbers (g, h) >= 0")
    return pair


def flag(name: str, value: Any, none: str = "") -> Any:
    """True or False; or None, if `none` says what that means."""
    if not (isinstance(value, bool | np.bool_) or (none and value is None)):
        wanted = f"True, False, or None {none}" if none else "True or False"
        raise ValueError(f"{name}={value!r} must be {wanted}")
    return None if value is None else bool(value)


def choice(name: str, value: Any, known: Sequence[str | None]) -> Any:
    """One of a few words."""
    if not (value is None or isinstance(value, str)) or value not in known:
        raise ValueError(f"{name}={value!r} is unknown: choose one of {tuple(known)}")
    return value


def instance(name: str, value: Any, kind: type | tuple[type, ...], wanted: str, remedy: str = "") -> Any:
    """An object of a class; `wanted` names it in words."""
    if not isinstance(value, kind):
        came = repr(value) if value is None or isinstance(value, str) else type(value).__name__
        raise ValueError(f"{name} must be {wanted}, got {came}" + f": {remedy}" * bool(remedy))
    return value


def file_path(name: str, value: Any) -> Path:
    """The path of a file or folder."""
    return Path(instance(name, value, (str, os.PathLike), "a path", "give a string or a pathlib.Path"))
