"""The type-II MAP: which columns, which precisions, how much noise.

`fit_map` standardises the problem (unit-norm columns, t of unit spread), maximises

    log p(t | alpha, sigma^2) + sum_m log p(alpha_m | sigma^2) + log p(sigma^2)

over alpha and sigma^2, and gives the result back in the user's units. The density of the noise is taken per d sigma^2,
that of alpha in the coordinate of `space`. Three ways lead there: the closed form of an orthonormal dictionary, the
fast search (TF03, SE07 Algorithm 1) for any other, and Tipping's two fixed-point iterations (T01).
"""

from __future__ import annotations

import json
import os
import tempfile
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from scipy.linalg.blas import dsyrk
from scipy.linalg.lapack import dpotrf, dpotrs, dpstrf, dtrtrs
from scipy.special import gammaln

from . import dictionary as dictionaries
from . import priors
from .dictionary import Design, Dictionary
from .evidence import ActiveModel, SingularModelError
from .priors import BoundPrior, Prior, Smoothness

Array = np.ndarray

_GAIN = 1e-7  # nats: a move that gains less is rounding
_FLOOR = 1e-12  # noise variance relative to the spread of t at which it counts as collapsed
_DEPENDENT = 1e-10  # S_m / beta below which a column lies in the span of the active ones to working precision


class ConvergenceWarning(UserWarning):
    """The search stopped before it converged, or converged to an overfit; `fit.reason` says why."""


@dataclass(frozen=True)
class Noise:
    """What is known of the noise, in units of the search: a fixed variance, or an inverse-gamma prior."""

    fixed: float | None
    shape: float
    rate: float

    def log_prior(self, beta: float) -> float:
        """Log density per d sigma^2 without its normaliser."""
        return 0.0 if self.fixed else (self.shape + 1.0) * np.log(beta) - self.rate * beta


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

    def columns(self, indices: Array) -> Array:
        """Unit-norm columns as rows, shape (k, N)."""
        return self.design.columns(indices).T / self.norms[indices, None]

    def gram_rows(self, rows: Array) -> Array:
        """Products of vectors with all unit-norm columns."""
        return self.design.gram_rows(rows) / self.norms

    def model(self, beta: float) -> ActiveModel:
        return ActiveModel(self.t, self.z, self.columns, self.gram_rows, beta)


@dataclass(frozen=True)
class _Solution:
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


@dataclass(frozen=True, repr=False)
class MapFit:
    """A type-II MAP solution, in the user's units of t and of the columns.

    Attributes
    ----------
    active : array of shape (S,)
        Indices of the kept columns, ascending; `alpha`, `mean` and `covariance` are aligned with it.
    alpha, mean : arrays of shape (S,)
        Precisions, and posterior means of the weights.
    noise_variance : float
    log_evidence : float
        log p(t | alpha, sigma^2).
    log_posterior : float
        log_evidence plus the normalised log prior of all M precisions (in the coordinate that was maximised; a pruned
        one at its limit) plus that of the noise variance if it was estimated.
    converged, reason : bool, str
    n_steps, history
        Number of steps, and the objective after each.
    """

    active: Array
    alpha: Array
    mean: Array
    noise_variance: float
    log_evidence: float
    log_posterior: float
    converged: bool
    reason: str
    n_steps: int
    history: Array
    x: Array | None
    t: Array
    dictionary: Dictionary
    prior: Prior
    settings: dict[str, Any]
    offset: float
    scale: float
    _covariance: Array = field(repr=False)
    _design: Design = field(repr=False)

    @property
    def covariance(self) -> Array:
        """Posterior covariance of the kept weights, shape (S, S)."""
        return np.diag(self._covariance) if self._covariance.ndim == 1 else self._covariance

    @property
    def variance(self) -> Array:
        """Diagonal of `covariance`, which is never formed for an orthonormal dictionary."""
        return self._covariance if self._covariance.ndim == 1 else self._covariance.diagonal()

    @property
    def gamma(self) -> Array:
        """How well the data determine each kept weight, 1 - alpha Sigma_mm."""
        return 1.0 - self.alpha * self.variance

    @property
    def degrees_of_freedom(self) -> float:
        """Trace of the smoothing matrix, the sum of gamma (SE07 eq. 12)."""
        return float(self.gamma.sum())

    @property
    def n_columns(self) -> int:
        """M, the size of the dictionary."""
        return self._design.n_columns

    @property
    def labels(self) -> list[str]:
        """Readable names of the kept columns."""
        names = self._design.labels
        return [names[i] for i in self.active]

    @property
    def design(self) -> Design:
        """The dictionary bound to the training inputs."""
        return self._design

    def predict(self, x_new: Any = None, noise: bool = True) -> tuple[Array, Array]:
        """Predictive mean and standard deviation at new inputs, or at the training inputs (None).

        Parameters
        ----------
        x_new : array, optional
            Shape (K,) or (K, d); for `Columns` a K x M matrix.
        noise : bool
            Whether the sd is that of a new observation (T01 eq. 22) or of the function alone.
        """
        design, chosen = self._design, self.active
        extra = self.noise_variance if noise else 0.0
        if self._covariance.ndim == 1:
            mean = design.curve(x_new, chosen, self.mean)
            variance = design.spread(x_new, chosen, self._covariance)
        else:
            values = design.columns(chosen) if x_new is None else design.evaluate(x_new, chosen)
            mean = values @ self.mean
            variance = np.maximum(np.einsum("ij,ij->i", values @ self._covariance, values), 0.0)
        return mean + self.offset, np.sqrt(variance + extra)

    def contributions(self, x_new: Any = None) -> dict[str, Array]:
        """One curve per part of the dictionary, without the mean of t: a union separates sources this way."""
        curves = {}
        for part in dictionaries.parts_of(self.dictionary, self._design):
            mine = (self.active >= part.start) & (self.active < part.stop)
            curves[part.name] = self._design.curve(x_new, self.active[mine], self.mean[mine])
        return curves

    def __repr__(self) -> str:
        parts = dictionaries.parts_of(self.dictionary, self._design)
        counts = [f"{int(((self.active >= p.start) & (self.active < p.stop)).sum())} {p.name}" for p in parts]
        strongest = np.argsort(-np.abs(self.mean) / np.sqrt(self.variance))[:5]
        names = self._design.labels if len(self.active) else []
        lines = [
            f"MapFit: {len(self.active)} of {self.n_columns} columns kept ({', '.join(counts)})",
            f"  data           N = {len(self.t)}, prior {self.prior}",
            f"  noise          sd {np.sqrt(self.noise_variance):.4g}" + " (given)" * self.settings["noise_given"],
            f"  degrees        {self.degrees_of_freedom:.4g} of freedom",
            f"  log evidence   {self.log_evidence:.6g}    log posterior {self.log_posterior:.6g}",
            f"  {'converged' if self.converged else 'NOT CONVERGED'} in {self.n_steps} steps: {self.reason}",
        ]
        if len(strongest):
            lines.append(f"  {'strongest':<28}{'weight':>12}{'sd':>12}{'alpha':>12}{'gamma':>8}")
        for k in strongest:
            lines.append(
                f"  {names[self.active[k]][:27]:<28}{self.mean[k]:>12.4g}{np.sqrt(self.variance[k]):>12.4g}"
                f"{self.alpha[k]:>12.4g}{self.gamma[k]:>8.3f}"
            )
        return "\n".join(lines)

    def save(self, path: Any) -> Path:
        """Write the fit to one .npz file (no pickle). Written beside and renamed: a kill never leaves half a file."""
        return _save(self, Path(path))

    @staticmethod
    def load(path: Any, dictionary: Dictionary | None = None) -> MapFit:
        """Read a fit that `save` wrote. Only a `Custom` dictionary, whose function is not stored, must be given."""
        return _load(Path(path), dictionary)


