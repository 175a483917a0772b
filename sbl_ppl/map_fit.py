"""The type-II MAP: which columns, which precisions, how much noise.

`fit_map` standardises the problem (unit-norm columns, t of unit spread), maximises

    log p(t | alpha, sigma^2) + sum_m log p(alpha_m | sigma^2) + log p(sigma^2)

over alpha and sigma^2, and gives the result back in the user's units. The density of the noise is taken per d sigma^2,
that of alpha in the coordinate of `space`. Three ways lead there: the closed form of an orthonormal dictionary, the
fast search (TF03, SE07 Algorithm 1) for any other, and Tipping's two fixed-point iterations (T01).
"""

from __future__ import annotations

import json
import textwrap
import warnings
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from scipy.special import gammaln, ndtri

from . import dictionary as dictionaries
from . import priors
from .augmentation import augment, is_local, new_points, own_kernels
from .checks import choice, file_path, flag, instance, noise_pair, positive, seed_number, whole_number
from .closed_form import is_orthonormal, solve_orthonormal
from .dictionary import Design, Dictionary
from .evidence import SingularModelError, diagonal_of_inverse
from .fixed_point import iterate_fixed_point
from .priors import Prior, Smoothness
from .problem import Noise, Problem, Progress, Solution, Start
from .search import search
from .storage import Archive, reading, written_beside

Array = np.ndarray


