"""Markdown tables and the numbers in them, for all parts of the benchmark."""

from collections.abc import Iterable, Sequence

import numpy as np


def markdown(header: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A Markdown table: the first column to the left, the others to the right."""
    lines = [list(header), ["---", *["---:"] * (len(header) - 1)], *rows]
    return "\n".join("| " + " | ".join(map(str, line)) + " |" for line in lines)


def spread(values: Sequence[float], digits: int) -> str:
    """Mean ± standard deviation over the draws."""
    return f"{np.mean(values):.{digits}f} ± {np.std(values, ddof=1):.{digits}f}"


def standard_error(values: Sequence[float]) -> float:
    return float(np.std(values, ddof=1) / np.sqrt(len(values)))


def with_error(values: Sequence[float], digits: int) -> str:
    """Mean ± standard error over the draws."""
    return f"{np.mean(values):.{digits}f} ± {standard_error(values):.{digits}f}"
