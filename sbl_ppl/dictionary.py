"""Dictionaries: columns computed from inputs.

A `Dictionary` is a description (``Wavelet("haar") + ThinPlateSpline(width=3.0)``). Bound to inputs it becomes a
`Design`, an N x M matrix Phi that answers four questions: single columns, products with Phi and its transpose,
column norms, and values at new inputs. Kernels and polynomials keep the matrix; wavelets never form it, because the
fast transform does both products in O(N).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from functools import cached_property
from itertools import combinations_with_replacement
from typing import Any, NamedTuple

import numpy as np
import pywt

from .checks import instance, whole_number

Array = np.ndarray

_TIMES = (date, timedelta, np.datetime64, np.timedelta64)  # pandas' are among them, and NaT
_NO_NUMBERS = (str, bytes, complex, np.complexfloating)
_CHUNK = 1 << 16  # elements of a kernel block: small enough to stay in the second-level cache
_CONSTANT = 1e-12  # what rounding may leave of a constant column when its mean is taken out, relative to it


def as_numbers(values: Any, name: str) -> Array:
    """An array of float64, without a copy where it is one already.

    Text, complex numbers, dates and masked values are refused: they would become numbers that nobody meant.
    """
    if np.ma.is_masked(values):
        count = np.ma.count_masked(values)
        raise ValueError(f"{name} holds {count} masked values: remove them, or impute them with `filled`")
    try:
        array = np.asarray(values)
        kinds = set(map(type, array.flat)) if array.dtype.kind == "O" else {array.dtype.type}
        times = any(issubclass(kind, _TIMES) for kind in kinds)
        if not times and any(issubclass(kind, _NO_NUMBERS) for kind in kinds):
            raise TypeError("text or complex numbers")
        numbers = array if times else np.asarray(array, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{name} must hold numbers, got {type(values).__name__}: convert it first") from error
    if times:
        raise ValueError(
            f"{name} holds dates or times, and their unit is for you to choose: give numbers, such as the days since "
            "the first training input, (x - x[0]) / np.timedelta64(1, 'D')"
        )
    return numbers


def names_of(x: Any) -> list[str] | None:
    """Names of the columns of a data frame, or of a series that has a name; None for an array."""
    if _is_frame(x):
        return [str(column) for column in x.columns]
    name = getattr(x, "name", None)
    return [name] if isinstance(name, str) and np.ndim(x) == 1 else None


def _is_frame(x: Any) -> bool:
    return hasattr(x, "columns") and hasattr(x, "__array__")  # pandas is not imported for it


def in_order(x_new: Any, names: list[str] | None, name: str = "x_new") -> Any:
    """The columns of a data frame that bear the names, in their order; what is no data frame has no names to go by."""
    if names is None or not _is_frame(x_new):
        return x_new
    given = names_of(x_new) or []
    if given == names:
        return x_new
    missing = [column for column in names if given.count(column) == 0]
    if missing:
        raise ValueError(f"{name} has the columns {given} and lacks {missing}: rename its columns, or give an array")
    if any(given.count(column) > 1 for column in names):
        raise ValueError(f"{name} has several columns of one name among {given}: rename them, or give an array")
    return np.asarray(x_new)[:, [given.index(column) for column in names]]


def finite(values: Array, name: str, owner: Dictionary) -> Array:
    """The values of columns, unless the inputs they come from, called `name`, are too large for them."""
    if not np.isfinite(values).all():
        raise ValueError(
            f"{name} is too large for {owner.name}, whose columns leave the range of floats: change its units"
        )
    return values


def as_inputs(x: Any, name: str = "x") -> Array:
    """Inputs as float64 of shape (N, d); a one-dimensional x becomes one column."""
    points = as_numbers(x, name)
    if points.ndim == 1:
        points = points[:, None]
    if points.ndim != 2:
        raise ValueError(f"{name} must have shape (N,) or (N, d), got {points.shape}: reshape it")
    if points.size == 0:
        raise ValueError(f"{name} is empty, shape {points.shape}: give at least one point")
    if not np.isfinite(points).all():
        raise ValueError(
            f"{name} holds {int((~np.isfinite(points)).sum())} NaN or infinite values: remove or impute them"
        )
    return points


class Design:
    """A dictionary bound to inputs: the N x M matrix Phi, formed or not.

    Attributes
    ----------
    n_rows, n_columns : int
        N and M.
    orthonormal : bool
        Whether the columns are known to be orthonormal by construction.
    centered : bool
        Whether the mean over the rows was taken out of every column, here and at new inputs.
    """

    n_rows: int
    n_columns: int
    orthonormal: bool = False
    centered: bool = False

    def columns(self, indices: Any) -> Array:
        """The chosen columns, shape (N, k)."""
        raise NotImplementedError

    def project(self, vector: Array) -> Array:
        """Phi' v: inner products of all columns with a vector of length N."""
        raise NotImplementedError

    def gram_rows(self, rows: Array) -> Array:
        """Inner products of several vectors, shape (k, N), with all columns, shape (k, M)."""
        return np.stack([self.project(row) for row in rows]) if len(rows) else np.empty((0, self.n_columns))

    def combine(self, weights: Array) -> Array:
        """Phi w: the sum of all columns weighted by a vector of length M."""
        raise NotImplementedError

    def norms(self) -> Array:
        """Euclidean norms of the columns, shape (M,)."""
        raise NotImplementedError

    def evaluate(self, x_new: Any, indices: Any) -> Array:
        """Values of the chosen columns at new inputs, shape (len(x_new), k)."""
        raise NotImplementedError

    def peaks(self) -> Array:
        """Largest size of each column at places beside the rows, such as given centres; NaN where none are known."""
        return np.full(self.n_columns, np.nan)

    def center(self) -> Design:
        """The same columns without their means over the rows: what an intercept leaves of them."""
        return self if self.centered else CenteredDesign(self)

    def take(self, rows: Array) -> Design:
        """The same columns over some of the rows; its "new inputs" are numbers of rows of this design."""

        def evaluate(numbers: Any, indices: Array) -> Array:
            return self.columns(indices)[numbers]

        return MatrixDesign(np.array(self.matrix()[rows].T, order="C"), lambda: self.labels, evaluate)

    @property
    def labels(self) -> list[str]:
        """One readable, unique name per column."""
        raise NotImplementedError

    def matrix(self) -> Array:
        """Phi as a dense N x M array."""
        return self.columns(np.arange(self.n_columns))

    def curve(self, x_new: Any, indices: Array, weights: Array) -> Array:
        """The weighted sum of the chosen columns, at new inputs or (None) at the training inputs."""
        values = self.columns(indices) if x_new is None else self.evaluate(x_new, indices)
        return values @ weights

    def spread(self, x_new: Any, indices: Array, variances: Array) -> Array:
        """Sum of the squared columns weighted by variances: the function's variance if weights are independent."""
        values = self.columns(indices) if x_new is None else self.evaluate(x_new, indices)
        return values**2 @ variances