class ConvergenceWarning(UserWarning):
    """The search stopped before it converged, or converged to an overfit; `fit.reason` says why."""


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

    def without(self, rows: Array) -> MapFit:
        """The fit to all other observations: the same columns, prior and settings, searched for anew.

        Its design takes the numbers of rows of this fit's for new inputs. It does not warn if it has not converged.
        """
        keep = np.delete(np.arange(len(self.t)), rows)
        given, design, t = self.settings, self._design.take(keep), self.t[keep]
        known = self.noise_variance if given["noise_given"] else None
        problem = standardise(design, t, self.prior, known, given["noise_prior"], given["center"], given["space"])
        how = given["method"], given["selection"], None, given["seed"], None, None, Progress(False), None
        solution = solve(problem, *how)
        return to_user_units(problem, solution, keep, t, self.dictionary, self.prior, given)

    def problem(self, prior: Prior | None = None) -> Problem:
        """The standardised problem that was solved, or the same with another prior; what samplers start from."""
        known = self.noise_variance if self.settings["noise_given"] else None
        noise_prior, center = self.settings["noise_prior"], self.settings["center"]
        return standardise(self._design, self.t, prior or self.prior, known, noise_prior, center, "log")

    @property
    def intercept_share(self) -> float:
        """Variance of the intercept given alpha and sigma^2, in units of sigma^2: a mean of N; none if it is zero."""
        return self._design.centered / len(self.t)

    def inputs(self, x_new: Any) -> Any:
        """New inputs as the design takes them: the columns of a data frame in the order of the training inputs."""
        dimension = 1 if self.x is None or self.x.ndim == 1 else self.x.shape[1]
        return dictionaries.inputs_for(self.dictionary, x_new, dimension, self.settings.get("x_names"))

    def curve(self, x_new: Any = None) -> Array:
        """Posterior mean of the function that the kept columns make, at new inputs or at the training inputs (None)."""
        x_new = self.inputs(x_new)
        return self._design.curve(x_new, self.active, self.mean) + self.offset

    def predict(
        self,
        x_new: Any = None,
        noise: bool = True,
        *,
        augment: bool | None = None,
        quantiles: Any = None,
        draws: int | None = None,
        seed: int = 0,
    ) -> Any:
        """Predictive mean and standard deviation at new inputs, or at the training inputs (None).

        Parameters
        ----------
        x_new : array, optional
            Shape (K,) or (K, d); for `Columns` a K x M matrix, and where these stand beside dictionaries of inputs a
            pair (points, matrix). If the training inputs were a data frame, the columns of another one are found by
            their names, in any order and among others; those of an array are taken as they come.
        noise : bool
            Whether the sd is that of a new observation (T01 eq. 22) or of the function alone.
        augment : bool, optional
            Whether each input gets a kernel of its own, which is integrated out (`sbl_ppl.augmentation`): else the
            bands of local kernels shrink to nothing in gaps and beyond the data. Default: if there is a `Gaussian` in
            the dictionary. False is the model as it was fitted (T01 eq. 20 to 22).
        quantiles : sequence of float, optional
            Return these quantiles instead, shape (len(quantiles), K).
        draws : int, optional
            Return so many draws of the function, or with noise of new observations, instead, shape (draws, K).
        seed : int
            Of the draws.

        Returns
        -------
        mean, sd : arrays of shape (K,)
            Or one array, if quantiles or draws are asked for.
        """
        flag("noise", noise)
        augment, levels, draws, seed = as_prediction(augment, quantiles, draws, seed)
        x_new = self.inputs(x_new)
        known = self._design.curve(x_new, self.active, self.mean)
        variance = self._part_variance(x_new, np.arange(len(self.active)))
        augment = is_local(self.dictionary) and self.x is not None if augment is None else augment
        shift, more = self._augmented(x_new) if augment else (0.0, 0.0)
        if draws is not None:
            rng = np.random.default_rng(seed)
            curves = [self._design.curve(x_new, self.active, w) for w in self._draw_weights(rng, draws)]
            normal = rng.standard_normal((draws, len(known) + 1))
            common = np.sqrt(self.noise_variance * self.intercept_share) * normal[:, :1]
            own = np.sqrt(more + self.noise_variance * float(noise)) * normal[:, 1:]
            return np.reshape(curves, (draws, len(known))) + shift + common + own + self.offset
        mean = known + shift + self.offset
        sd = np.sqrt(variance + more + self.noise_variance * (float(noise) + self.intercept_share))
        return (mean, sd) if levels is None else mean + ndtri(levels)[:, None] * sd

    def _augmented(self, x_new: Any) -> tuple[Array, Array]:
        """What kernels of their own add to mean and variance of the function at new inputs."""
        design, chosen, beta = self._design, self.active, 1.0 / self.noise_variance
        Phi = design.columns(chosen)
        residual = self.t - self.offset - Phi @ self.mean
        values = Phi if x_new is None else design.evaluate(x_new, chosen)
        points = new_points(self.x, x_new)
        shift, more = np.empty(len(points)), np.empty(len(points))
        step = max(1, 4_000_000 // len(self.t))  # kernels at once: all of them would be a matrix of K x N
        for first in range(0, len(points), step):
            here = slice(first, first + step)
            kernels, peaks = own_kernels(self.dictionary, self.x, points[here], design.centered)
            own = (kernels @ Phi).T, np.einsum("ij,ij->i", kernels, kernels), peaks
            projection = kernels @ residual
            shift[here], more[here] = augment(own, self.covariance, values[here], projection, beta, self.scale**-2)
        return shift, more

    def _draw_weights(self, rng: np.random.Generator, count: int) -> Array:
        """Draws of the kept weights given alpha and the noise, shape (count, S)."""
        normal = rng.standard_normal((count, len(self.active)))
        if self._covariance.ndim == 1:
            return self.mean + normal * np.sqrt(self._covariance)
        values, vectors = np.linalg.eigh(self._covariance)  # a nearly singular covariance has no Cholesky factor
        return self.mean + (normal * np.sqrt(np.maximum(values, 0.0))) @ vectors.T

    def contributions(self, x_new: Any = None, with_sd: bool = False) -> dict[str, Any]:
        """One curve per part of the dictionary, without the mean of t: a union separates sources this way.

        With `with_sd` a pair for each: the curve, and the standard deviation of the part's function.
        """
        flag("with_sd", with_sd)
        x_new = self.inputs(x_new)
        curves: dict[str, Any] = {}
        for part in dictionaries.parts_of(self.dictionary, self._design):
            mine = np.flatnonzero((self.active >= part.start) & (self.active < part.stop))
            curve = self._design.curve(x_new, self.active[mine], self.mean[mine])
            curves[part.name] = (curve, np.sqrt(self._part_variance(x_new, mine))) if with_sd else curve
        return curves

    def _part_variance(self, x_new: Any, mine: Array) -> Array:
        """Variance of the function that some of the kept columns make, given by their places in `active`."""
        design, chosen = self._design, self.active[mine]
        if self._covariance.ndim == 1:
            return design.spread(x_new, chosen, self._covariance[mine])
        values = design.columns(chosen) if x_new is None else design.evaluate(x_new, chosen)
        covariance = self._covariance[np.ix_(mine, mine)]
        return np.maximum(np.einsum("ij,ij->i", values @ covariance, values), 0.0)

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
        lines = [line if len(line) <= 98 else textwrap.fill(line, 98, subsequent_indent="      ") for line in lines]
        return "\n".join(lines)

    def leave_one_out(self) -> Array:
        """Exact log p(t_n | all other t, alpha, sigma^2), shape (N,), from one factorisation.

        Each t_n given the others is Gaussian with variance 1 / k_n and mean t_n - g_n / k_n, where g = C^-1 t and k is
        the diagonal of C^-1. With an intercept C^-1 loses what it does to a constant, 1 / (N sigma^2) everywhere.
        """
        beta, alpha = 1.0 / self.noise_variance, self.alpha
        centered = self.t - self.offset
        if self._design.orthonormal:
            everything = np.full(self.n_columns, beta)
            everything[self.active] = 1.0 / (self.noise_variance + 1.0 / alpha)
            k = self._design.spread(None, np.arange(self.n_columns), everything)
            g = self._design.combine(everything * self._design.project(centered))
        else:
            k, g = diagonal_of_inverse(self._design.columns(self.active) / np.sqrt(alpha), centered, beta)
        k = np.maximum(k - self.intercept_share * beta, np.finfo(float).eps * beta)
        return 0.5 * (np.log(k / (2 * np.pi)) - g**2 / k)

    def to_arviz(self, num_draws: int = 1000, seed: int = 0) -> Any:
        """The delta-function approximation as an ArviZ object, with the variables and dimensions of `sample`.

        Precisions and noise stand still; the weights are drawn from N(mean, covariance), and new observations given
        them. A pruned column has weight zero and its precision at the prior's upper bound. To compare by leave-one-out
        use `compare`: `az.loo` cannot take terms that do not vary.
        """
        whole_number("num_draws", num_draws, 4)
        seed = seed_number(seed)
        problem, m, shape = self.problem(), self.n_columns, (1, int(num_draws))
        unit = problem.norms / problem.scale
        alpha = np.broadcast_to(problem.prior.high, (m,)).copy()
        alpha[self.active] = self.alpha / unit[self.active] ** 2
        weights, gamma = np.zeros((*shape, m)), np.zeros(m)
        gamma[self.active] = self.gamma
        drawn_weights = self._draw_weights(np.random.default_rng(seed), int(num_draws))
        weights[..., self.active] = drawn_weights * unit[self.active]
        constant = {
            "alpha": alpha,
            "noise_variance": self.noise_variance / self.scale**2,
            "gamma": gamma,
            "degrees_of_freedom": gamma.sum(),
            "leave_one_out": self.leave_one_out() + np.log(self.scale),
        }
        drawn = {name: np.broadcast_to(value, (*shape, *np.shape(value))) for name, value in constant.items()}
        stats = {"log_likelihood": np.full(shape, self.log_evidence + problem.shift)}
        attrs = {"kernel": "delta", "seed": seed, "prior": repr(self.prior)}
        return draws_to_arviz(self, {**drawn, "weights": weights}, stats, attrs, seed)

    def save(self, path: Any) -> Path:
        """Write the fit to one .npz file (no pickle). Written beside and renamed: a kill never leaves half a file."""
        return _save(self, file_path("path", path))

    @staticmethod
    def load(path: Any, dictionary: Dictionary | None = None) -> MapFit:
        """Read a fit that `save` wrote. Only a `Custom` dictionary, whose function is not stored, must be given.

        Raises ValueError for a file that is damaged or something else; nothing in it is executed.
        """
        if dictionary is not None:
            instance("dictionary", dictionary, Dictionary, "a Dictionary", "give the one that was fitted")
        return _load(_with_suffix(file_path("path", path)), dictionary)


def as_prediction(
    augment: Any, quantiles: Any, draws: Any, seed: Any
) -> tuple[bool | None, Array | None, int | None, int]:
    """What `predict` and `predict_posterior` may be asked for, checked; quantiles as an array."""
    if augment is not None:
        flag("augment", augment)
    draws = None if draws is None else whole_number("draws", draws, 1)
    return augment, None if quantiles is None else _as_levels(quantiles), draws, seed_number(seed)


def _as_levels(quantiles: Any) -> Array:
    levels = np.atleast_1d(dictionaries.as_numbers(quantiles, "quantiles"))
    if levels.ndim != 1 or not ((levels > 0) & (levels < 1)).all():
        raise ValueError(f"quantiles={quantiles!r} must be numbers between 0 and 1, such as (0.05, 0.5, 0.95)")
    return levels


_MOST_PREDICTED = 20_000_000  # numbers, 160 MB


def _predictive(fit: MapFit, weights: Array, noise_variance: Array, seed: int) -> Array:
    """One new t for each draw, Phi w + offset + noise in the user's units: shape (chain, draw, N).

    Each chain has its own random numbers, so that neither their number nor the length of a run matters.
    """
    (chains, draws, m), n, design = weights.shape, len(fit.t), fit.design
    flat = weights.reshape(-1, m)
    if design.orthonormal:
        curves = np.array([design.combine(each) for each in flat])
    else:
        used = np.flatnonzero(flat.any(0))
        curves = flat[:, used] @ design.columns(used).T
    sources = [np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(k,))) for k in range(chains)]
    normal = np.stack([source.standard_normal((draws, n + 1)) for source in sources])
    intercept = np.sqrt(fit.intercept_share) * normal[..., :1]  # the same for all observations of a draw
    noise = np.sqrt(noise_variance)[..., None] * (normal[..., 1:] + intercept)
    return fit.offset + curves.reshape(noise.shape) + noise