def fit_map(
    x: Any,
    t: Any,
    dictionary: Dictionary,
    prior: Prior | None = None,
    noise_variance: float | None = None,
    noise_prior: tuple[float, float] | None = None,
    center: bool = True,
    space: str | None = None,
    method: str = "fast",
    selection: str = "greedy",
    exchange: bool | None = None,
    seed: int = 0,
    start: MapFit | None = None,
    max_steps: int | None = None,
    closed_form: bool | None = None,
    progress: bool = True,
) -> MapFit:
    """Fit the type-II MAP of a sparse Bayesian linear model.

    Parameters
    ----------
    x : array of shape (N,) or (N, d), or None
        Inputs. None means 0, 1, 2, ...; `Columns` needs none.
    t : array of shape (N,)
        Targets.
    dictionary : Dictionary
        Basis functions, e.g. ``Wavelet("haar") + ThinPlateSpline(width=3.0)``.
    prior : Prior
        Prior of the precisions; default ``Smoothness("BIC")``.
    noise_variance : float, optional
        Known noise variance, in units of t squared. Default: estimated.
    noise_prior : (g, h), optional
        Inverse gamma of the noise variance, density per d sigma^2; h in units of t squared. Default g = 1e-4 and h =
        1e-4 times the spread of t squared.
    center : bool
        Remove the mean of t before the fit and give it back in `predict`.
    space : {"alpha", "log"}, optional
        Coordinate of the density whose mode is sought; default the prior's own.
    method : {"fast", "mackay", "em"}
        The fast search; or T01's fixed points, eq. (44), (46) and eq. (43), (50), which start from the full model.
    selection : {"greedy", "random", "cyclic"}
        Which column the fast search takes next: the one that gains most, one at random among those that gain (SE07
        Algorithm 1 without its idle visits), or the next in order.
    exchange : bool, optional
        Whether a stuck search tries to replace an active column by another in one move (TF03 section 6.2). Default: for
        greedy selection.
    seed : int
        For random selection.
    start : MapFit, optional
        Warm start from a fit with a dictionary of the same size.
    max_steps : int, optional
        Limit of steps; a fit that reaches it has ``converged=False`` and warns.
    closed_form : bool, optional
        Whether to use the closed form of an orthonormal dictionary; default if it is one.
    progress : bool
        Show a progress bar on a terminal if the fit lasts longer than two seconds.

    Returns
    -------
    MapFit

    Raises
    ------
    ValueError
        For bad input, before any work; the message names the argument and the remedy.

    Notes
    -----
    Cost: O(N) in all for wavelets; else O(N M) per column that ever becomes active, O(M S) per step and O(S^3) per
    joint re-estimation of the S active columns.
    """
    prior = Smoothness("BIC") if prior is None else prior
    _check_choices(dictionary, prior, method, selection, space, noise_variance, noise_prior)
    t = _as_targets(t)
    x = _as_training_inputs(x, len(t), dictionary)
    design = dictionary.bind(x)
    if design.n_rows != len(t):
        raise ValueError(f"t has length {len(t)} and the dictionary has {design.n_rows} rows: make them equal")
    problem = _standardise(design, t, prior, noise_variance, noise_prior, center, space)
    problem.prior.require_mode()
    bar = _Progress(progress)
    with bar:
        if method != "fast":
            solution = _fixed_point(problem, method, start, max_steps or 20_000, bar)
        elif closed_form if closed_form is not None else _is_orthonormal(problem):
            solution = _orthonormal(problem)
        else:
            search = _Search(problem, selection, exchange, seed, max_steps, bar)
            solution = search.run(start)
    if not solution.converged:
        warnings.warn(f"fit_map: {solution.reason}", ConvergenceWarning, stacklevel=2)
    settings = {
        "noise_given": noise_variance is not None,
        "noise_prior": (problem.noise.shape, problem.noise.rate * problem.scale**2),
        "center": bool(center),
        "space": problem.prior.space,
        "method": method,
        "selection": selection,
        "seed": seed,
    }
    return _to_user_units(problem, solution, x, t, dictionary, prior, settings)