class MatrixDesign(Design):
    """A design that holds its matrix. Stored column by column, so that both products run at memory speed."""

    def __init__(
        self,
        rows_of_columns: Array,
        labels: Callable[[], list[str]],
        function: Callable[[Any, Array], Array],
        elsewhere: Array | None = None,
    ):
        self._transposed = rows_of_columns  # M x N, C order
        self._labels = labels
        self._function = function
        self._elsewhere = elsewhere  # the columns at inputs beside the rows, M x K
        self.n_columns, self.n_rows = rows_of_columns.shape

    def take(self, rows: Array) -> Design:
        def evaluate(numbers: Any, indices: Array) -> Array:
            return self._transposed[indices][:, numbers].T

        return MatrixDesign(self._transposed[:, rows], self._labels, evaluate, self._elsewhere)

    def peaks(self) -> Array:
        return super().peaks() if self._elsewhere is None else np.abs(self._elsewhere).max(axis=1)

    def center(self) -> Design:
        if self.centered:
            return self
        means = self._transposed.mean(axis=1)
        rows = self._transposed - means[:, None]
        more = rows.mean(axis=1)  # what the first mean, rounded, left
        rows -= more[:, None]
        means += more
        rows[np.abs(rows).max(axis=1) <= _CONSTANT * np.abs(means)] = 0.0
        function = self._function

        def evaluate(x_new: Any, indices: Array) -> Array:
            return function(x_new, indices) - means[indices]

        elsewhere = None if self._elsewhere is None else self._elsewhere - means[:, None]
        centered = type(self)(rows, self._labels, evaluate, elsewhere)
        centered.centered = True
        return centered

    def columns(self, indices: Any) -> Array:
        return self._transposed[indices].T

    def project(self, vector: Array) -> Array:
        return self._transposed @ vector

    def gram_rows(self, rows: Array) -> Array:
        return rows @ self._transposed.T

    def combine(self, weights: Array) -> Array:
        return weights @ self._transposed

    def norms(self) -> Array:
        largest = np.abs(self._transposed).max(axis=1)
        if largest.max(initial=0.0) < 1e100 and largest.min(initial=1.0) > 1e-100:
            return np.sqrt(np.einsum("ij,ij->i", self._transposed, self._transposed))
        safe = np.where(largest > 0, largest, 1.0)  # squares of very large or small columns leave the float range
        return largest * np.linalg.norm(self._transposed / safe[:, None], axis=1)

    def evaluate(self, x_new: Any, indices: Any) -> Array:
        return self._function(x_new, np.asarray(indices))

    @property
    def labels(self) -> list[str]:
        return self._labels()