def draws_to_arviz(
    fit: MapFit, drawn: dict[str, Array], stats: dict[str, Array], attrs: dict[str, Any], seed: int | None = None
) -> Any:
    """Draws in units of the search, of shape (chain, draw, ...), as an ArviZ object in the user's units.

    With a seed, and unless that would be too large, there are draws of new observations too.
    """
    from . import arviz_io

    each, (m, n), scale = ("chain", "draw"), (fit.n_columns, len(fit.t)), fit.scale
    problem = fit.problem()
    unit = scale / problem.norms  # of a weight
    in_user_units = {
        "alpha": drawn["alpha"] / unit**2,
        "log_alpha": np.log(drawn["alpha"] / unit**2),
        "weights": drawn["weights"] * unit,
        "noise_variance": drawn["noise_variance"] * scale**2,
        "gamma": drawn["gamma"],
        "degrees_of_freedom": drawn["degrees_of_freedom"],
    }
    posterior = {name: (each + ("basis",) * (value.ndim > 2), value) for name, value in in_user_units.items()}
    densities = {name: stats[name] - problem.shift for name in ("log_likelihood", "lp") if name in stats}
    ladder = ("rung",)  # of a tempered run
    sample_stats = {name: (each + ladder[: value.ndim - 2], value) for name, value in (stats | densities).items()}
    active, map_alpha = np.zeros(m, dtype=bool), np.full(m, np.inf)
    active[fit.active], map_alpha[fit.active] = True, fit.alpha
    parts = np.empty(m, dtype=object)
    for part in dictionaries.parts_of(fit.dictionary, fit.design):
        parts[part.start : part.stop] = part.name
    constant: dict[str, Any] = {
        "map_active": (("basis",), active),
        "map_alpha": (("basis",), map_alpha),
        "part": (("basis",), parts.astype(str)),
        "offset": ((), fit.offset),
    }
    if fit.x is not None:
        constant["x"] = (("obs", "dimension")[: fit.x.ndim], fit.x)
    readable = fit.x is not None and fit.x.ndim == 1 and len(np.unique(fit.x)) == n
    groups: dict[str, dict[str, Any]] = {
        "posterior": posterior,
        "sample_stats": sample_stats,
        "log_likelihood": {"t": (("chain", "draw", "obs"), drawn["leave_one_out"] - np.log(scale))},
        "observed_data": {"t": (("obs",), fit.t)},
        "constant_data": constant,
    }
    size = posterior["noise_variance"][1].size * n
    if seed is not None and size <= _MOST_PREDICTED:
        predicted = _predictive(fit, in_user_units["weights"], in_user_units["noise_variance"], seed)
        groups["posterior_predictive"] = {"t": (("chain", "draw", "obs"), predicted)}
    elif seed is not None:
        attrs = {**attrs, "posterior_predictive": f"left out: {size} numbers, more than {_MOST_PREDICTED}"}
    if "log_prior" in drawn:
        groups["log_prior"] = {"alpha": (("chain", "draw", "basis"), drawn["log_prior"])}
    coords = {"basis": np.array(fit.design.labels), "obs": fit.x if readable else np.arange(n)}
    return arviz_io.to_arviz(groups, coords, attrs)


