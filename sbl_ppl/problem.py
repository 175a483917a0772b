"""A standardised problem, and what a method returns for it.

The methods work on columns of unit norm and t of unit spread, so that no tolerance depends on units.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import gammaln

from .dictionary import Design
from .evidence import ActiveModel
from .priors import BoundPrior

Array = np.ndarray

Start = tuple[Array, Array, float]  # columns, their precisions, the noise precision

FLOOR = 1e-12  # noise variance relative to the spread of t at which it counts as collapsed


@dataclass(frozen=True)
class Noise:
    """What is known of the noise, in units of the search: a fixed variance, or an inverse-gamma prior."""

    fixed: float | None
    shape: float
    rate: float

    def log_prior(self, beta: float) -> float:
        """Log density per d sigma^2 without its normaliser."""
        return 0.0 if self.fixed else (self.shape + 1.0) * np.log(beta) - self.rate * beta

    def log_density(self, variance: Array) -> Array:
        """Log density per d log(sigma^2), normalised where it can be; zero if the variance is known."""
        if self.fixed:
            return np.zeros(np.shape(variance))
        proper = self.shape > 0 and self.rate > 0
        constant = self.shape * np.log(self.rate) - gammaln(self.shape) if proper else 0.0
        return constant - self.shape * np.log(variance) - self.rate / variance


@dataclass(frozen=True)
class Problem:
    """A standardised problem: unit-norm columns, t of unit spread, and the way back to the user's units."""

    design: Design
    norms: Array
    t: Array
    z: Array
    offset: float
    scale: float
    prior: BoundPrior
    noise: Noise
    seen: Any = 1.0  # zeros for columns that the data do not see, if there are such

    @property
    def n(self) -> int:
        """Dimensions in which t may lie: N, less one if an intercept takes the mean."""
        return len(self.t) - self.design.centered

    @property
    def shift(self) -> float:
        """What a log density of t in the user's units lacks beside one in units of the search."""
        return self.n * float(np.log(self.scale))

    def columns(self, indices: Array) -> Array:
        """Unit-norm columns as rows, shape (k, N)."""
        return self.design.columns(indices).T / self.norms[indices, None]

    def gram_rows(self, rows: Array) -> Array:
        """Products of vectors with all unit-norm columns."""
        return self.design.gram_rows(rows) / self.norms

    def model(self, beta: float) -> ActiveModel:
        return ActiveModel(self.t, self.z, self.columns, self.gram_rows, beta, self.n, self.seen)

    def contrasts(self) -> tuple[Array, Array]:
        """All unit-norm columns, (n, M), and t in an orthonormal basis of the dimensions in which t may lie.

        With an intercept these are the N - 1 contrasts: a reflection takes the constant to the first axis, which is
        left out.
        """
        columns, t = self.design.matrix() / self.norms, self.t
        if not self.design.centered:
            return columns, t
        axis = np.full(len(t), -1.0 / np.sqrt(len(t)))
        axis[0] += 1.0
        axis /= np.linalg.norm(axis) or 1.0
        return (columns - np.outer(2.0 * axis, axis @ columns))[1:], (t - 2.0 * axis * (axis @ t))[1:]


@dataclass(frozen=True)
class Solution:
    """What a method returns, in units of the search. `Sigma` is a vector if it is diagonal."""

    index: Array
    alpha: Array
    mu: Array
    Sigma: Array
    beta: float
    log_evidence: float
    converged: bool
    reason: str
    history: list[float]
    n_steps: int


class Progress:
    """A tqdm bar on a terminal, shown only once the work has lasted two seconds; imports tqdm only then."""

    def __init__(self, wanted: bool):
        self._wanted, self._begin = wanted, time.perf_counter()
        self._bar: Any = None

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.close()

    def update(self, kept: int, objective: float) -> None:
        if not self._wanted or time.perf_counter() - self._begin < 2.0:
            return
        if self._bar is None:
            from tqdm import tqdm

            self._bar = tqdm(desc="fit_map", unit=" steps", disable=None, leave=False)
        self._bar.set_postfix_str(f"{kept} kept, objective {objective:.6g}", refresh=False)
        self._bar.update()


COLLAPSED = "the noise variance fell to zero: the kept columns explain t exactly; give noise_variance"


def collapsed(beta: float) -> bool:
    """Whether an estimated noise variance stands at its floor."""
    return beta >= (1.0 - 1e-9) / FLOOR


def overfits(degrees_of_freedom: float, n: int) -> bool:
    """Whether the kept columns explain nearly every direction of the data, so that little is left for the noise."""
    return n >= 10 and degrees_of_freedom > 0.9 * n


def overfit_reason(kept: int, beta: float) -> str:
    """What a fit says that overfits."""
    return (
        f"overfitting: {kept} columns stayed, nearly as many as the data can hold, and the noise variance collapsed to "
        f"{1 / beta:.1g} of the spread of t; use a Smoothness prior, give noise_variance, or take a smaller dictionary"
    )


def solution_of(model: ActiveModel, noise: Noise, converged: bool, reason: str, history: list[float]) -> Solution:
    """The state of a model as a solution; an overfit is never a converged one."""
    if not noise.fixed and overfits(float((1.0 - model.alpha * model.Sigma.diagonal()).sum()), model.n):
        converged, reason = False, overfit_reason(model.size, model.beta)
    return Solution(
        index=model.index,
        alpha=model.alpha,
        mu=model.mu,
        Sigma=model.Sigma,
        beta=model.beta,
        log_evidence=float(model.log_evidence),
        converged=converged,
        reason=reason,
        history=history,
        n_steps=len(history),
    )