def _check_choices(
    dictionary: Any, prior: Any, method: str, selection: str, space: Any, noise_variance: Any, noise_prior: Any
) -> None:
    if not isinstance(dictionary, Dictionary):
        raise ValueError(
            f"dictionary must be a Dictionary, got {type(dictionary).__name__}: wrap a matrix in Columns(...)"
        )
    if not isinstance(prior, Prior):
        raise ValueError(f"prior must be a Prior such as Smoothness('BIC') or Flat(), got {prior!r}")
    for name, value, known in (
        ("method", method, ("fast", "mackay", "em")),
        ("selection", selection, ("greedy", "random", "cyclic")),
        ("space", space, (None, "alpha", "log")),
    ):
        if value not in known:
            raise ValueError(f"{name}={value!r} is unknown: choose one of {known}")
    if method != "fast" and isinstance(prior, Smoothness) and prior.c not in (0, "None"):
        raise ValueError(
            f"method={method!r} is T01's update and knows no smoothness term: use method='fast' with {prior}"
        )
    if noise_variance is not None and not (np.ndim(noise_variance) == 0 and 0 < noise_variance < np.inf):
        raise ValueError(f"noise_variance={noise_variance!r} must be positive and finite, or None to estimate it")
    if noise_prior is not None:
        g, h = noise_prior
        if not (0 <= g < np.inf and 0 <= h < np.inf):
            raise ValueError(f"noise_prior={noise_prior!r} must be two finite numbers (g, h) >= 0")