def draws_from_arviz(fit: MapFit, post: Any) -> tuple[Array, Array]:
    """alpha of shape (chain, draw, M) and noise variance of shape (chain, draw), both in the user's units.

    Raises
    ------
    ValueError
        Unless they were drawn for the data and the dictionary of the fit.
    """
    from . import arviz_io

    posterior = arviz_io.group(post, "posterior")
    missing = [name for name in ("alpha", "noise_variance") if name not in posterior]
    if missing:
        raise ValueError(f"post has no {' and no '.join(missing)}: give what sample returned")
    alpha = posterior["alpha"].transpose("chain", "draw", ...)
    if alpha.ndim != 3 or alpha.shape[-1] != fit.n_columns:
        raise ValueError(f"post has {alpha.shape[-1]} columns, fit {fit.n_columns}: give the draws of this fit")
    labels = alpha[alpha.dims[-1]].values  # numbers in draws that somebody else made
    if labels.dtype.kind in "OUT" and list(labels) != fit.design.labels:
        raise ValueError("post was drawn for another dictionary of the same size: give the draws of this fit")
    if not np.array_equal(arviz_io.group(post, "observed_data")["t"].values, fit.t):
        raise ValueError("post was drawn for other targets: give the draws of this fit")
    return alpha.values, posterior["noise_variance"].transpose("chain", "draw").values


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
        Inputs. None means 0, 1, 2, ...; `Columns` needs none. The columns of a data frame keep their names, see
        `MapFit.predict`. Dates and times are refused: give numbers, such as the days since the first.
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
        An intercept with a flat prior, integrated out: the mean is taken out of t and of every column (of a wavelet
        basis alone, only out of t) and given back in `predict`, with its uncertainty. A `Bias()` beside it has nothing
        left to do. False leaves t and the columns as they are.
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
    fit = fit_silently(
        x,
        t,
        dictionary,
        prior,
        noise_variance,
        noise_prior,
        center,
        space,
        method,
        selection,
        exchange,
        seed,
        start,
        max_steps,
        closed_form,
        progress,
    )
    if not fit.converged:
        warnings.warn(f"fit_map: {fit.reason}", ConvergenceWarning, stacklevel=2)
    return fit