class CenteredDesign(Design):
    """A design that is not a matrix, without the means of its columns."""

    centered = True

    def __init__(self, design: Design):
        self._inner = design
        self.n_rows, self.n_columns = design.n_rows, design.n_columns
        self._means = design.project(np.ones(self.n_rows)) / self.n_rows
        square = design.norms() ** 2 - self.n_rows * self._means**2
        self._norms = np.sqrt(np.where(square > _CONSTANT, square, 0.0))

    def columns(self, indices: Any) -> Array:
        return np.where(self._norms[indices] > 0, self._inner.columns(indices) - self._means[indices], 0.0)

    def project(self, vector: Array) -> Array:
        return np.where(self._norms > 0, self._inner.project(vector - vector.mean()), 0.0)

    def combine(self, weights: Array) -> Array:
        total = self._inner.combine(weights)
        return total - total.mean()

    def norms(self) -> Array:
        return self._norms

    def evaluate(self, x_new: Any, indices: Any) -> Array:
        return self._inner.evaluate(x_new, indices) - self._means[indices]

    def curve(self, x_new: Any, indices: Array, weights: Array) -> Array:
        return self._inner.curve(x_new, indices, weights) - self._means[indices] @ weights

    @property
    def labels(self) -> list[str]:
        return self._inner.labels


class Dictionary:
    """A description of basis functions. ``a + b`` unites two dictionaries."""

    def bind(self, x: Any) -> Design:
        """Compute the columns for inputs x of shape (N,) or (N, d)."""
        raise NotImplementedError

    @property
    def parts(self) -> tuple[Dictionary, ...]:
        """The dictionaries that were united; a single one is its own only part."""
        return (self,)

    def __add__(self, other: Dictionary) -> Union:
        if not isinstance(other, Dictionary):
            raise TypeError(
                f"a dictionary unites with a dictionary, got {type(other).__name__}: wrap a matrix in Columns(...)"
            )
        return Union(self.parts + other.parts)

    @property
    def name(self) -> str:
        """A short name for labels and legends."""
        return type(self).__name__

    def config(self) -> dict[str, Any]:
        """Constructor arguments, for saving: numbers, strings, lists and arrays only."""
        return {}


def _check_width(width: Any, dimension: int, owner: str) -> Array:
    values = np.atleast_1d(np.asarray(width, dtype=np.float64))
    if values.ndim != 1 or len(values) not in (1, dimension):
        raise ValueError(
            f"{owner}: width={width!r} must be one number or one per input dimension ({dimension}): got {values.size}"
        )
    return np.broadcast_to(values, (dimension,))