def _as_targets(t: Any) -> Array:
    try:
        values = np.array(t, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise ValueError(f"t must hold numbers, got {type(t).__name__}: convert it first") from error
    if values.ndim == 2 and 1 in values.shape:
        values = values.ravel()
    if values.ndim != 1 or values.size == 0:
        raise ValueError(
            f"t must be a vector with at least one value, got shape {values.shape}: pass one target at a time"
        )
    if not np.isfinite(values).all():
        raise ValueError(f"t holds {int((~np.isfinite(values)).sum())} NaN or infinite values: remove or impute them")
    return values


def _as_training_inputs(x: Any, n: int, dictionary: Dictionary) -> Array | None:
    if x is None:
        only_columns = all(isinstance(part, dictionaries.Columns) for part in dictionary.parts)
        return None if only_columns else np.arange(n, dtype=np.float64)
    points = dictionaries.as_inputs(x)
    if len(points) != n:
        raise ValueError(f"x has length {len(points)} and t has length {n}: make them equal")
    return points[:, 0].copy() if np.ndim(x) == 1 else points.copy()


def _standardise(
    design: Design,
    t: Array,
    prior: Prior,
    noise_variance: float | None,
    noise_prior: Any,
    center: bool,
    space: str | None,
) -> Problem:
    largest = np.abs(t).max()
    offset = float(np.mean(t / largest) * largest) if center and largest > 0 else 0.0
    centered = t - offset
    height = np.abs(centered).max()
    if height <= 1e-14 * largest:  # constant: what is left of it is the rounding of its mean
        centered, height = np.zeros_like(t), 0.0
    scale = float(height * np.sqrt(np.mean((centered / height) ** 2))) if height > 0 else float(largest or 1.0)
    norms = design.norms()
    norms = np.where(norms > 0, norms, 1.0)
    t_unit = centered / scale
    g, h = (1e-4, 1e-4) if noise_prior is None else (noise_prior[0], noise_prior[1] / scale**2)
    fixed = None if noise_variance is None else noise_variance / scale**2
    return Problem(
        design=design,
        norms=norms,
        t=t_unit,
        z=design.project(t_unit) / norms,
        offset=offset,
        scale=scale,
        prior=prior.bind(len(t), norms**2, scale**2, space),
        noise=Noise(fixed, float(g), float(h)),
    )


def _to_user_units(
    problem: Problem,
    solution: _Solution,
    x: Any,
    t: Array,
    dictionary: Dictionary,
    prior: Prior,
    settings: dict[str, Any],
) -> MapFit:
    order = np.argsort(solution.index)
    index = solution.index[order]
    scale, norms = problem.scale, problem.norms[index]
    unit = scale / norms
    if solution.Sigma.ndim == 1:
        covariance = solution.Sigma[order] * unit**2
    else:
        covariance = solution.Sigma[np.ix_(order, order)] * np.multiply.outer(unit, unit)
    shift = len(t) * np.log(scale)
    noise_variance = scale**2 / solution.beta if not problem.noise.fixed else problem.noise.fixed * scale**2
    log_evidence = solution.log_evidence - shift
    return MapFit(
        active=index,
        alpha=solution.alpha[order] / unit**2,
        mean=solution.mu[order] * unit,
        noise_variance=float(noise_variance),
        log_evidence=float(log_evidence),
        log_posterior=float(log_evidence + _log_prior(problem, solution)),
        converged=solution.converged,
        reason=solution.reason,
        n_steps=solution.n_steps,
        history=np.array(solution.history) - shift,
        x=x,
        t=t,
        dictionary=dictionary,
        prior=prior,
        settings=settings,
        offset=problem.offset,
        scale=scale,
        _covariance=covariance,
        _design=problem.design,
    )


def _log_prior(problem: Problem, solution: _Solution) -> float:
    """Normalised log prior of all precisions and of the noise, in the user's units (ERRATA 13: M normalisers)."""
    prior, beta, m = problem.prior, solution.beta, problem.design.n_columns
    total = -np.broadcast_to(prior.log_normaliser(beta), (m,)).sum()
    total += prior.at(solution.index).log_prior(solution.alpha, beta).sum()
    total += np.delete(np.broadcast_to(prior.log_pruned(), (m,)), solution.index).sum()
    if prior.space == "alpha":  # a density per unit of the user's alpha
        total += 2.0 * np.sum(np.log(problem.scale) - np.log(problem.norms))
    g, h = problem.noise.shape, problem.noise.rate
    if not problem.noise.fixed and g > 0 and h > 0:
        total += g * np.log(h) - gammaln(g) + problem.noise.log_prior(beta) - 2.0 * np.log(problem.scale)
    return float(total)


def _is_orthonormal(problem: Problem) -> bool:
    """Whether the unit-norm columns are orthonormal; probed with random vectors, O(N M), where not known."""
    design = problem.design
    if design.orthonormal:
        return True
    if design.n_columns > design.n_rows or not isinstance(problem.prior.rho, float):
        return False
    probe = np.random.default_rng(0).standard_normal((2, design.n_columns))
    for v in probe:
        back = design.project(design.combine(v / problem.norms)) / problem.norms
        if np.abs(back - v).max() > 1e-10 * np.abs(v).max():
            return False
    return True


class _Progress:
    """A tqdm bar on a terminal, shown only once the work has lasted two seconds; imports tqdm only then."""

    def __init__(self, wanted: bool):
        self._wanted, self._begin = wanted, time.perf_counter()
        self._bar: Any = None

    def __enter__(self) -> _Progress:
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


def _orthonormal(problem: Problem) -> _Solution:
    """The closed form: given sigma^2 the columns are independent, s = beta and q = beta z; search over sigma^2 alone.

    For the smoothness prior alpha = beta / (beta z^2 - 1 - 2c) if beta z^2 > 1 + 2c, else infinity (SE07 eq. 46-49,
    which factor here).
    """
    z2, prior, noise = problem.z**2, problem.prior, problem.noise
    n, total = len(problem.t), float(problem.t @ problem.t)
    beta = 1.0 / noise.fixed if noise.fixed else _profile_maximum(z2, total, n, prior, noise)
    alpha, gain = prior.maximise(np.full(len(z2), beta), beta**2 * z2, beta)
    index = np.flatnonzero(np.isfinite(alpha))
    alpha, z = alpha[index], problem.z[index]
    variance = 1.0 / (alpha + beta)
    mu = beta * variance * z
    residual2 = max(total - z2[index].sum(), 0.0) + ((z - mu) ** 2).sum()
    evidence = n * np.log(beta / (2 * np.pi)) - np.log1p(beta / alpha).sum() - beta * residual2 - alpha @ mu**2
    objective = 0.5 * (n * np.log(beta / (2 * np.pi)) - beta * total) + gain.sum() + noise.log_prior(beta)
    converged, reason = True, "closed form of an orthonormal dictionary"
    if not noise.fixed and _overfits(float((beta * variance).sum()), n):
        converged, reason = False, _overfit_reason(len(index), beta)
    return _Solution(index, alpha, mu, variance, beta, 0.5 * evidence, converged, reason, [objective], 1)


def _profile_maximum(z2: Array, total: float, n: int, prior: BoundPrior, noise: Noise) -> float:
    """The noise precision that maximises the profile of an orthonormal dictionary.

    The profile can have several maxima (SE07's RIC rows sit on a lower one), so it is scanned on a grid, with z^2
    grouped into bins where there are many; then the zero of its slope is bracketed on the data themselves.
    """
    grid = np.linspace(np.log(_FLOOR), np.log(4.0), 193)  # log noise variance
    values, weights = _group(z2) if prior.uniform and len(z2) > 2048 else (z2, np.ones(len(z2)))
    beta = np.exp(-grid)
    heights = 0.5 * n * np.log(beta) - 0.5 * beta * total
    heights += (noise.shape + 1.0) * np.log(beta) - noise.rate * beta
    if prior.smooth and prior.uniform:
        v = np.maximum(np.multiply.outer(beta, values) - 2.0 * prior.c, 1.0)
        heights += 0.5 * (v - 1.0 - np.log(v)) @ weights
    else:
        heights += [prior.gains(np.full(len(values), b), b**2 * values, b) @ weights for b in beta]

    def slope(log_variance: float) -> float:
        """Derivative of the profile in log sigma^2; alpha stands still, because it is at its best (T01 eq. 45)."""
        b = np.exp(-log_variance)
        live = np.flatnonzero(b * z2 > threshold)
        chosen, z2_live = prior.at(live), z2[live]
        alpha = chosen.maximise(np.full(len(live), b), b**2 * z2_live, b)[0]
        kept = np.isfinite(alpha)
        chosen, alpha, z2_live = chosen.at(np.flatnonzero(kept)), alpha[kept], z2_live[kept]
        gamma = b / (alpha + b)
        residual2 = total - z2_live @ (gamma * (2.0 - gamma))
        likelihood = 0.5 * (n - b * residual2 - gamma.sum())
        return -float(likelihood + chosen.derivatives(alpha, b)[2].sum() + noise.shape + 1.0 - noise.rate * b)

    threshold = 1.0 + 2.0 * prior.c if prior.smooth and prior.uniform else -1.0
    best = int(heights.argmax())
    low, high = max(best - 1, 0), min(best + 1, len(grid) - 1)
    while low > 0 and slope(grid[low]) < 0:  # the bins may have misplaced the maximum by a cell
        low -= 1
    while high < len(grid) - 1 and slope(grid[high]) > 0:
        high += 1
    return float(np.exp(-_falling_zero(slope, grid[low], grid[high])))


def _group(z2: Array) -> tuple[Array, Array]:
    """z^2 in bins of equal width in the logarithm: the mean of each bin, and its count."""
    logs = np.log(np.maximum(z2, _FLOOR))
    low, width = logs.min(), max(np.ptp(logs), 1e-9) / 511.0
    places = ((logs - low) / width).astype(np.intp)
    counts = np.bincount(places)
    sums = np.bincount(places, weights=z2)
    used = counts > 0
    return sums[used] / counts[used], counts[used].astype(float)


def _falling_zero(function: Callable[[float], float], low: float, high: float) -> float:
    """Where a function falls through zero: regula falsi with the Illinois rule, and bisection when it is slow."""
    f_low, f_high = function(low), function(high)
    if f_low <= 0 or f_high >= 0:  # the maximum is at an end
        return low if f_low <= 0 else high
    for k in range(100):
        if high - low < 1e-13:
            break
        middle = (low * f_high - high * f_low) / (f_high - f_low) if k % 4 != 3 else 0.5 * (low + high)
        f_middle = function(middle)
        if f_middle == 0 or abs(f_middle) < 1e-12 * max(abs(f_low), abs(f_high)):
            return middle
        if f_middle > 0:
            low, f_low, f_high = middle, f_middle, 0.5 * f_high
        else:
            high, f_high, f_low = middle, f_middle, 0.5 * f_low
    return 0.5 * (low + high)


def _overfits(degrees_of_freedom: float, n: int) -> bool:
    """Whether the kept columns explain nearly every direction of the data, so that little is left for the noise."""
    return n >= 10 and degrees_of_freedom > 0.9 * n


def _overfit_reason(kept: int, beta: float) -> str:
    return (
        f"overfitting: {kept} columns stayed, nearly as many as the data can hold, and the noise variance collapsed to "
        f"{1 / beta:.1g} of the spread of t; use a Smoothness prior, give noise_variance, or take a smaller dictionary"
    )


class _Search:
    """The fast search: add, delete, re-estimate and exchange single columns, re-estimate all of them jointly.

    The objective never falls. A dictionary of low rank (a smooth kernel) is first thinned out from the full model in a
    sketch of its column space; any other starts empty. Then columns enter by the rule of `selection`; from time to time
    (`_climb`) the active precisions and the noise make joint Newton steps, which need S-sized algebra only, and delete
    what has become useless. The search ends when no addition, deletion, re-estimation or exchange gains.
    """

    def __init__(
        self, problem: Problem, selection: str, exchange: bool | None, seed: int, max_steps: int | None, bar: _Progress
    ):
        self.problem, self.prior, self.noise = problem, problem.prior, problem.noise
        self.selection = selection
        self.exchange = selection == "greedy" if exchange is None else exchange
        self.rng = np.random.default_rng(seed)
        self.max_steps = max_steps or 10_000 + 20 * problem.design.n_columns
        self.bar = bar
        self.history: list[float] = []
        self.last = -1  # where cyclic selection stopped
        self.pending = 0  # columns added since the last joint step
        # The noise is held at its start until the first additions are done, lest it swallow the signal.
        self.noise_free = False
        self.model = problem.model(1.0 / problem.noise.fixed if problem.noise.fixed else 10.0)  # SE07: 0.1 var(t)

    def run(self, start: MapFit | None) -> _Solution:
        if start is not None:
            self._begin(*_in_search_units(self.problem, start))
        elif self.selection == "greedy" and (thinned := _thin_full_model(self.problem)) is not None:
            self._begin(*thinned)
        while True:
            if reason := self._hurdle():
                return self._finish(False, reason)
            if self._advance():
                continue
            if not self.noise_free and not self.noise.fixed:
                self.noise_free = True
                self._climb(100)
            elif not (self._climb(100) or self._reestimate() or self._leave_saddle() or self._swap()):
                return self._finish(True, "no addition, deletion, re-estimation or exchange gains")

    def _begin(self, index: Array, alpha: Array, beta: float) -> None:
        """Start from given columns."""
        self.noise_free = not self.noise.fixed
        self.model.beta = beta
        self.model.include(index, alpha)
        self.model.condense()
        self._climb(100, tolerance=1e-2)

    def _hurdle(self) -> str:
        """Why the search must stop before it has converged; empty if it need not."""
        model = self.model
        if not self.noise.fixed and model.size > 0.9 * model.n:
            gamma = 1.0 - model.alpha * model.Sigma.diagonal()
            if _overfits(float(gamma.sum()), model.n) or model.beta > 1.0 / _FLOOR:
                return _overfit_reason(model.size, model.beta)
        if len(self.history) >= self.max_steps:
            return f"not converged after max_steps={self.max_steps}: raise it, or go on from this fit with start="
        return ""

    def _finish(self, converged: bool, reason: str) -> _Solution:
        self.model.condense()
        return _solution(self.model, self.noise, converged, reason, self.history)

    def _value(self, alpha: Array, beta: float, log_evidence: float) -> float:
        """The objective for given precisions of the active columns."""
        value = log_evidence + self.noise.log_prior(beta)
        if self.prior.c or not self.prior.smooth:
            prior = self.prior.at(self.model.index)
            value += (prior.log_prior(alpha, beta) - prior.log_pruned()).sum()
        return float(value)

    def _objective(self) -> float:
        return self._value(self.model.alpha, self.model.beta, self.model.log_evidence)

    def _record(self, objective: float | None = None) -> None:
        self.history.append(self._objective() if objective is None else objective)
        self.bar.update(self.model.size, self.history[-1])

    def _advance(self) -> bool:
        """One move of one column, chosen by the selection rule; False if none gains."""
        return self._greedy_move() if self.selection == "greedy" else self._ordered_move()

    def _addition_gains(self, S: Array, Q: Array) -> Array:
        """What each column outside the model would gain with its best alpha."""
        model = self.model
        gains = self.prior.gains(S, Q * Q, model.beta)
        gains[model.index] = 0.0
        gains[_DEPENDENT * model.beta > S] = 0.0
        return gains

    def _add(self, i: int) -> bool:
        """Add column i with its best alpha; False if a closer look shows that this gains nothing."""
        model, one = self.model, np.array([i])
        if model.S[i] < 1e-4 * model.beta:
            model.scrutinise(i)
        alpha, gain = self.prior.at(one).maximise(model.S[one], model.Q[one] ** 2, model.beta)
        if gain[0] <= _GAIN or model.S[i] < _DEPENDENT * model.beta:
            return False
        model.add(i, float(alpha[0]))
        self._record()
        return True

    def _greedy_move(self) -> bool:
        """Add the column that gains most; a joint Newton step whenever the model has grown by a fifth."""
        while True:
            gains = self._addition_gains(self.model.S, self.model.Q)
            i = int(gains.argmax())
            if gains[i] <= _GAIN:
                return False
            if self._add(i):
                break
        self.pending += 1
        if self.pending > self.model.size // 5:
            self._climb(1)
        return True

    def _changes(self) -> tuple[Array, Array]:
        """Best alpha of each active column given the others, and what moving there gains."""
        model = self.model
        prior = self.prior.at(model.index)
        s, q2 = model.statistics()
        best, value = prior.maximise(s, q2, model.beta)
        return best, value - prior.contribution(model.alpha, s, q2, model.beta)

    def _change(self, j: int, alpha: float) -> None:
        """Re-estimate active column j, or delete it if its best alpha is infinite."""
        if np.isfinite(alpha):
            self.model.reestimate(j, alpha)
        else:
            self.model.delete(j)
        self._record()

    def _ordered_move(self) -> bool:
        """One addition, deletion or re-estimation, at random or in order among those that gain."""
        model = self.model
        gains = self._addition_gains(model.S, model.Q)
        best, change = self._changes()
        gains[model.index] = change
        useful = np.flatnonzero(gains > _GAIN)
        if np.isin(useful, model.index[np.isfinite(best)]).all():
            return False  # nothing but re-estimations is left, and joint steps make them all
        if self.selection == "random":
            i = int(self.rng.choice(useful))
        else:
            i = int(useful[np.searchsorted(useful, self.last + 1) % len(useful)])
            self.last = i
        place = np.flatnonzero(model.index == i)
        if len(place):
            self._change(int(place[0]), float(best[place[0]]))
        else:
            self._add(i)
        if len(self.history) % 10 == 0:  # R = 10 in SE07 Algorithm 1
            self.noise_free = not self.noise.fixed
            self._climb(1, columns=False)
        return True

    def _climb(self, iterations: int, columns: bool = True, tolerance: float = 1e-6) -> bool:
        """Joint Newton ascent in (log alpha, log beta) over the active columns; True if the objective rose.

        Deletes columns whose best alpha has become infinite, before each step. Without `columns` only the noise moves.
        """
        self.model.condense()
        before = self._objective()
        for _ in range(iterations):
            if columns:
                self._delete_useless()
            step = self._newton_step(columns)
            if step is None or self._line_search(step) < tolerance:
                break
        self.model.refresh()
        self.pending = 0
        return self._objective() > before + _GAIN

    def _delete_useless(self) -> None:
        """Delete active columns whose best alpha is infinite: all at once if that gains too, else one by one."""
        model, together, stale = self.model, True, False
        while model.size:
            prior = self.prior.at(model.index)
            s, q2 = model.statistics()
            if prior.smooth and not prior.c:
                useless = np.flatnonzero(q2 <= s)
            else:
                useless = np.flatnonzero(np.isinf(prior.maximise(s, q2, model.beta)[0]))
            if not len(useless):
                break
            if together and len(useless) > 1:
                together = self._delete_together(useless)
            else:
                stale = True
                worth = prior.at(useless).contribution(model.alpha[useless], s[useless], q2[useless], model.beta)
                model.drop(int(useless[worth.argmin()]))
                self._record()
        if stale:
            model.condense()

    def _delete_together(self, places: Array) -> bool:
        """Delete several columns if that does not lower the objective; else leave the model as it is."""
        model = self.model
        before, index, alpha = self._objective(), model.index[places], model.alpha[places]
        model.forget(places)
        model.condense()
        if self._objective() >= before:
            self._record()
            return True
        model.include(index, alpha)
        model.condense()
        return False

    def _gradient(self) -> tuple[Array, Array]:
        """Gradient and Hessian of the objective in (log alpha, log beta)."""
        model, noise, k = self.model, self.noise, self.model.size
        gradient, hessian = model.derivatives()
        gradient[k] += noise.shape + 1.0 - noise.rate * model.beta
        hessian[k, k] -= noise.rate * model.beta
        if self.prior.c or not self.prior.smooth:
            first, second, in_noise = self.prior.at(model.index).derivatives(model.alpha, model.beta)
            gradient[:k] += first
            hessian.flat[: k * (k + 2) : k + 2] += second
            if self.prior.c:
                gradient[k] += in_noise.sum()
                hessian[:k, k] -= second
                hessian[k, :k] -= second
                hessian[k, k] += second.sum()
        return gradient, hessian

    def _newton_step(self, columns: bool) -> Array | None:
        """The ascent direction in (log alpha, log beta), zero where a coordinate is held; None if all are."""
        gradient, hessian = self._gradient()
        first, last = 0 if columns else len(gradient) - 1, len(gradient) - (not self.noise_free)
        if first == last:
            return None
        step = np.zeros(len(gradient))
        step[first:last] = _ascent(gradient[first:last], hessian[first:last, first:last])
        return step

    def _line_search(self, step: Array) -> float:
        """Take the step or a fraction of it that does not lower the objective; returns the largest change made."""
        model = self.model
        prior, before = self.prior.at(model.index), self._objective()
        length = np.abs(step).max()
        if length > 3.0:
            step = step * (3.0 / length)
        for _ in range(12):
            alpha = np.minimum(np.maximum(model.alpha * np.exp(step[:-1]), prior.low), prior.high)
            beta = model.beta * np.exp(step[-1])
            try:
                factored = model.factorise(alpha, beta)
                value = self._value(alpha, beta, factored.log_evidence)
            except SingularModelError:
                value = -np.inf
            if value >= before:
                model.take(alpha, beta, factored)
                self._record(value)
                return float(np.abs(step).max())
            step = 0.25 * step
        return 0.0

    def _reestimate(self) -> bool:
        """Move one column to its best alpha if joint steps overlooked it (a precision can have two maxima)."""
        best, change = self._changes()
        if not len(change) or change.max() <= 10 * _GAIN:
            return False
        self._change(int(change.argmax()), float(best[change.argmax()]))
        return True

    def _leave_saddle(self) -> bool:
        """Step along a direction of positive curvature: a point that no single move improves may be a saddle (FT02)."""
        model = self.model
        if not 1 < model.size <= 400:
            return False
        _, hessian = self._gradient()
        size = len(hessian) - (not self.noise_free)
        if not dpotrf(-hessian[:size, :size], lower=1, clean=0)[1]:
            return False  # negative definite: a maximum
        values, vectors = np.linalg.eigh(hessian[:size, :size])
        before = self._objective()
        for sign in (1.0, -1.0):
            step = np.zeros(len(hessian))
            step[:size] = sign * vectors[:, -1]
            if values[-1] > 1e-6 and self._line_search(step) > 0 and self._objective() > before + _GAIN:
                model.refresh()
                return True
        return False

    def _swap(self) -> bool:
        """Delete one column and add another in one move, if that gains (TF03 section 6.2)."""
        model = self.model
        if not self.exchange or model.size == 0:
            return False
        s, q2 = model.statistics()
        loss = self.prior.at(model.index).contribution(model.alpha, s, q2, model.beta)
        shift = model.beta * (model.Sigma @ model.gram)  # how S and Q of all columns feel each deletion
        variance = model.Sigma.diagonal()
        best, pair = 10 * _GAIN, None
        for j in range(model.size):
            S, Q = model.S + shift[j] ** 2 / variance[j], model.Q + shift[j] * (model.mu[j] / variance[j])
            gains = self._addition_gains(S, Q)
            i = int(gains.argmax())
            if gains[i] > _GAIN and gains[i] - loss[j] > best:
                best, pair = gains[i] - loss[j], (j, i)
        if pair is None:
            return False
        before, left, alpha = self._objective(), int(model.index[pair[0]]), float(model.alpha[pair[0]])
        model.delete(pair[0])
        if self._add(pair[1]) and self._objective() > before:
            return True
        model.add(left, alpha)  # the promised gain was rounding
        return False


def _in_search_units(problem: Problem, start: MapFit) -> tuple[Array, Array, float]:
    """Columns, precisions and noise precision of another fit, as a start for this problem."""
    if start.n_columns != problem.design.n_columns:
        raise ValueError(
            f"start has {start.n_columns} columns, the dictionary {problem.design.n_columns}: use the same one"
        )
    prior = problem.prior.at(start.active)
    alpha = np.clip(start.alpha * (problem.scale / problem.norms[start.active]) ** 2, prior.low, prior.high)
    beta = 1.0 / problem.noise.fixed if problem.noise.fixed else problem.scale**2 / start.noise_variance
    return start.active, alpha, beta


def _thin_full_model(problem: Problem) -> tuple[Array, Array, float] | None:
    """A start for a dictionary of low rank: MacKay's updates from the full model, in a sketch of its column space.

    Columns of a smooth kernel span, at the accuracy that matters beside the noise, a space of R << N dimensions. In
    coordinates B = U' Phi of that space one update of all precisions costs O(M R^2), and the maxima it leads to are
    better than those of a search from the empty model. Returns None if the rank is not low or the prior not smooth.
    """
    prior, noise = problem.prior, problem.noise
    n, m = len(problem.t), problem.design.n_columns
    sketch = _sketch(problem) if prior.smooth and min(n, m) >= 20 else None
    if sketch is None:
        return None
    B, u, outside = sketch
    rank = len(u)
    index, alpha = np.arange(m), np.full(m, m / n)
    beta = 1.0 / noise.fixed if noise.fixed else 10.0
    for _ in range(30):
        chosen = prior.at(index)
        X = B / np.sqrt(alpha)
        C = dsyrk(1.0, X, lower=1)
        C.flat[:: rank + 1] += 1.0 / beta
        factor, failure = dpotrf(C, lower=1, clean=0, overwrite_a=1)
        if failure:
            return None
        X, y = dtrtrs(factor, X, lower=1, overwrite_b=1)[0], dtrtrs(factor, u, lower=1)[0]
        gamma = np.einsum("ij,ij->j", X, X)  # S / alpha
        mu2 = (y @ X) ** 2 / alpha  # (Q / alpha)^2
        idle = np.flatnonzero(gamma < 0.01)
        left = 1.0 - gamma[idle]
        gains = chosen.at(idle).gains(alpha[idle] * gamma[idle] / left, alpha[idle] ** 2 * mu2[idle] / left**2, beta)
        gone = idle[gains <= 0.0]
        pull = 2.0 * chosen.derivatives(alpha, beta)[0] if prior.c else 0.0
        alpha = np.clip((gamma + pull) / np.maximum(mu2, 1e-300), chosen.low, chosen.high)
        if not noise.fixed:
            v = dtrtrs(factor, y, lower=1, trans=1)[0]
            residual2 = v @ v / beta**2 + outside
            beta = (n - gamma.sum() + 2.0 * (noise.shape + 1.0)) / (residual2 + 2.0 * noise.rate)
        if len(gone):
            stay = np.delete(np.arange(len(index)), gone)
            index, alpha, B = index[stay], alpha[stay], np.take(B.T, stay, axis=0).T
        if len(index) < 0.6 * rank:  # from here on algebra of the size of the model is cheaper
            break
    return index, alpha, float(beta)


def _sketch(problem: Problem) -> tuple[Array, Array, float] | None:
    """Coordinates of all columns and of t in the span of a few columns, and the part of |t|^2 outside; None if not few.

    The columns are chosen by a pivoted Cholesky factorisation among at most 300, spread over the order of |z|, which
    does not depend on the order or the sign of the columns.
    """
    n, m = len(problem.t), problem.design.n_columns
    order = np.argsort(-np.abs(problem.z), kind="stable")
    rows = problem.columns(order[np.linspace(0, m - 1, min(m, 300)).astype(np.intp)])
    factor, pivots, rank, _ = dpstrf(dsyrk(1.0, rows.T, trans=1, lower=1), tol=1e-4, lower=1, overwrite_a=1)
    if rank == 0 or rank > 0.6 * min(len(rows), n):
        return None
    pivots, factor = rows[pivots[:rank] - 1], factor[:rank, :rank]
    B = dtrtrs(factor, problem.gram_rows(pivots), lower=1)[0]
    if 1.0 - np.einsum("ij,ij->", B, B) / m > 0.01:  # the chosen columns do not stand for the others
        return None
    u = dtrtrs(factor, pivots @ problem.t, lower=1)[0]
    return B, u, max(float(problem.t @ problem.t - u @ u), 0.0)


def _ascent(gradient: Array, hessian: Array) -> Array:
    """Newton's direction where the Hessian is negative definite; else with its eigenvalues shifted until it is."""
    factor, failure = dpotrf(-hessian, lower=1, clean=0)
    if not failure:
        return dpotrs(factor, gradient, lower=1)[0]
    shift = 1e-3  # the curvature in log alpha is of order 1/2 at most
    while failure:
        shifted = -hessian
        shifted.flat[:: len(gradient) + 1] += shift
        factor, failure = dpotrf(shifted, lower=1, clean=0, overwrite_a=1)
        shift *= 4.0
    return dpotrs(factor, gradient, lower=1)[0]


def _fixed_point(problem: Problem, method: str, start: MapFit | None, max_steps: int, bar: _Progress) -> _Solution:
    """T01's iterations from the full model: MacKay's updates, eq. (44), (46), or EM, eq. (43), (50).

    A column leaves when its alpha passes `high`, or, with a prior that allows exact zeros, when its weight is hardly
    determined (gamma < 0.05) and its best alpha is infinite: the fixed points approach infinity only in the limit.
    """
    prior, noise = problem.prior, problem.noise
    model = problem.model(1.0 / noise.fixed if noise.fixed else 10.0)
    everything = np.flatnonzero(np.abs(problem.z) > 0)
    model.include(everything, np.full(len(everything), problem.design.n_columns / model.n))
    model.condense()
    history: list[float] = []
    for _ in range(max_steps):
        chosen = prior.at(model.index)
        gamma = 1.0 - model.alpha * model.Sigma.diagonal()
        twice = 2.0 * chosen.e
        if method == "mackay":
            alpha = (gamma + twice) / (model.mu**2 + 2.0 * chosen.b + 1e-300)
            left = model.n - gamma.sum()
            variance = (model.residual2 + 2.0 * noise.rate) / (left + 2.0 * (noise.shape + 1.0))
        else:
            alpha = (1.0 + twice) / (model.mu**2 + model.Sigma.diagonal() + 2.0 * chosen.b)
            variance = (model.residual2 + gamma.sum() / model.beta + 2.0 * noise.rate) / (
                model.n + 2.0 * (noise.shape + 1.0)
            )
        alpha = np.clip(alpha, chosen.low, chosen.high)
        beta = model.beta if noise.fixed else 1.0 / max(variance, _FLOOR)
        change = max(np.abs(np.log(alpha / model.alpha)).max(initial=0.0), abs(np.log(beta / model.beta)))
        gone = alpha >= chosen.high
        if prior.smooth and len(alpha):
            gone |= (gamma < 0.05) & np.isinf(chosen.maximise(*model.statistics(), model.beta)[0])
        model.alpha, model.beta = alpha, beta
        for j in np.flatnonzero(gone)[::-1]:
            model.drop(int(j))
        model.condense()
        value = model.log_evidence + noise.log_prior(model.beta)
        value += (prior.at(model.index).log_prior(model.alpha, model.beta) - prior.at(model.index).log_pruned()).sum()
        history.append(float(value))
        bar.update(model.size, history[-1])
        if not gone.any() and change < 1e-6:
            converged, reason = True, f"the {method} updates stand still"
            break
    else:
        converged, reason = (
            False,
            f"not converged after max_steps={max_steps} {method} updates: raise it or use method='fast'",
        )
    return _solution(model, noise, converged, reason, history)


def _solution(model: ActiveModel, noise: Noise, converged: bool, reason: str, history: list[float]) -> _Solution:
    if not noise.fixed and _overfits(float((1.0 - model.alpha * model.Sigma.diagonal()).sum()), model.n):
        converged, reason = False, _overfit_reason(model.size, model.beta)
    return _Solution(
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


_FORMAT = 1


def _describe(dictionary: Dictionary, arrays: dict[str, Array]) -> list[dict[str, Any]]:
    """Parts of a dictionary as JSON; arrays go beside, under the names that stand in their place."""
    parts = []
    for k, part in enumerate(dictionary.parts):
        config = part.config()
        for key, value in list(config.items()):
            if isinstance(value, np.ndarray):
                arrays[f"part{k}_{key}"] = value
                config[key] = {"array": f"part{k}_{key}"}
        parts.append({"type": type(part).__name__, "config": config})
    return parts


def _save(fit: MapFit, path: Path) -> Path:
    arrays = {name: getattr(fit, name) for name in ("active", "alpha", "mean", "history", "t", "_covariance")}
    if fit.x is not None:
        arrays["x"] = fit.x
    custom = any(isinstance(part, dictionaries.Custom) for part in fit.dictionary.parts)
    meta = {
        "format": _FORMAT,
        "dictionary": None if custom else _describe(fit.dictionary, arrays),
        "prior": {"type": type(fit.prior).__name__, "config": fit.prior.config()},
        "settings": fit.settings,
    }
    for name in (
        "noise_variance",
        "log_evidence",
        "log_posterior",
        "converged",
        "reason",
        "n_steps",
        "offset",
        "scale",
    ):
        meta[name] = getattr(fit, name)
    path = path if path.suffix == ".npz" else path.with_name(path.name + ".npz")
    handle, beside = tempfile.mkstemp(dir=path.parent, prefix=path.stem, suffix=".part")
    try:
        with os.fdopen(handle, "wb") as file:
            np.savez_compressed(file, meta=np.array(json.dumps(meta)), **arrays)
            file.flush()
            os.fsync(file.fileno())
        os.replace(beside, path)
    except BaseException:
        os.unlink(beside)
        raise
    return path


def _load(path: Path, dictionary: Dictionary | None) -> MapFit:
    with np.load(path, allow_pickle=False) as stored:
        arrays = {name: stored[name] for name in stored.files}
    meta = json.loads(str(arrays.pop("meta")))
    if meta["format"] != _FORMAT:
        raise ValueError(
            f"{path} has format {meta['format']}, this version reads {_FORMAT}: use the version that wrote it"
        )
    if dictionary is None:
        if meta["dictionary"] is None:
            raise ValueError(f"{path} was fitted with a Custom dictionary: pass the same one as dictionary=")
        parts = []
        for part in meta["dictionary"]:
            config = {k: arrays[v["array"]] if isinstance(v, dict) else v for k, v in part["config"].items()}
            parts.append(getattr(dictionaries, part["type"])(**config))
        dictionary = parts[0] if len(parts) == 1 else dictionaries.Union(parts)
    x = arrays.get("x")
    return MapFit(
        **{name: arrays[name] for name in ("active", "alpha", "mean", "history", "t", "_covariance")},
        **{name: meta[name] for name in ("noise_variance", "log_evidence", "log_posterior", "converged", "reason")},
        **{name: meta[name] for name in ("n_steps", "offset", "scale")},
        x=x,
        dictionary=dictionary,
        prior=getattr(priors, meta["prior"]["type"])(**meta["prior"]["config"]),
        settings={**meta["settings"], "noise_prior": tuple(meta["settings"]["noise_prior"])},
        _design=dictionary.bind(x),
    )