def fit_silently(
    x: Any,
    t: Any,
    dictionary: Dictionary,
    prior: Prior | None,
    noise_variance: float | None,
    noise_prior: tuple[float, float] | None,
    center: bool,
    space: str | None,
    method: str = "fast",
    selection: str = "greedy",
    exchange: bool | None = None,
    seed: int = 0,
    start: MapFit | None = None,
    max_steps: int | None = None,
    closed_form: bool | None = None,
    progress: bool = True,
) -> MapFit:
    """`fit_map` without its warning, which a caller could only silence for the whole process."""
    prior = Smoothness("BIC") if prior is None else prior
    _check_choices(dictionary, prior, method, selection, space, noise_variance, noise_prior, max_steps, start)
    for name, value in (("center", center), ("progress", progress)):
        flag(name, value)
    exchange = flag("exchange", exchange, none="for greedy selection only")
    closed_form = flag("closed_form", closed_form, none="to use it where there is one")
    seed = seed_number(seed)
    t = _as_targets(t)
    x_names = dictionaries.names_of(x)
    x = _as_training_inputs(x, len(t), dictionary)
    design = dictionary.bind(x)
    if design.n_rows != len(t):
        raise ValueError(f"t has length {len(t)} and the dictionary has {design.n_rows} rows: make them equal")
    _check_sizes(design, t)
    problem = standardise(design, t, prior, noise_variance, noise_prior, center, space)
    problem.prior.require_mode()
    if method == "mackay" and problem.prior.e < 0:
        raise ValueError(f"method='mackay' has no fixed point under {prior}, whose density falls: use 'fast' or 'em'")
    begin = None if start is None else _in_search_units(problem, start)
    with Progress(progress) as bar:
        solution = solve(problem, method, selection, exchange, seed, max_steps, closed_form, bar, begin)
    settings = {
        "noise_given": noise_variance is not None,
        "noise_prior": (problem.noise.shape, problem.noise.rate * problem.scale**2),
        "center": bool(center),
        "space": problem.prior.space,
        "method": method,
        "selection": selection,
        "seed": seed,
        "x_names": x_names,
    }
    return to_user_units(problem, solution, x, t, dictionary, prior, settings)


def solve(
    problem: Problem,
    method: str,
    selection: str,
    exchange: bool | None,
    seed: int,
    max_steps: int | None,
    closed_form: bool | None,
    bar: Progress,
    start: Start | None,
) -> Solution:
    """The solution of a standardised problem, by the way that `method` and the dictionary ask for."""
    orthonormal = is_orthonormal(problem) if closed_form is not False and method == "fast" else False
    if closed_form and not orthonormal:
        raise ValueError("closed_form=True needs an orthonormal dictionary: leave it out, or use a wavelet alone")
    try:
        if method != "fast":
            return iterate_fixed_point(problem, method, max_steps or 20_000, bar, start)
        if orthonormal:
            return solve_orthonormal(problem)
        return search(problem, selection, exchange, seed, max_steps, bar, start)
    except SingularModelError as error:
        raise ValueError(
            f"dictionary: {error}, and this prior keeps them all: bring the columns to one scale, leave out the bounds "
            "low and high, or remove columns"
        ) from error