class Kernel(Dictionary):
    """Base of the kernels: one basis function K(., c) per centre; the centres default to the training inputs."""

    def __init__(self, width: float | Sequence[float] = 1.0, centers: Any = None):
        values = np.atleast_1d(as_numbers(width, "width"))
        if isinstance(width, bool) or values.ndim != 1 or not ((values > 0) & (values < np.inf)).all():
            raise ValueError(f"width={width!r} must be positive and finite: give the kernel's scale in units of x")
        self.width = float(values[0]) if values.size == 1 else tuple(float(value) for value in values)
        self.centers = None if centers is None else as_inputs(centers, "centers")
        self.center_names = names_of(centers)

    def __repr__(self) -> str:
        centers = "" if self.centers is None else f", centers=<{len(self.centers)} points>"
        return f"{type(self).__name__}(width={self.width}{centers})"

    @property
    def name(self) -> str:
        return f"{type(self).__name__}({self.width})"

    def config(self) -> dict[str, Any]:
        return {"width": self.width, "centers": self.centers}

    def values(self, a: Array, b: Array) -> Array:
        """K between scaled points a (k, d) and b (n, d), shape (k, n)."""
        raise NotImplementedError

    def between(self, a: Array, b: Array) -> Array:
        """K between points a (k, d) and b (n, d) in the user's units, shape (k, n)."""
        scale = _check_width(self.width, a.shape[1], type(self).__name__)
        return self._table(a / scale, b, scale)

    def _table(self, a: Array, b: Array, scale: Array) -> Array:
        """K between scaled centres and points, shape (k, n)."""
        table = np.empty((len(a), len(b)))
        step = max(1, _CHUNK // max(1, len(b)))
        with np.errstate(over="ignore", invalid="ignore"):  # `finite` tells; a distance of inf is right for a Gaussian
            b = b / scale
            for start in range(0, len(a), step):
                table[start : start + step] = self.values(a[start : start + step], b)
        return table

    def bind(self, x: Any) -> Design:
        points = as_inputs(x)
        centers = points if self.centers is None else self.centers
        dimension = points.shape[1]
        if centers.shape[1] != dimension:
            raise ValueError(f"centers have {centers.shape[1]} dimensions and x has {dimension}: make them equal")
        scale = _check_width(self.width, dimension, type(self).__name__)
        with np.errstate(over="ignore"):
            scaled = centers / scale

        def evaluate(x_new: Any, indices: Array) -> Array:
            new = as_inputs(x_new, "x_new")
            if new.shape[1] != dimension:
                raise ValueError(f"x_new has {new.shape[1]} dimensions, the dictionary was bound to {dimension}")
            return finite(self._table(scaled[indices], new, scale), "x_new", self).T

        def labels() -> list[str]:
            points_text = [", ".join(f"{value:.4g}" for value in center) for center in centers]
            return _unique([f"{self.name}@{text}" for text in points_text])

        elsewhere = None if self.centers is None else self._table(scaled, centers, scale)
        return MatrixDesign(finite(self._table(scaled, points, scale), "x", self), labels, evaluate, elsewhere)


def _squared_distance(a: Array, b: Array) -> Array:
    """Sum of squared differences, exactly zero for equal points (the expanded form is not)."""
    total = np.subtract.outer(a[:, 0], b[:, 0])
    np.square(total, out=total)
    for k in range(1, a.shape[1]):
        difference = np.subtract.outer(a[:, k], b[:, k])
        np.square(difference, out=difference)
        total += difference
    return total


class Gaussian(Kernel):
    """exp(-|x - c|^2 / r^2), SE07 eq. (39). The width r may be one number or one per dimension."""

    def values(self, a: Array, b: Array) -> Array:
        table = _squared_distance(a, b)
        np.negative(table, out=table)
        return np.exp(table, out=table)


class ThinPlateSpline(Kernel):
    """rho^2 log rho with rho = |x - c| / r, and 0 at rho = 0, SE07 eq. (40)."""

    def values(self, a: Array, b: Array) -> Array:
        squared = _squared_distance(a, b)
        # log of 1 where the points coincide: the limit of rho^2 log rho is 0
        return 0.5 * squared * np.log(np.where(squared > 0, squared, 1.0))


class LinearSpline(Kernel):
    """Vapnik's linear spline, SE07 eq. (38) and T01 eq. (29); in d dimensions the product over coordinates."""

    def values(self, a: Array, b: Array) -> Array:
        product = np.ones((len(a), len(b)))
        for k in range(a.shape[1]):
            left, right = a[:, k, None], b[None, :, k]
            least = np.minimum(left, right)
            cross = left * right
            product *= 1 + cross + cross * least - 0.5 * (left + right) * least**2 + least**3 / 3
        return product


class _Formula(Dictionary):
    """A dictionary given by a function of the inputs that returns (N, M)."""

    of_inputs = True  # and not only of their number

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{key}={value!r}' for key, value in self.config().items())})"

    def _matrix(self, points: Array) -> Array:
        raise NotImplementedError

    def _labels(self, n_columns: int, dimension: int) -> list[str]:
        raise NotImplementedError

    def bind(self, x: Any) -> Design:
        points = as_inputs(x)
        with np.errstate(over="ignore", invalid="ignore"):
            values = finite(self._matrix(points), "x", self)
        rows = np.array(values.T, order="C")  # a copy: the caller's x may change later

        def evaluate(x_new: Any, indices: Array) -> Array:
            new = as_inputs(x_new, "x_new")
            if self.of_inputs and new.shape[1] != points.shape[1]:
                raise ValueError(f"x_new has {new.shape[1]} dimensions, the dictionary was bound to {points.shape[1]}")
            with np.errstate(over="ignore", invalid="ignore"):
                return finite(self._matrix(new)[:, indices], "x_new", self)

        return MatrixDesign(rows, lambda: self._labels(len(rows), points.shape[1]), evaluate, self._everywhere)

    _everywhere: Array | None = None  # the columns at inputs that show how large they are anywhere, if there are such


class Bias(_Formula):
    """A constant: one column of ones."""

    _everywhere = np.ones((1, 1))
    of_inputs = False

    def _matrix(self, points: Array) -> Array:
        return np.ones((len(points), 1))

    def _labels(self, n_columns: int, dimension: int) -> list[str]:
        return ["Bias"]


class Linear(_Formula):
    """The coordinates of x themselves, one column each."""

    def _matrix(self, points: Array) -> Array:
        return points

    def _labels(self, n_columns: int, dimension: int) -> list[str]:
        return [f"Linear(x{k})" for k in range(dimension)]


class Polynomial(_Formula):
    """All monomials of total degree 1 to `degree` (the constant is `Bias`)."""

    def __init__(self, degree: int):
        self.degree = whole_number("degree", degree, 1, ": use Bias() for the constant")

    def config(self) -> dict[str, Any]:
        return {"degree": self.degree}

    def _terms(self, dimension: int) -> list[tuple[int, ...]]:
        return [term for k in range(1, self.degree + 1) for term in combinations_with_replacement(range(dimension), k)]

    def _matrix(self, points: Array) -> Array:
        return np.stack([points[:, list(term)].prod(axis=1) for term in self._terms(points.shape[1])], axis=1)

    def _labels(self, n_columns: int, dimension: int) -> list[str]:
        return ["*".join(f"x{k}" for k in term) for term in self._terms(dimension)]


class Custom(_Formula):
    """Columns from a function of the inputs: ``Custom(lambda x: np.stack([np.sin(x), np.cos(x)], axis=1))``.

    The function gets x as the user gave it in shape, (N,) for one dimension and (N, d) otherwise, and returns
    (N, M) or (N,).
    """

    def __init__(self, function: Callable[[Array], Array], name: str = "Custom"):
        if not callable(function):
            raise TypeError(
                f"function must be callable, got {type(function).__name__}: pass a matrix as Columns(matrix)"
            )
        self.function = function
        self._name = instance("name", name, str, "a string")

    def __repr__(self) -> str:
        return f"Custom({getattr(self.function, '__name__', 'function')}, name={self._name!r})"

    @property
    def name(self) -> str:
        return self._name

    def config(self) -> dict[str, Any]:
        raise ValueError(
            "a Custom dictionary holds a function and is not saved: pass dictionary= when you load the fit"
        )

    def _matrix(self, points: Array) -> Array:
        given = self.function(points[:, 0] if points.shape[1] == 1 else points)
        values = as_numbers(given, "what the function of Custom returns")
        values = values[:, None] if values.ndim == 1 else values
        if values.ndim != 2 or len(values) != len(points) or values.size == 0 or not np.isfinite(values).all():
            raise ValueError(
                f"the function of Custom must return finite values of shape ({len(points)}, M), got {values.shape}"
                f"{'' if np.isfinite(values).all() else ' with NaN or infinite values'}"
            )
        return values

    def _labels(self, n_columns: int, dimension: int) -> list[str]:
        return [f"{self._name}[{k}]" for k in range(n_columns)]


class Columns(Dictionary):
    """Any N x M matrix, column by column. x is not needed; at prediction time `x_new` is a matrix with M columns.

    The columns of a data frame keep their names: at prediction those of another frame are found by them, in any order
    and among others. Beside dictionaries of inputs, as in ``Columns(matrix) + Gaussian(2.0)``, x_new is a pair
    (points, matrix), or one frame that has the columns of both.

    Parameters
    ----------
    matrix : array or data frame of shape (N, M)
    labels : sequence of str, optional
        What to call the columns; default their names.
    names : sequence of str, optional
        By what to find the columns in a data frame; default the names in `matrix`, if it is one.
    """

    def __init__(self, matrix: Any, labels: Sequence[str] | None = None, names: Sequence[str] | None = None):
        self.matrix = self._check(matrix, "matrix")
        self.names = self._texts("names", names_of(matrix) if names is None else names)
        self._given = self.names if labels is None else self._texts("labels", labels)

    def _texts(self, name: str, values: Any) -> list[str] | None:
        if values is None:
            return None
        if isinstance(values, str) or not np.iterable(values):
            raise ValueError(f"{name}={values!r} must be a sequence of strings: give one for each column")
        texts, m = [str(value) for value in values], self.matrix.shape[1]
        if len(texts) != m:
            raise ValueError(f"{name} has {len(texts)} names for {m} columns: give one for each")
        return texts

    @staticmethod
    def _check(matrix: Any, name: str) -> Array:
        values = as_numbers(matrix, name)
        values = values[:, None] if values.ndim == 1 else values
        if values.ndim != 2 or values.size == 0:
            raise ValueError(
                f"{name} must be an N x M matrix with at least one row and column, got shape {values.shape}"
            )
        if not np.isfinite(values).all():
            raise ValueError(
                f"{name} holds {int((~np.isfinite(values)).sum())} NaN or infinite values: remove or impute them"
            )
        return values

    def __repr__(self) -> str:
        return f"Columns(<{self.matrix.shape[0]} x {self.matrix.shape[1]}>)"

    def config(self) -> dict[str, Any]:
        return {"matrix": self.matrix, "labels": self._given, "names": self.names}

    def bind(self, x: Any = None) -> Design:
        n_columns = self.matrix.shape[1]

        def evaluate(x_new: Any, indices: Array) -> Array:
            new = self._check(in_order(x_new, self.names), "x_new")
            if new.shape[1] != n_columns:
                raise ValueError(f"x_new has {new.shape[1]} columns, the dictionary has {n_columns}: give all of them")
            return new[:, indices]

        def labels() -> list[str]:
            return _unique(self._given) if self._given else [f"column {k}" for k in range(n_columns)]

        return ColumnsDesign(np.array(self.matrix.T, order="C"), labels, evaluate)


class ColumnsDesign(MatrixDesign):
    """A design whose values at new inputs are given, not computed."""


class Wavelet(Dictionary):
    """An orthogonal wavelet basis on an equally spaced grid, by PyWavelets' periodized transform.

    Parameters
    ----------
    name : str
        Any orthogonal family of PyWavelets: ``"haar"``, ``"db4"``, ``"sym8"``, ``"coif3"``...
    level : int, optional
        Depth of the decomposition, at most the number of times N can be halved. Default: as deep as the filter is
        shorter than the signal (`pywt.dwt_max_level`). SE07 goes on until one scaling coefficient is left,
        ``level=log2(N)``.
    """

    def __init__(self, name: str = "sym8", level: int | None = None):
        known = pywt.wavelist(kind="discrete")
        if not isinstance(name, str) or name not in known:
            raise ValueError(f"wavelet name={name!r} is unknown: choose one of {', '.join(known[25:40])}, ...")
        self.wavelet = pywt.Wavelet(name)
        taps = np.asarray(self.wavelet.dec_lo)
        lags = [taps[2 * k :] @ taps[: len(taps) - 2 * k] for k in range((len(taps) + 1) // 2)]
        # dmey is announced as orthogonal, but its truncated filter is so only to 5e-3
        if not self.wavelet.orthogonal or np.abs(np.array(lags) - np.eye(1, len(lags))).max() > 1e-8:
            raise ValueError(f"wavelet name={name!r} is not orthogonal: choose a 'haar', 'db', 'sym' or 'coif' wavelet")
        self._name, self.level = name, None
        if level is not None:
            self.level = whole_number("level", level, 1, ", or None for the deepest")

    def __repr__(self) -> str:
        return f"Wavelet({self._name!r}, level={self.level})"

    @property
    def name(self) -> str:
        return f"Wavelet({self._name})"

    def config(self) -> dict[str, Any]:
        return {"name": self._name, "level": self.level}

    def bind(self, x: Any) -> Design:
        points = as_inputs(x)
        n = len(points)
        if points.shape[1] != 1:
            raise ValueError(f"x has {points.shape[1]} dimensions and a wavelet basis needs one: use a kernel")
        halvings = (n & -n).bit_length() - 1
        if halvings == 0:
            raise ValueError(
                f"x has odd length {n} and a wavelet basis needs an even one: drop a point or pad to {n + 1}"
            )
        if self.level is not None and self.level > halvings:
            raise ValueError(
                f"level={self.level} exceeds {halvings} for length {n} with {self._name!r}: lower it or pad to a "
                f"multiple of {2**self.level}"
            )
        fitting = pywt.dwt_max_level(n, self.wavelet.dec_len)
        return WaveletDesign(points[:, 0], self.wavelet, self.level or min(max(fitting, 1), halvings))


class WaveletDesign(Design):
    """An orthonormal wavelet basis as two transforms.

    Every column of a level is a circular shift of its first one, so single columns, their values at new points and
    sums of their squares need one prototype per level.
    """

    orthonormal = True

    def __init__(self, x: Array, wavelet: pywt.Wavelet, level: int):
        steps = np.diff(x)
        self._step = (x[-1] - x[0]) / (len(x) - 1)
        # a thousandth of a step: rounding of a grid in float32 passes, missing points and jitter do not
        if self._step <= 0 or np.abs(steps - self._step).max() > 1e-3 * self._step:
            raise ValueError(
                f"x must be increasing and equally spaced for a wavelet basis, got steps from {steps.min():.4g} to "
                f"{steps.max():.4g}: sort it, resample it, or use a kernel"
            )
        self._x, self._wavelet, self._level = x.copy(), wavelet, level
        self.n_rows = self.n_columns = n = len(x)
        sizes = [n >> level, *[n >> j for j in range(level, 0, -1)]]
        self._offsets = np.concatenate([[0], np.cumsum(sizes)])
        self._strides = np.array([1 << level, *[1 << j for j in range(level, 0, -1)]])

    def project(self, vector: Array) -> Array:
        coefficients = np.empty(self.n_columns)
        smooth = vector
        for j in range(self._level):
            smooth, detail = pywt.dwt(smooth, self._wavelet, mode="periodization")
            end = self.n_columns >> j
            coefficients[end - len(detail) : end] = detail
        coefficients[: len(smooth)] = smooth
        return coefficients

    def combine(self, weights: Array) -> Array:
        weights = np.asarray(weights, dtype=np.float64)
        smooth = weights[: self._offsets[1]]
        for start, stop in zip(self._offsets[1:-1], self._offsets[2:], strict=True):
            smooth = pywt.idwt(smooth, weights[start:stop], self._wavelet, mode="periodization")
        return smooth

    def norms(self) -> Array:
        return np.broadcast_to(np.float64(1.0), (self.n_columns,))

    @cached_property
    def _prototypes(self) -> list[Array]:
        """The first column of each level on a circle just long enough to hold it, at most N points."""
        return [self._prototype(row) for row in range(self._level + 1)]

    def _prototype(self, row: int) -> Array:
        stride = int(self._strides[row])
        unit = np.eye(1, min(self.n_rows // stride, 2 * self._wavelet.rec_len))[0]
        pair = (unit, None) if row == 0 else (None, unit)
        for _ in range(stride.bit_length() - 1):
            pair = (pywt.idwt(*pair, self._wavelet, mode="periodization"), None)
        return np.asarray(pair[0])

    def _place(self, indices: Any) -> tuple[Array, Array]:
        """Level (a row of the prototypes) and circular shift of the chosen columns."""
        indices = np.atleast_1d(indices)
        rows = np.searchsorted(self._offsets, indices, side="right") - 1
        return rows, (indices - self._offsets[rows]) * self._strides[rows]

    def columns(self, indices: Any) -> Array:
        values = self._at(np.arange(self.n_rows), indices)
        return values[:, 0] if np.ndim(indices) == 0 else values

    def _at(self, grid_rows: Array, indices: Any) -> Array:
        rows, shifts = self._place(indices)
        values = np.empty((len(grid_rows), len(rows)))
        for row in np.unique(rows):
            prototype, mine = self._prototypes[row], np.flatnonzero(rows == row)
            half = len(prototype) // 2  # the second half of its circle stands left of the origin
            offset = (grid_rows[:, None] - shifts[mine] + half) % self.n_rows
            values[:, mine] = np.where(offset < len(prototype), np.roll(prototype, half).take(offset, mode="clip"), 0.0)
        return values

    def _locate(self, x_new: Any) -> tuple[Array, Array]:
        """Left grid neighbour and fraction towards the right one; Haar takes the nearest grid point."""
        points = as_inputs(x_new, "x_new")
        if points.shape[1] != 1:
            raise ValueError(f"x_new has {points.shape[1]} dimensions and a wavelet basis has one")
        first, last, margin = self._x[0], self._x[-1], (0.5 + 1e-9) * self._step
        if points.min() < first - margin or points.max() > last + margin:
            raise ValueError(
                f"x_new reaches outside the grid of the wavelet basis, [{first:.6g}, {last:.6g}]: stay inside it, or "
                "use a kernel to extrapolate"
            )
        place = np.interp(points[:, 0], self._x, np.arange(self.n_rows))  # half a step beyond an end: the end itself
        nearest = np.rint(place)
        on_grid = np.abs(place - nearest) < 1e-6  # rounding of x must not smear a step
        place = np.where(on_grid | (self._wavelet.name in ("haar", "db1")), nearest, place)
        left = np.minimum(place.astype(int), self.n_rows - 1)
        return left, place - left

    def evaluate(self, x_new: Any, indices: Any) -> Array:
        left, fraction = self._locate(x_new)
        values = self._at(left, indices)
        between = np.flatnonzero(fraction)
        if len(between):
            right = self._at(left[between] + 1, indices)
            values[between] += fraction[between, None] * (right - values[between])
        return values

    def curve(self, x_new: Any, indices: Array, weights: Array) -> Array:
        full = np.zeros(self.n_columns)
        full[indices] = weights
        values = self.combine(full)
        if x_new is None:
            return values
        left, fraction = self._locate(x_new)
        return values[left] + fraction * (values[np.minimum(left + 1, self.n_rows - 1)] - values[left])

    def spread(self, x_new: Any, indices: Array, variances: Array) -> Array:
        """On the grid O(N) per level: the squared prototype, in blocks of one shift, times the variances shifted."""
        if x_new is not None and self._locate(x_new)[1].any():
            return super().spread(x_new, indices, variances)
        rows, shifts = self._place(indices)
        total = np.zeros(self.n_rows)
        for row in np.unique(rows):
            stride, mine = self._strides[row], rows == row
            blocks, places = (self._prototypes[row] ** 2).reshape(-1, stride), self.n_rows // stride
            support = np.flatnonzero(blocks.any(axis=1))
            shifted = np.zeros((places, len(support)))
            for k, block in enumerate(support):
                signed = block if 2 * block < len(blocks) else block - len(blocks)
                shifted[(shifts[mine] // stride + signed) % places, k] = variances[mine]
            touched = np.flatnonzero(shifted.any(axis=1))
            total.reshape(-1, stride)[touched] += shifted[touched] @ blocks[support]
        return total if x_new is None else total[self._locate(x_new)[0]]

    @property
    def labels(self) -> list[str]:
        names = [f"scaling {self._level}", *[f"detail {j}" for j in range(self._level, 0, -1)]]
        rows, _ = self._place(np.arange(self.n_columns))
        places = np.arange(self.n_columns) - self._offsets[rows]
        return [f"{self._wavelet.name} {names[row]}[{place}]" for row, place in zip(rows, places, strict=True)]


class Pair(NamedTuple):
    """New inputs of a union in which `Columns` stand beside dictionaries of points."""

    points: Any
    matrix: Any


def inputs_for(dictionary: Dictionary, x_new: Any, dimension: int, names: list[str] | None) -> Any:
    """New inputs, as a user gave them, in the form in which the design of a dictionary takes them.

    `dimension` and `names` are those of the training inputs. Columns of a data frame are found by name; a pair, or a
    frame with the columns of both, serves a union in which `Columns` stand beside dictionaries of points.
    """
    matrices = [part for part in dictionary.parts if isinstance(part, Columns)]
    others = [part for part in dictionary.parts if not isinstance(part, Columns)]
    if x_new is None or not matrices:
        return in_order(x_new, names)
    for part in matrices:  # also of those of which no column was kept
        in_order(x_new[-1] if isinstance(x_new, tuple) and x_new else x_new, part.names)
    of_points = [part for part in others if not isinstance(part, Bias)]
    if not of_points:  # a bias only has to know how many rows there are
        return Pair(np.zeros(len(x_new)), x_new) if others and _is_frame(x_new) else x_new
    if isinstance(x_new, tuple) and len(x_new) == 2:
        return Pair(in_order(x_new[0], names), x_new[1])
    if _is_frame(x_new) and names is not None:
        return Pair(in_order(x_new, names), x_new)
    width = as_inputs(x_new, "x_new").shape[1]
    if any(width != wanted for wanted in (dimension, *(part.matrix.shape[1] for part in matrices))):
        raise ValueError(
            f"x_new must be a pair (points, matrix), got {type(x_new).__name__}: {of_points[0].name} is a function of "
            "points, and Columns need a matrix"
        )
    return x_new


class Union(Dictionary):
    """Several dictionaries side by side; written ``a + b``."""

    def __init__(self, parts: Sequence[Dictionary]):
        self._parts = tuple(parts)

    @property
    def parts(self) -> tuple[Dictionary, ...]:
        return self._parts

    @property
    def name(self) -> str:
        return " + ".join(part.name for part in self._parts)

    def __repr__(self) -> str:
        return " + ".join(repr(part) for part in self._parts)

    def bind(self, x: Any) -> Design:
        return UnionDesign([part.bind(x) for part in self._parts])


class UnionDesign(Design):
    """Designs side by side: products go to each part."""

    def __init__(self, designs: Sequence[Design]):
        self.designs = tuple(designs)
        rows = {design.n_rows for design in designs}
        if len(rows) != 1:
            raise ValueError(f"the united dictionaries have {sorted(rows)} rows: bind them to the same inputs")
        self.n_rows = rows.pop()
        self.offsets = np.concatenate([[0], np.cumsum([design.n_columns for design in designs])])
        self.n_columns = int(self.offsets[-1])
        self.centered = all(design.centered for design in designs)

    def center(self) -> Design:
        return UnionDesign([design.center() for design in self.designs])

    def take(self, rows: Array) -> Design:
        return UnionDesign([design.take(rows) for design in self.designs])

    def peaks(self) -> Array:
        return np.concatenate([design.peaks() for design in self.designs])

    def _gather(self, indices: Any, value: Callable[[Design, Array], Array], n: int) -> Array:
        indices = np.atleast_1d(indices)
        result = np.empty((n, len(indices)))
        for design, start, stop in zip(self.designs, self.offsets[:-1], self.offsets[1:], strict=True):
            mine = np.flatnonzero((indices >= start) & (indices < stop))
            if len(mine):
                result[:, mine] = value(design, indices[mine] - start)
        return result

    def columns(self, indices: Any) -> Array:
        values = self._gather(indices, lambda design, chosen: design.columns(chosen), self.n_rows)
        return values[:, 0] if np.ndim(indices) == 0 else values

    def evaluate(self, x_new: Any, indices: Any) -> Array:
        given = self._given(x_new)
        rows = {len(new) if _is_frame(new) else len(as_inputs(new, "x_new")) for new in given.values()}
        if len(rows) != 1:
            raise ValueError(f"x_new has {sorted(rows)} rows of points and of the matrix: make them equal")
        return self._gather(indices, lambda design, chosen: design.evaluate(given[design], chosen), rows.pop())

    def _given(self, x_new: Any) -> dict[Design, Any]:
        """What each design is evaluated at. Several `Columns` may share a matrix that has the columns of all."""
        points, matrix = x_new if isinstance(x_new, Pair) else (x_new, x_new)
        tables = [design for design in self.designs if isinstance(design, ColumnsDesign)]
        given = {design: matrix if design in tables else points for design in self.designs}
        ends = np.cumsum([design.n_columns for design in tables])
        if len(tables) > 1 and not _is_frame(matrix) and as_inputs(matrix, "x_new").shape[1] == ends[-1]:
            given |= zip(tables, np.split(as_inputs(matrix, "x_new"), ends[:-1], axis=1), strict=True)
        return given

    def project(self, vector: Array) -> Array:
        return np.concatenate([design.project(vector) for design in self.designs])

    def gram_rows(self, rows: Array) -> Array:
        return np.concatenate([design.gram_rows(rows) for design in self.designs], axis=1)

    def combine(self, weights: Array) -> Array:
        pieces = np.split(np.asarray(weights), self.offsets[1:-1])
        return np.sum([design.combine(piece) for design, piece in zip(self.designs, pieces, strict=True)], axis=0)

    def norms(self) -> Array:
        return np.concatenate([design.norms() for design in self.designs])

    @property
    def labels(self) -> list[str]:
        return _unique([label for design in self.designs for label in design.labels])


def _unique(labels: list[str]) -> list[str]:
    """The same labels, with #2, #3, ... behind repetitions: coordinates of an ArviZ dimension must differ."""
    taken, last = set(labels), dict[str, int]()
    result = []
    for label in labels:
        name = label
        while label in last and name in taken:  # more than once for "a", "a", "a #2": the second becomes "a #3"
            last[label] += 1
            name = f"{label} #{last[label]}"
        last.setdefault(label, 1)
        taken.add(name)
        result.append(name)
    return result


@dataclass(frozen=True)
class Part:
    """One part of a bound dictionary: its name and the range of its columns."""

    name: str
    start: int
    stop: int


def parts_of(dictionary: Dictionary, design: Design) -> list[Part]:
    """Names and column ranges of the parts of a dictionary, in order, names unique."""
    offsets = design.offsets if isinstance(design, UnionDesign) else np.array([0, design.n_columns])
    names = _unique([part.name for part in dictionary.parts])
    return [Part(name, int(a), int(b)) for name, a, b in zip(names, offsets[:-1], offsets[1:], strict=True)]