def _check_choices(
    dictionary: Any,
    prior: Any,
    method: str,
    selection: str,
    space: Any,
    noise_variance: Any,
    noise_prior: Any,
    max_steps: Any,
    start: Any,
) -> None:
    instance("dictionary", dictionary, Dictionary, "a Dictionary", "wrap a matrix in Columns(...)")
    instance("prior", prior, Prior, "a Prior such as Smoothness('BIC') or Flat()")
    choice("method", method, ("fast", "mackay", "em"))
    choice("selection", selection, ("greedy", "random", "cyclic"))
    choice("space", space, (None, "alpha", "log"))
    if method != "fast" and isinstance(prior, Smoothness) and prior.c not in (0, "None"):
        raise ValueError(
            f"method={method!r} is T01's update and knows no smoothness term: use method='fast' with {prior}"
        )
    if noise_variance is not None:
        positive("noise_variance", noise_variance, ", or None to estimate it")
    if noise_prior is not None:
        noise_pair(noise_prior)
    if max_steps is not None:
        whole_number("max_steps", max_steps, 1, ", or None")
    if start is not None:
        instance("start", start, MapFit, "a MapFit", "fit one first")


def _as_targets(t: Any) -> Array:
    values = dictionaries.as_numbers(t, "t").copy()
    if values.ndim == 2 and 1 in values.shape:
        values = values.ravel()
    if values.ndim != 1 or values.size == 0:
        raise ValueError(
            f"t must be a vector with at least one value, got shape {values.shape}: pass one target at a time"
        )
    if not np.isfinite(values).all():
        raise ValueError(f"t holds {int((~np.isfinite(values)).sum())} NaN or infinite values: remove or impute them")
    largest = max(values.max(), -values.min())
    if not (largest == 0 or 1e-152 < largest < 1e152):
        raise ValueError(f"t is of size {largest:.1g}, and its square leaves the range of floats: change its units")
    return values


def _as_training_inputs(x: Any, n: int, dictionary: Dictionary) -> Array | None:
    if x is None:
        only_columns = all(isinstance(part, dictionaries.Columns) for part in dictionary.parts)
        return None if only_columns else np.arange(n, dtype=np.float64)
    points = dictionaries.as_inputs(x)
    if len(points) != n:
        raise ValueError(f"x has length {len(points)} and t has length {n}: make them equal")
    names = dictionaries.names_of(x)
    for part in dictionary.parts:
        centered = getattr(part, "center_names", None)
        if names and centered and sorted(names) == sorted(centered) and names != centered:
            raise ValueError(f"centers have the columns {centered} and x has {names}: put them in the same order")
    return points[:, 0].copy() if np.ndim(x) == 1 else points.copy()


_UNSEEN = 1e-12  # norm over the observations, relative to its size elsewhere, below which the data do not see a column


def _check_sizes(design: Design, t: Array) -> None:
    """Precisions are of size |column|^2 / spread(t)^2, which must be a float, as must the square of either."""
    with np.errstate(over="ignore"):
        norms = design.norms()
    seen = (norms > 0) & ~(norms <= _UNSEEN * design.peaks())  # others are left out of the search
    norms, spread = norms[seen], np.ptp(t) or np.abs(t).max() or 1.0
    for size in (norms.min(), norms.max()) if len(norms) else ():
        if not (1e-153 < size < 1e153 and 1e-153 < size / spread < 1e153):
            raise ValueError(
                f"dictionary has a column of size {size:.1g} and t varies by {spread:.1g}: precisions, which go with "
                "the square of their ratio, would leave the range of floats: change the units of either"
            )


def standardise(
    design: Design,
    t: Array,
    prior: Prior,
    noise_variance: float | None,
    noise_prior: Any,
    center: bool,
    space: str | None,
) -> Problem:
    """A problem with unit-norm columns and t of unit spread, from what the user gave."""
    largest = max(t.max(), -t.min())
    offset = float(t.mean()) if center else 0.0
    centered = t - offset
    height = max(centered.max(), -centered.min())
    if height <= 1e-14 * largest:  # constant: what is left of it is the rounding of its mean
        centered[:] = 0.0
        scale = float(largest or 1.0)
    else:
        centered /= height  # squares of very large or small targets leave the float range
        spread = np.sqrt(centered @ centered / len(t))
        centered /= spread
        scale = float(height * spread)
    if center and not design.orthonormal:
        design = design.center()
    norms, z = design.norms(), design.project(centered)
    unseen: Any = 0.0
    seen: Any = 1.0
    if not design.orthonormal:
        peaks = design.peaks()
        seen = (norms > 1e-150) & ~(norms <= _UNSEEN * peaks)  # the square of a smaller norm leaves the float range
        norms = np.where(seen, norms, 1.0)
        z = np.where(seen, z / norms, 0.0)
        # a column of which nothing is known beside the data is not larger elsewhere; if they do not see it, it may be
        unseen = np.where(np.isnan(peaks), 1.0 - seen, np.maximum((peaks / norms) ** 2 - seen, 0.0))
        unseen, seen = unseen if unseen.any() else 0.0, 1.0 if seen.all() else seen.astype(float)
    g, h = (1e-4, 1e-4) if noise_prior is None else (noise_prior[0], noise_prior[1] / scale**2)
    fixed = None if noise_variance is None else noise_variance / scale**2
    return Problem(
        design=design,
        norms=norms,
        t=centered,
        z=z,
        offset=offset,
        scale=scale,
        prior=prior.bind(len(t), 1.0 if design.orthonormal else norms**2, scale**2, space, unseen),
        noise=Noise(fixed, float(g), float(h)),
        seen=seen,
    )


def to_user_units(
    problem: Problem,
    solution: Solution,
    x: Any,
    t: Array,
    dictionary: Dictionary,
    prior: Prior,
    settings: dict[str, Any],
) -> MapFit:
    """The solution of a standardised problem as a fit."""
    order = np.argsort(solution.index)
    index = solution.index[order]
    scale, norms = problem.scale, problem.norms[index]
    unit = scale / norms
    if solution.Sigma.ndim == 1:
        covariance = solution.Sigma[order] * unit**2
    else:
        covariance = solution.Sigma[np.ix_(order, order)] * np.multiply.outer(unit, unit)
    shift = problem.shift
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


def _log_prior(problem: Problem, solution: Solution) -> float:
    """Normalised log prior of all precisions and of the noise, in the user's units; pruned ones count too."""
    prior, beta, m = problem.prior, solution.beta, problem.design.n_columns
    total = -np.broadcast_to(prior.log_normaliser(beta), (m,)).sum()
    total += prior.total(solution.index, solution.alpha, beta, m)
    if prior.space == "alpha":  # a density per unit of the user's alpha
        total += 2.0 * np.sum(np.log(problem.scale) - np.log(problem.norms))
    g, h = problem.noise.shape, problem.noise.rate
    if not problem.noise.fixed and g > 0 and h > 0:
        total += g * np.log(h) - gammaln(g) + problem.noise.log_prior(beta) - 2.0 * np.log(problem.scale)
    return float(total)


def _in_search_units(problem: Problem, start: MapFit) -> Start:
    """Columns, precisions and noise precision of another fit, as a start for this problem."""
    if start.n_columns != problem.design.n_columns:
        raise ValueError(
            f"start has {start.n_columns} columns, the dictionary {problem.design.n_columns}: use the same one"
        )
    prior = problem.prior.at(start.active)
    alpha = np.clip(start.alpha * (problem.scale / problem.norms[start.active]) ** 2, prior.low, prior.high)
    beta = 1.0 / problem.noise.fixed if problem.noise.fixed else problem.scale**2 / start.noise_variance
    return start.active, alpha, beta


_FORMAT = 1
_DICTIONARIES = {
    kind.__name__: kind
    for kind in (
        dictionaries.Gaussian,
        dictionaries.LinearSpline,
        dictionaries.ThinPlateSpline,
        dictionaries.Bias,
        dictionaries.Linear,
        dictionaries.Polynomial,
        dictionaries.Columns,
        dictionaries.Wavelet,
    )
}
_PRIORS = {
    kind.__name__: kind for kind in (priors.Flat, priors.Jeffreys, priors.Smoothness, priors.Gamma, priors.Power)
}


def prior_record(prior: Prior) -> dict[str, Any]:
    """A prior as JSON."""
    name = type(prior).__name__
    if _PRIORS.get(name) is not type(prior):
        raise ValueError(f"prior={prior!r} cannot be stored: it must be one of {tuple(_PRIORS)}")
    return {"type": name, "config": prior.config()}


def prior_of(record: dict[str, Any]) -> Prior:
    """The prior of a record."""
    return _named(_PRIORS, record["type"])(**record["config"])


def _named(kinds: dict[str, Any], name: str) -> Any:
    if name not in kinds:
        raise ValueError(f"it names {name!r}, which is none of {tuple(kinds)}")
    return kinds[name]


def _describe(dictionary: Dictionary, arrays: dict[str, Array]) -> list[dict[str, Any]] | None:
    """Parts of a dictionary as JSON; arrays go beside, under the names that stand in their place.

    None if there is a part, such as a `Custom` one, of which the file cannot hold everything.
    """
    if any(_DICTIONARIES.get(type(part).__name__) is not type(part) for part in dictionary.parts):
        return None
    parts = []
    for k, part in enumerate(dictionary.parts):
        config = part.config()
        for key, value in list(config.items()):
            if isinstance(value, np.ndarray):
                arrays[f"part{k}_{key}"] = value
                config[key] = {"array": f"part{k}_{key}"}
        parts.append({"type": type(part).__name__, "config": config})
    return parts


def _dictionary_of(records: list[dict[str, Any]], stored: Archive, n: int) -> Dictionary:
    """What `_describe` described, for n observations."""
    parts = []
    for k, record in enumerate(records):
        kind, config = _named(_DICTIONARIES, record["type"]), dict(record["config"])
        for key, value in config.items():
            if isinstance(value, dict):
                config[key] = stored.array(f"part{k}_{key}", float, (n if key == "matrix" else None, None))
        parts.append(kind(**config))
    return parts[0] if len(parts) == 1 else dictionaries.Union(parts)


def _with_suffix(path: Path) -> Path:
    return path if path.suffix == ".npz" else path.with_name(path.name + ".npz")


def _save(fit: MapFit, path: Path) -> Path:
    path, arrays = _with_suffix(path), fit_arrays(fit)
    with written_beside(path) as part, open(part, "wb") as file:
        np.savez_compressed(file, **arrays)  # type: ignore[arg-type]
    return path


def fit_arrays(fit: MapFit) -> dict[str, Array]:
    """All of a fit as arrays, among them one of JSON."""
    arrays = {name: getattr(fit, name) for name in ("active", "alpha", "mean", "history", "t", "_covariance")}
    if fit.x is not None:
        arrays["x"] = fit.x
    meta = {
        "format": _FORMAT,
        "kind": "MapFit",
        "dictionary": _describe(fit.dictionary, arrays),
        "prior": prior_record(fit.prior),
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
    return {"meta": np.array(json.dumps(meta, default=float)), **arrays}


def _load(path: Path, dictionary: Dictionary | None) -> MapFit:
    with reading(path, "a fit that MapFit.save wrote") as file:
        return fit_of_arrays(Archive(file), dictionary)


def fit_of_arrays(stored: Archive, dictionary: Dictionary | None) -> MapFit:
    """The fit of `fit_arrays`; ValueError if they do not belong together."""
    meta = stored.record("MapFit", _FORMAT)
    t = stored.array("t", float, (None,))
    x = stored.array("x", float, (len(t),), (len(t), None)) if "x" in stored else None
    if dictionary is None:
        if meta["dictionary"] is None:
            raise ValueError("it was fitted with a Custom dictionary: pass the same one as dictionary=")
        dictionary = _dictionary_of(meta["dictionary"], stored, len(t))
    design = dictionary.bind(x)
    if design.n_rows != len(t):
        raise ValueError(f"the dictionary has {design.n_rows} rows for {len(t)} targets: pass the one that was fitted")
    offset, scale = float(meta["offset"]), float(meta["scale"])
    if not (abs(offset) < np.inf and 0 < scale < np.inf):
        raise ValueError(f"offset={offset} and scale={scale} must be finite, and scale positive")
    return MapFit(
        **solution_fields(stored, "", meta, design.n_columns),
        x=x,
        t=t,
        dictionary=dictionary,
        prior=prior_of(meta["prior"]),
        offset=offset,
        scale=scale,
        _design=design.center() if meta["settings"]["center"] and not design.orthonormal else design,
    )


def solution_fields(stored: Archive, prefix: str, meta: dict[str, Any], n_columns: int) -> dict[str, Any]:
    """What differs from fit to fit of one problem: arrays whose names begin with `prefix`, numbers, settings."""
    active = stored.array(f"{prefix}active", np.intp, (None,))
    if len(active) and (active[0] < 0 or active[-1] >= n_columns or (np.diff(active) <= 0).any()):
        raise ValueError(f"'{prefix}active' must name columns of the dictionary, 0 to {n_columns - 1}, in their order")
    size = len(active)
    numbers = {name: float(meta[name]) for name in ("noise_variance", "log_evidence", "log_posterior")}
    if np.isnan(list(numbers.values())).any() or not 0 < numbers["noise_variance"] < np.inf:
        raise ValueError(f"{numbers} must be numbers, and noise_variance positive and finite")
    settings = dict(meta["settings"])
    g, h = settings["noise_prior"]
    if not (0 <= g < np.inf and 0 <= h < np.inf and settings["space"] in ("alpha", "log")):
        raise ValueError(f"settings={settings} are none of fit_map")
    return {
        "active": active,
        "alpha": stored.array(f"{prefix}alpha", float, (size,)),
        "mean": stored.array(f"{prefix}mean", float, (size,)),
        "history": stored.array(f"{prefix}history", float, (None,)),
        "_covariance": stored.array(f"{prefix}_covariance", float, (size,), (size, size)),
        **numbers,
        "converged": bool(meta["converged"]),
        "reason": str(meta["reason"]),
        "n_steps": int(meta["n_steps"]),
        "settings": {
            **settings,
            "noise_prior": (g, h),
            "noise_given": bool(settings["noise_given"]),
            "center": bool(settings["center"]),
        },
    }
