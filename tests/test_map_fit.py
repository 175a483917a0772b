"""The type-II MAP fit: equal to dense formulas in the user's units, stationary, invariant, saved and honest."""

import dataclasses
import io
import json
import os
import sys
import time
import tracemalloc
import types
import warnings
from functools import lru_cache

import numpy as np
import pytest
import reference
from test_evidence import exact_posterior, stacked_condition

import sbl_ppl as sbl
from sbl_ppl import datasets, problem

EPS = np.finfo(float).eps
NEGLIGIBLE = 1e-6  # nats: a single-column move that gains less does not count, as `converged` promises


def random_columns(n=50, m=80, seed=0):
    """Six of M > N columns, of norms from 0.1 to 10."""
    rng = np.random.default_rng(seed)
    Phi = rng.standard_normal((n, m)) * 10.0 ** rng.uniform(-1, 1, m) / np.sqrt(n)
    weights = np.zeros(m)
    weights[:6] = rng.choice([-3.0, 3.0], 6) / np.linalg.norm(Phi[:, :6], axis=0)
    return Phi, Phi @ weights + 0.3 * rng.standard_normal(n) + 5.0


def from_dataset(data, dictionary):
    return data.x, data.t, dictionary


PROBLEMS = {
    "sinc gaussian": lambda: from_dataset(datasets.sinc(60), sbl.Gaussian(3.0)),
    "sinc linear spline": lambda: from_dataset(datasets.sinc(60), sbl.LinearSpline()),
    "sinc thin plate": lambda: from_dataset(datasets.sinc(60), sbl.ThinPlateSpline(3.0) + sbl.Bias()),
    "blocks haar": lambda: from_dataset(datasets.blocks(128), sbl.Wavelet("haar")),
    "blocks_sinc union": lambda: from_dataset(
        datasets.blocks_sinc(128), sbl.Wavelet("haar") + sbl.ThinPlateSpline(3.0)
    ),
    "sinc 2d": lambda: from_dataset(datasets.sinc_2d(80), sbl.Gaussian(3.0) + sbl.Bias()),
    "columns": lambda: (None, random_columns()[1], sbl.Columns(random_columns()[0])),
    "friedman": lambda: from_dataset(datasets.friedman1(80), sbl.Gaussian([2.0] * 10) + sbl.Linear()),
}
PRIORS = {
    "bic": sbl.Smoothness("BIC"),
    "ric": sbl.Smoothness("RIC", measure="alpha"),
    "raw": sbl.Smoothness(1.5, normalize=False),
    "flat": sbl.Flat(),
    "jeffreys": sbl.Jeffreys(),
    "gamma": sbl.Gamma(1e-2, 1e-2),
    "power": sbl.Power(-0.2),
}
SPARSE = ("bic", "ric", "raw", "flat")
CASES = [(name, prior, "greedy", "fast") for name in PROBLEMS for prior in SPARSE]
CASES += [
    (name, prior, selection, "fast")
    for name in PROBLEMS
    if name != "blocks haar"
    for prior, selection in (("bic", "random"), ("flat", "cyclic"))
]
CASES += [(name, prior, "greedy", "fast") for name in ("sinc 2d", "columns") for prior in ("gamma", "power")]
CASES += [("blocks haar", prior, "greedy", "fast") for prior in ("jeffreys", "gamma", "power")]
CASES += [
    (name, prior, "greedy", method)
    for name in ("sinc gaussian", "sinc 2d", "columns")
    for prior in ("flat", "jeffreys")
    for method in ("mackay", "em")
]


def case_id(case):
    return "-".join(case).replace(" ", "_")


each_case = pytest.mark.parametrize("case", CASES, ids=case_id)


def quiet_fit(*args, **options):
    """`fit_map` where it does not matter whether the search has converged."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", sbl.ConvergenceWarning)
        return sbl.fit_map(*args, **options)


@lru_cache
def fit_of(case):
    name, prior, selection, method = case
    return quiet_fit(*PROBLEMS[name](), prior=PRIORS[prior], selection=selection, method=method)


def has_intercept(fit):
    """A wavelet basis alone leaves the mean to t."""
    return fit.settings["center"] and not isinstance(fit.dictionary, sbl.Wavelet)


def what_the_likelihood_sees(fit):
    """Columns and targets, as contrasts where an intercept takes their means."""
    Phi = fit.dictionary.bind(fit.x).matrix()
    return reference.contrasts(Phi, fit.t) if has_intercept(fit) else (Phi, fit.t - fit.offset)


def everywhere(fit):
    """Precisions of all columns, inf where pruned."""
    alpha = np.full(fit.n_columns, np.inf)
    alpha[fit.active] = fit.alpha
    return alpha


# --- in the user's own units ------------------------------------------------------------------------------------


@each_case
def test_fit_equals_dense_recomputation(case):
    """Tolerances are conditions times rounding, as in test_evidence; exact arithmetic where doubles do not do."""
    fit = fit_of(case)
    Phi, t = what_the_likelihood_sees(fit)
    Phi = Phi[:, fit.active]
    norms = np.linalg.norm(Phi, axis=0)
    unit, alpha, sigma2 = Phi / norms, fit.alpha / norms**2, fit.noise_variance
    condition = stacked_condition(unit, alpha, 1.0 / sigma2) if len(norms) else 1.0
    if len(norms) <= 60:
        Sigma, mean, evidence = exact_posterior(unit, t, alpha, sigma2)
        rtol = 100 * EPS * min(condition**2, 1e4 * condition)
    else:
        mean, Sigma = reference.weights_posterior(unit, t, alpha, sigma2)
        evidence = reference.log_evidence(unit, t, alpha, sigma2)
        rtol = 100 * EPS * condition**2
    misfit = np.sum((t - unit @ mean) ** 2) / sigma2 + mean @ (alpha * mean)
    size = np.abs(mean).max(initial=0.0)
    mean_atol = rtol * size + 100 * EPS * condition**2 * np.sqrt(misfit * sigma2)
    np.testing.assert_allclose(fit.mean * norms, mean, rtol=0, atol=mean_atol)
    np.testing.assert_allclose(
        fit.covariance * np.outer(norms, norms), Sigma, rtol=0, atol=rtol * np.abs(Sigma).max(initial=0)
    )
    assert fit.log_evidence == pytest.approx(evidence, abs=rtol * (1 + len(norms)) + 100 * EPS * (misfit + len(t)))
    assert fit.gamma == pytest.approx(1.0 - fit.alpha * np.diag(fit.covariance), abs=1e-12)
    assert fit.degrees_of_freedom == pytest.approx(fit.gamma.sum())


@each_case
def test_results_are_aligned_and_ascending(case):
    fit = fit_of(case)
    kept = len(fit.active)
    assert (np.diff(fit.active) > 0).all()
    assert fit.alpha.shape == fit.mean.shape == fit.variance.shape == (kept,)
    assert fit.covariance.shape == (kept, kept)
    assert len(fit.labels) == kept
    assert (fit.alpha > 0).all()
    assert np.isfinite(fit.alpha).all()
    assert fit.noise_variance > 0
    assert fit.n_steps == len(fit.history)


def assert_never_falls(history):
    assert np.isfinite(history).all()
    assert np.diff(history).min(initial=0.0) >= -1e-9 * max(1.0, np.abs(history).max(initial=0.0))


@pytest.mark.parametrize("case", [case for case in CASES if case[3] != "mackay"], ids=case_id)
def test_objective_never_falls(case):
    """EM and the search are monotone by construction, MacKay's updates are not."""
    assert_never_falls(fit_of(case).history)


@pytest.mark.parametrize("selection", ["greedy", "random", "cyclic"])
@pytest.mark.parametrize(
    "dictionary", [sbl.Gaussian(3.0), sbl.ThinPlateSpline(10.0) + sbl.Bias(), sbl.LinearSpline()], ids=str
)
@pytest.mark.parametrize("noise_variance", [1e-2, 1e-3])
def test_objective_never_falls_on_nearly_dependent_columns(selection, dictionary, noise_variance):
    """Little noise and neighbours that look alike: rounding must not be taken for gain."""
    data, options = datasets.sinc(60), {"selection": selection, "noise_variance": noise_variance}
    assert_never_falls(quiet_fit(data.x, data.t, dictionary, prior=sbl.Flat(), **options).history)


@pytest.mark.parametrize(
    ("prior", "options"),
    [
        (sbl.Smoothness(0.5, high=10.0), {"selection": "greedy"}),
        (sbl.Smoothness(0.5, high=10.0), {"selection": "random"}),
        (sbl.Flat(low=1e-2, high=10.0), {"selection": "greedy"}),
        (sbl.Flat(low=1e-2, high=10.0), {"selection": "random"}),
        (sbl.Flat(low=1e-2, high=10.0), {"method": "em"}),
    ],
    ids=str,
)
def test_objective_never_falls_with_a_tight_upper_bound(prior, options):
    data = datasets.sinc(60)
    for dictionary in (sbl.Gaussian(3.0), sbl.ThinPlateSpline(3.0)):
        assert_never_falls(quiet_fit(data.x, data.t, dictionary, prior=prior, **options).history)


@pytest.mark.parametrize("seed", [0, 40, 49])
def test_em_never_falls_when_many_columns_leave_at_once(seed):
    """Signal far below the noise: nearly every column is useless alone, but not every set of them."""
    data = datasets.sinc(64, noise_sd=1.0, seed=seed)
    dictionary = sbl.ThinPlateSpline(3.0) + sbl.Bias()
    assert_never_falls(quiet_fit(data.x, data.t, dictionary, prior=sbl.Flat(), method="em", max_steps=100).history)


def test_prior_that_prunes_nothing_ends_on_a_smooth_kernel():
    """All columns stay, at precisions far below what the data resolve: steps within rounding must count as none."""
    data = datasets.sinc(40)
    assert sbl.fit_map(data.x, data.t, sbl.Gaussian(3.0), prior=sbl.Power(-0.3), max_steps=1000).converged


@pytest.mark.parametrize("name", ["sinc gaussian", "sinc linear spline", "sinc thin plate"])
@pytest.mark.parametrize("prior", ["bic", "flat"])
def test_defaults_find_the_signal(name, prior):
    """The error of the curve is below the noise of a single observation, which ignoring the signal would not give."""
    data, (x, t, dictionary) = datasets.sinc(60), PROBLEMS[name]()
    mean, _ = sbl.fit_map(x, t, dictionary, prior=PRIORS[prior]).predict()
    assert np.sqrt(np.mean((mean - data.signal) ** 2)) < data.noise_sd


# --- the objective, dense ------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Objective:
    """Log evidence plus log priors for one prior of the table, in the user's units and by tests/reference.py."""

    prior: sbl.Prior
    kind: str
    coordinate: str
    measure: str = "alpha"
    space: str | None = None
    normalize: bool = True
    params: tuple = ()  # of the prior; c may be a function of N

    def log_prior(self, alpha, sigma2, norm2, n):
        """Without its normaliser, in the coordinate that is maximised; at inf the limit, 0 for flat and smoothness."""
        scale = norm2 if self.normalize else np.ones_like(norm2)
        finite = np.where(np.isfinite(alpha), alpha, 1.0)
        value = reference.log_prior_unnormalised(
            self.kind, finite, sigma2, scale, self.measure, **self.parameters(n)
        ) + (self.coordinate == "log") * np.log(finite)
        return np.where(np.isfinite(alpha), value, 0.0)

    def parameters(self, n):
        return {name: value(n) if callable(value) else value for name, value in self.params}

    def exact_zeros(self):
        return self.kind in ("flat", "smoothness")


OBJECTIVES_OF_EM = ("flat", "jeffreys", "gamma", "power")  # MacKay's update has no fixed point for a falling power


def with_c(c):
    return (("c", c),)


OBJECTIVES = {
    "bic": Objective(sbl.Smoothness("BIC"), "smoothness", "log", "log", params=with_c(lambda n: np.log(n) / 2)),
    "aic": Objective(sbl.Smoothness("AIC"), "smoothness", "log", "log", params=with_c(1.0)),
    "ric": Objective(sbl.Smoothness("RIC", measure="alpha"), "smoothness", "alpha", params=with_c(np.log)),
    "raw": Objective(
        sbl.Smoothness(1.5, normalize=False), "smoothness", "log", "log", normalize=False, params=with_c(1.5)
    ),
    "flat": Objective(sbl.Flat(), "flat", "alpha"),
    "jeffreys": Objective(sbl.Jeffreys(), "flat", "log", "log"),
    "gamma": Objective(sbl.Gamma(0.5, 0.1), "gamma", "log", params=(("a", 0.5), ("b", 0.1))),
    "gamma alpha": Objective(sbl.Gamma(2.0, 0.1), "gamma", "alpha", space="alpha", params=(("a", 2.0), ("b", 0.1))),
    "power": Objective(sbl.Power(-0.2), "power", "alpha", params=(("zeta", -0.2),)),
}
each_objective = pytest.mark.parametrize("objective", OBJECTIVES.values(), ids=OBJECTIVES)


def small_columns():
    return random_columns(n=30, m=12, seed=3)


def small_kernel():
    """Twelve overlapping bumps on thirty points."""
    data = datasets.sinc(30, noise_sd=0.05)
    return np.exp(-(np.subtract.outer(data.x, np.linspace(-10.0, 10.0, 12)) ** 2) / 9.0), data.t


SMALL = {"columns": small_columns, "kernel": small_kernel}
NOISES = {
    "noise estimated": {},
    "noise prior given": {"noise_prior": (2.0, 0.3)},
    "noise known": {"noise_variance": 0.1},
}
each_small = pytest.mark.parametrize("make", SMALL.values(), ids=SMALL)
each_noise = pytest.mark.parametrize("noise", NOISES.values(), ids=NOISES)
BOUNDS = {"default bounds": None, "given bounds": (1e-3, 1e4), "tight bounds": (0.1, 10.0)}
each_bounds = pytest.mark.parametrize("bounds", BOUNDS.values(), ids=BOUNDS)


def fit_small(make, objective, noise, bounds, **options):
    Phi, t = make()
    t = t - t.mean()
    low, high = bounds or (None, None)
    options |= {"prior": dataclasses.replace(objective.prior, low=low, high=high), "space": objective.space}
    return quiet_fit(None, t, sbl.Columns(Phi), center=False, **noise, **options), Phi, t


def bounds_of(bounds, Phi, t):
    """In the user's units; the defaults are relative to the norm of a column and the spread of t."""
    norm2, spread2 = np.sum(Phi**2, axis=0), np.var(t)
    relative = (1e-10 * norm2 / spread2, 1e10 * norm2 / spread2)
    return relative if bounds is None else tuple(np.full(len(norm2), bound) for bound in bounds)


def noise_prior_of(noise, t):
    return noise.get("noise_prior", (1e-4, 1e-4 * np.var(t)))


@each_objective
@each_noise
@each_bounds
def test_log_posterior_counts_every_precision_and_the_noise(objective, noise, bounds):
    fit, Phi, t = fit_small(small_columns, objective, noise, bounds)
    norm2 = np.sum(Phi**2, axis=0)
    expected = fit.log_evidence
    if "noise_variance" not in noise:
        expected += reference.log_inverse_gamma(fit.noise_variance, *noise_prior_of(noise, t))
    for alpha, n2, low, high in zip(everywhere(fit), norm2, *bounds_of(bounds, Phi, t), strict=True):
        setting = (fit.noise_variance, n2 if objective.normalize else 1.0, low, high, objective.measure)
        if np.isinf(alpha) and objective.exact_zeros():
            expected -= reference.log_prior_normaliser(objective.kind, *setting, **objective.parameters(len(t)))
        else:
            expected += reference.log_prior(
                objective.kind,
                np.clip(alpha, low, high),
                *setting,
                objective.coordinate,
                **objective.parameters(len(t)),
            )
    # rounding of the largest term; with a Gamma prior that is b x high for each pruned column
    assert fit.log_posterior == pytest.approx(float(expected), rel=1e-10, abs=1e-9 * len(norm2))


@each_small
@each_objective
@each_bounds
@pytest.mark.parametrize("selection", ["greedy", "random"])
def test_precisions_stay_within_their_bounds(make, objective, bounds, selection):
    fit, Phi, t = fit_small(make, objective, NOISES["noise known"], bounds, selection=selection)
    low, high = (bound[fit.active] for bound in bounds_of(bounds, Phi, t))
    assert (fit.alpha >= low * (1 - 1e-9)).all()
    assert (fit.alpha <= high * (1 + 1e-9)).all()


def assert_no_single_change_gains(fit, objective, Phi, t, bounds):
    """Against brute force in one dimension, for every column, present or absent."""
    norm2, alpha, sigma2 = np.sum(Phi**2, axis=0), everywhere(fit), fit.noise_variance
    s, q = reference.small_s_q(Phi, t - fit.offset, alpha, sigma2)
    lows, highs = bounds_of(bounds, Phi, t)
    for m in range(len(alpha)):

        def log_prior(value, m=m):
            return objective.log_prior(np.array([value]), sigma2, norm2[m : m + 1], len(t))[0]

        def contribution(value, m=m, log_prior=log_prior):
            return reference.component_log_contribution(value, s[m], q[m] ** 2) + log_prior(value)

        absent = 0.0 if objective.exact_zeros() else log_prior(highs[m])
        best = max(reference.brute_force_maximiser(contribution, lows[m], highs[m], num=401)[1], absent)
        own = contribution(alpha[m]) if np.isfinite(alpha[m]) else absent
        assert own >= best - NEGLIGIBLE - 100 * EPS * abs(absent), f"column {m}: {best - own:.3g} nats to gain"


@each_small
@each_objective
@each_noise
@each_bounds
def test_no_single_change_gains(make, objective, noise, bounds):
    fit, Phi, t = fit_small(make, objective, noise, bounds)
    assert fit.converged
    assert_no_single_change_gains(fit, objective, Phi, t, bounds)


def gradient_of(fit, objective, Phi, t, noise):
    """Of the dense objective in (log α of the kept columns, log σ²)."""
    unknown = "noise_variance" not in noise
    point = np.log(np.append(fit.alpha, fit.noise_variance))[: None if unknown else -1]
    norm2 = np.sum(Phi**2, axis=0)[fit.active]

    def value(point):
        sigma2 = np.exp(point[-1]) if unknown else fit.noise_variance
        alpha = np.exp(point[: len(norm2)])
        total = reference.log_evidence(Phi[:, fit.active], t - fit.offset, alpha, sigma2)
        total += objective.log_prior(alpha, sigma2, norm2, len(t)).sum()
        return total + (reference.log_inverse_gamma(sigma2, *noise_prior_of(noise, t)) if unknown else 0.0)

    return reference.finite_difference(value, point)


def assert_stationary(fit, objective, Phi, t, noise, bounds):
    """No slope left, except outwards on a bound.

    Converged means steps below 1e-6 in log α and log σ², where the curvature is at most about N/2.
    """
    gradient, atol = gradient_of(fit, objective, Phi, t, noise), 0.5e-6 * len(t)
    low, high = (bound[fit.active] for bound in bounds_of(bounds, Phi, t))
    at_low, at_high = fit.alpha <= low * (1 + 1e-9), fit.alpha >= high * (1 - 1e-9)
    slope = gradient[: len(fit.alpha)]
    np.testing.assert_allclose(slope[~at_low & ~at_high], 0.0, atol=atol)
    assert (slope[at_low] <= atol).all()
    assert (slope[at_high] >= -atol).all()
    np.testing.assert_allclose(gradient[len(fit.alpha) :], 0.0, atol=atol)


@each_small
@each_objective
@each_noise
@each_bounds
def test_gradient_vanishes(make, objective, noise, bounds):
    fit, Phi, t = fit_small(make, objective, noise, bounds)
    assert_stationary(fit, objective, Phi, t, noise, bounds)


@pytest.mark.parametrize("name", ["bic", "aic", "ric", "flat", "jeffreys"])
@pytest.mark.parametrize("selection", ["greedy", "random", "cyclic"])
def test_more_columns_than_observations(name, selection):
    objective, noise = OBJECTIVES[name], NOISES["noise known"]
    wide = lambda: random_columns(n=16, m=24, seed=2)  # noqa: E731
    fit, Phi, t = fit_small(wide, objective, noise, None, selection=selection)
    assert_no_single_change_gains(fit, objective, Phi, t, None)
    assert_stationary(fit, objective, Phi, t, noise, None)


@each_small
@pytest.mark.parametrize(
    ("method", "name"),
    [*[("mackay", name) for name in ("flat", "jeffreys", "gamma")], *[("em", name) for name in OBJECTIVES_OF_EM]],
)
@each_noise
def test_fixed_points_are_stationary(make, method, name, noise):
    """The updates stand still where the gradient vanishes (T01 eq. 43, 44)."""
    objective, bounds = OBJECTIVES[name], BOUNDS["given bounds"]
    if (name, method) == ("power", "mackay"):  # gamma + 2 zeta turns negative for a weight that is not determined
        with pytest.raises(ValueError, match="method='mackay' has no fixed point"):
            fit_small(make, objective, noise, bounds, method=method)
        return
    fit, Phi, t = fit_small(make, objective, noise, bounds, method=method)
    assert fit.converged
    assert_stationary(fit, objective, Phi, t, noise, bounds)


# --- orthonormal dictionaries -----------------------------------------------------------------------------------


def orthonormal_columns():
    """Orthogonal columns of several norms, fewer than rows."""
    rng = np.random.default_rng(5)
    Q = np.linalg.qr(rng.standard_normal((40, 24)))[0]
    t = Q[:, :5] @ rng.uniform(2, 6, 5) + 0.5 * rng.standard_normal(40) + 1.0
    return None, t, sbl.Columns(Q * 10.0 ** rng.uniform(-2, 2, 24))


ORTHONORMAL = {"haar": PROBLEMS["blocks haar"], "columns": orthonormal_columns}


@pytest.mark.parametrize("make", ORTHONORMAL.values(), ids=ORTHONORMAL)
@pytest.mark.parametrize("prior", PRIORS)
def test_closed_form_equals_the_search(make, prior):
    x, t, dictionary = make()
    options = {"prior": PRIORS[prior], "noise_variance": 0.1 * np.var(t), "center": False}
    closed = sbl.fit_map(x, t, dictionary, **options)
    searched = sbl.fit_map(x, t, dictionary, closed_form=False, **options)
    if not (prior == "raw" and make is orthonormal_columns):  # κ differs by column: no closed form
        assert closed.reason.startswith("closed form")
    np.testing.assert_array_equal(closed.active, searched.active)
    np.testing.assert_allclose(np.log(closed.alpha), np.log(searched.alpha), atol=1e-6)  # the search's tolerance
    np.testing.assert_allclose(closed.mean, searched.mean, rtol=1e-6, atol=1e-9 * np.abs(closed.mean).max())
    assert closed.log_evidence == pytest.approx(searched.log_evidence, abs=1e-6)
    assert closed.log_posterior == pytest.approx(searched.log_posterior, rel=1e-9, abs=1e-6)


def profile_on_grid(fit, c, sigma2):
    """Objective at each σ², with every α at the best of a grid: a lower bound of the true profile."""
    Phi, t, n = fit.design.matrix(), fit.t - fit.offset, len(fit.t)
    z2, rest = (Phi.T @ t) ** 2, t @ t
    ratio = np.append(10.0 ** np.linspace(-6, 4, 601), np.inf)  # α σ²
    alpha = np.divide.outer(ratio, sigma2)  # (grid, noise)
    gains = [
        reference.component_log_contribution(alpha, 1 / sigma2, z / sigma2**2) - c / (1.0 + ratio[:, None]) for z in z2
    ]
    evidence = -0.5 * (n * np.log(2 * np.pi * sigma2) + rest / sigma2)
    g, h = fit.settings["noise_prior"]
    return evidence + np.max(gains, axis=1).sum(axis=0) + reference.log_inverse_gamma(sigma2, g, h)


def two_maxima(strong, height):
    """z of a few strong coefficients and many weak ones: the noise can cover the weak ones, or all."""
    rng = np.random.default_rng(0)
    signs = np.sign(rng.standard_normal(strong))
    z = np.concatenate([height * signs * rng.uniform(0.8, 1.2, strong), rng.standard_normal(64 - strong)])
    return reference.wavelet_matrix("haar", 64, 6) @ z


@pytest.mark.parametrize(
    ("t", "prior", "c", "maxima"),
    [
        (datasets.blocks(64, snr=3.0).t, sbl.Smoothness("BIC"), np.log(64) / 2, 1),
        (datasets.blocks(64, snr=3.0).t, sbl.Smoothness("RIC"), np.log(64), 1),
        (two_maxima(16, 10.0), sbl.Smoothness("RIC"), np.log(64), 2),
        (two_maxima(24, 20.0), sbl.Smoothness("RIC"), np.log(64), 2),
        (two_maxima(24, 6.0), sbl.Smoothness("BIC"), np.log(64) / 2, 2),
    ],
    ids=["blocks bic", "blocks ric", "little noise wins", "much noise wins", "bic"],
)
def test_noise_of_the_closed_form_is_the_global_maximum(t, prior, c, maxima):
    fit = sbl.fit_map(None, t, sbl.Wavelet("haar"), prior=prior, center=False)
    sigma2 = np.exp(np.linspace(np.log(1e-8 * np.var(t)), np.log(4.0 * np.var(t)), 1501))
    profile = profile_on_grid(fit, c, sigma2)
    assert np.sum((profile[1:-1] > profile[:-2]) & (profile[1:-1] > profile[2:])) >= maxima
    Phi, alpha = fit.design.matrix(), everywhere(fit)
    kappa = 1.0 / (1.0 + fit.noise_variance * fit.alpha)
    own = reference.log_evidence(Phi, t, alpha, fit.noise_variance) - c * kappa.sum()
    own += reference.log_inverse_gamma(fit.noise_variance, *fit.settings["noise_prior"])
    assert own >= profile.max() - 1e-9


@pytest.mark.parametrize("noise_prior", [(50.0, 5e3), (2.0, 1e-3), (1e-4, 1e3)], ids=str)
def test_closed_form_follows_a_strong_noise_prior(noise_prior):
    """However far from the spread of t it pulls the noise: the slope in log σ² vanishes."""
    data = datasets.blocks(64)
    fit = quiet_fit(data.x, data.t, sbl.Wavelet("haar"), prior=sbl.Smoothness("BIC"), noise_prior=noise_prior)
    assert_stationary(fit, OBJECTIVES["bic"], fit.design.matrix(), data.t, {"noise_prior": noise_prior}, None)


# --- invariance -------------------------------------------------------------------------------------------------


INVARIANT = {"bic": sbl.Smoothness("BIC"), "ric": sbl.Smoothness("RIC"), "jeffreys": sbl.Jeffreys()}
each_invariant = pytest.mark.parametrize("prior", INVARIANT.values(), ids=INVARIANT)


def assert_same_fit(fit, other, column=1.0, target=1.0, order=None):
    """`other` is `fit` with its columns multiplied by `column`, permuted by `order`, and t multiplied by `target`."""
    column = np.broadcast_to(column, fit.n_columns)
    place = np.arange(fit.n_columns) if order is None else np.argsort(order)  # where an old column is now
    np.testing.assert_array_equal(np.sort(place[fit.active]), other.active)
    back = np.argsort(place[fit.active])
    old, scale = fit.active[back], column[fit.active[back]]
    # another order of operations may stop Newton's steps elsewhere within 1e-6 in log α
    np.testing.assert_allclose(other.alpha * (target / scale) ** 2, fit.alpha[back], rtol=1e-5)
    np.testing.assert_allclose(other.mean * scale / target, fit.mean[back], rtol=1e-5)
    np.testing.assert_allclose(other.noise_variance / target / target, fit.noise_variance, rtol=1e-5)
    dimensions = len(fit.t) - has_intercept(fit)
    assert other.log_evidence == pytest.approx(fit.log_evidence - dimensions * np.log(abs(target)), abs=1e-5)
    assert list(old) == sorted(old, key=lambda k: place[k])
    np.testing.assert_allclose(other.history[-1] - other.log_evidence, fit.history[-1] - fit.log_evidence, atol=1e-5)


def column_fit(Phi, t, prior, **options):
    return quiet_fit(None, t, sbl.Columns(Phi), prior=prior, **options)


@each_invariant
def test_order_and_sign_of_columns_do_not_matter(prior):
    (Phi, t), rng = random_columns(), np.random.default_rng(0)
    order, sign = rng.permutation(Phi.shape[1]), rng.choice([-1.0, 1.0], Phi.shape[1])
    fit = column_fit(Phi, t, prior)
    assert_same_fit(fit, column_fit((Phi * sign)[:, order], t, prior), column=sign, order=order)


@each_invariant
def test_units_of_columns_do_not_matter(prior):
    (Phi, t), rng = random_columns(), np.random.default_rng(1)
    units = 10.0 ** rng.uniform(-6, 6, Phi.shape[1])
    assert_same_fit(column_fit(Phi, t, prior), column_fit(Phi * units, t, prior), column=units)


def test_units_of_columns_matter_to_the_raw_smoothness_prior():
    Phi, t = random_columns()
    fit, other = (column_fit(k * Phi, t, sbl.Smoothness("RIC", normalize=False)) for k in (1.0, 1e3))
    assert other.log_evidence != pytest.approx(fit.log_evidence, abs=0.1)


@pytest.mark.parametrize("scale", [1e-150, 1e-20, 1e-3, -1.0, 1e3, 1e20, 1e150])
@pytest.mark.parametrize("name", ["columns", "sinc gaussian", "blocks haar"])
@each_invariant
def test_units_of_targets_do_not_matter(scale, name, prior):
    x, t, dictionary = PROBLEMS[name]()
    fit, other = (quiet_fit(x, k * t, dictionary, prior=prior) for k in (1.0, scale))
    assert_same_fit(fit, other, target=scale)
    mean, sd = fit.predict()
    other_mean, other_sd = other.predict()
    np.testing.assert_allclose(other_mean / scale, mean, atol=1e-5 * np.abs(mean).max())
    np.testing.assert_allclose(other_sd / abs(scale), sd, rtol=1e-5)


@pytest.mark.parametrize("name", ["columns", "sinc gaussian", "blocks haar"])
def test_shift_of_targets_does_not_matter_when_centered(name):
    x, t, dictionary = PROBLEMS[name]()
    fit, other = (sbl.fit_map(x, t + shift, dictionary) for shift in (0.0, 1e3))
    assert_same_fit(fit, other)
    assert other.offset - fit.offset == pytest.approx(1e3)
    np.testing.assert_allclose(other.predict()[0] - 1e3, fit.predict()[0], atol=1e-9)


@pytest.mark.parametrize("noise", [{"noise_prior": (1.0, 0.2)}, {"noise_variance": 0.1}], ids=str)
@pytest.mark.parametrize("name", ["columns", "kernel", "wide"])
def test_an_intercept_is_a_fit_to_contrasts(name, noise):
    """A flat prior of a constant leaves N - 1 contrasts: columns with means of their own change nothing else."""
    Phi, t = random_columns(n=16, m=24, seed=2) if name == "wide" else SMALL[name]()
    Phi = Phi + np.linspace(-3.0, 30.0, Phi.shape[1])
    options = {"prior": sbl.Smoothness(1.5, low=1e-6, high=1e8), **noise}
    fit = sbl.fit_map(None, t + 1e3, sbl.Columns(Phi), **options)
    contrast, target = reference.contrasts(Phi, t)
    less = sbl.fit_map(None, target, sbl.Columns(contrast), center=False, **options)
    np.testing.assert_array_equal(fit.active, less.active)
    np.testing.assert_allclose(np.log(fit.alpha), np.log(less.alpha), atol=1e-5)  # where Newton's steps end
    np.testing.assert_allclose(fit.mean, less.mean, rtol=1e-5, atol=1e-8)
    assert fit.log_evidence == pytest.approx(less.log_evidence, abs=1e-6)
    assert fit.log_posterior == pytest.approx(less.log_posterior, abs=1e-6)
    # the same as a constant column with a prior so wide that it does not matter
    X = np.column_stack([np.ones(len(t)), Phi[:, fit.active]])
    alpha = np.append(1e-9, fit.alpha)
    mean, Sigma = reference.weights_posterior(X, t, alpha, fit.noise_variance)
    found, sd = fit.predict(noise=False)
    np.testing.assert_allclose(found - 1e3, X @ mean, atol=1e-5 * np.std(t))
    np.testing.assert_allclose(sd**2, np.einsum("ij,jk,ik->i", X, Sigma, X), rtol=1e-4)
    left, variance = reference.leave_one_out(X, t, alpha, fit.noise_variance)
    expected = -0.5 * (np.log(2 * np.pi * variance) + (t - left) ** 2 / variance)
    np.testing.assert_allclose(fit.leave_one_out(), expected, rtol=1e-4, atol=1e-4)


CALENDAR = np.linspace(1960.0, 2010.0, 200)


@pytest.mark.parametrize("center", [True, False])
def test_a_line_over_calendar_years_is_found(center):
    """Also where both columns are needed together, and neither alone gains."""
    t = 0.03 * (CALENDAR - 1960.0) + 0.05 * np.random.default_rng(0).standard_normal(200)
    t = t if center else t - t.mean()
    fit = sbl.fit_map(CALENDAR, t, sbl.Linear() + sbl.Bias(), center=center)
    mean, _ = fit.predict([1960.0, 2010.0], noise=False)
    slope = np.diff(mean) / 50.0
    assert slope == pytest.approx(0.03, abs=5 * 0.05 / np.sqrt(200) / 14.5)  # five standard errors
    if center:
        shifted = sbl.fit_map(CALENDAR - 1985.0, t, sbl.Linear() + sbl.Bias())
        assert fit.history[-1] == pytest.approx(shifted.history[-1], abs=1e-6)


def test_a_line_through_four_points_is_found():
    fit = sbl.fit_map([1, 2, 3, 4], [1.0, 2.0, 3.0, 4.0], sbl.Linear())
    np.testing.assert_allclose(fit.predict([0.0, 10.0])[0], [0.0, 10.0], atol=1e-2)


def test_a_bias_beside_an_intercept_has_nothing_to_do():
    x, t, dictionary = PROBLEMS["sinc gaussian"]()
    fit, alone = (sbl.fit_map(x, t + 7.0, D) for D in (dictionary + sbl.Bias(), dictionary))
    np.testing.assert_array_equal(fit.active, alone.active)
    assert fit.history[-1] == pytest.approx(alone.history[-1], abs=1e-9)


def test_known_noise_is_never_replaced():
    """However small beside t: here 1e-13 of its mean square."""
    x = np.arange(40.0)
    t = 1e5 + np.sin(x / 3) + 0.3 * np.random.default_rng(0).standard_normal(40)
    fit = sbl.fit_map(x, t, sbl.Linear() + sbl.Bias(), center=False, noise_variance=1e-3)
    Phi = np.column_stack([x, np.ones(40)])[:, fit.active]
    # the columns' part of C, 1e10 of the noise, is cut off by QR: what is left is the residual of least squares
    Q = np.linalg.qr(Phi)[0]
    residual2 = np.sum((t - Q @ (Q.T @ t)) ** 2) / 1e-3
    assert fit.noise_variance == 1e-3
    log_det = 40 * np.log(1e-3) + np.linalg.slogdet(np.eye(Phi.shape[1]) + Phi.T @ Phi / 1e-3 / fit.alpha)[1]
    assert fit.log_evidence == pytest.approx(-0.5 * (40 * np.log(2 * np.pi) + log_det + residual2), abs=2.0)


def test_a_failed_exchange_is_undone():
    x = np.linspace(0, 10, 100)
    t = np.sin(x) + 0.3 * x + 0.002 * np.random.default_rng(3).standard_normal(100)
    options = {"dictionary": sbl.LinearSpline() + sbl.Bias(), "center": False}
    fit = sbl.fit_map(x, t, **options)
    assert fit.converged
    assert_never_falls(fit.history)
    again = sbl.fit_map(x, t, start=fit, **options)
    assert again.history[0] == pytest.approx(fit.history[-1], abs=1e-6)
    assert again.history[-1] <= fit.history[-1] + NEGLIGIBLE


def test_without_centering_targets_are_left_alone():
    x, t, dictionary = PROBLEMS["sinc gaussian"]()
    fit = sbl.fit_map(x, t, dictionary, center=False)
    assert fit.offset == 0.0
    mean = fit.curve()
    np.testing.assert_allclose(mean, fit.design.matrix()[:, fit.active] @ fit.mean, rtol=1e-12)


@pytest.mark.parametrize("scale", [1e-3, 1e3])
def test_what_a_user_gives_is_in_user_units(scale):
    """Scaling t alone changes a fit with given bounds and noise prior; scaling these with it restores the fit."""
    Phi, t = small_columns()

    def fit(k, bounds, h):
        return column_fit(Phi, k * t, sbl.Flat(low=1e-1 * bounds, high=1e1 * bounds), noise_prior=(2.0, h))

    reference_fit, alone = fit(1.0, 1.0, 0.3), fit(scale, 1.0, 0.3)
    for some in (reference_fit, alone):
        assert ((some.alpha > 0.1 * (1 - 1e-9)) & (some.alpha < 10.0 * (1 + 1e-9))).all()
    assert_same_fit(reference_fit, fit(scale, scale**-2, 0.3 * scale**2), target=scale)
    assert alone.noise_variance / scale**2 != pytest.approx(reference_fit.noise_variance, rel=0.1)


def test_given_bounds_refer_to_the_users_columns():
    Phi, t = small_columns()
    prior = sbl.Flat(low=1e-1, high=1e1)
    fit = column_fit(Phi, t, prior)
    other = column_fit(10.0 * Phi, t, dataclasses.replace(prior, low=1e1, high=1e3))
    assert_same_fit(fit, other, column=10.0)


# --- the search ------------------------------------------------------------------------------------------------------


def saddle():
    """FT02 result III (docs/errata.md): every single α is at its best and the gradient is 0, but it is a saddle."""
    Phi = np.array([[np.sqrt(2.0), -np.sqrt(2.0)], [np.sqrt(0.125), np.sqrt(0.125)]])
    return Phi, np.array([0.0, 2.5])


def test_saddle_is_left():
    Phi, t = saddle()
    options = {"prior": sbl.Flat(), "noise_variance": 1.0, "center": False, "closed_form": False}
    some = sbl.fit_map(None, t, sbl.Columns(Phi), **options)
    there = dataclasses.replace(some, active=np.arange(2), alpha=np.ones(2))
    fit = sbl.fit_map(None, t, sbl.Columns(Phi), start=there, **options)
    assert fit.converged
    assert fit.log_evidence > reference.log_evidence(Phi, t, np.ones(2), 1.0) + 1e-3
    point = np.log(fit.alpha)
    hessian = reference.finite_difference_hessian(
        lambda v: reference.log_evidence(Phi[:, fit.active], t, np.exp(v), 1.0), point
    )
    assert (np.linalg.eigvalsh(hessian) < 1e-6).all()


@pytest.mark.parametrize("name", ["sinc gaussian", "blocks_sinc union", "columns", "friedman"])
@pytest.mark.parametrize("prior", ["bic", "ric"])
def test_warm_start_from_a_solution_stays_there(name, prior):
    x, t, dictionary = PROBLEMS[name]()
    fit = sbl.fit_map(x, t, dictionary, prior=PRIORS[prior])
    again = sbl.fit_map(x, t, dictionary, prior=PRIORS[prior], start=fit)
    assert_same_fit(fit, again)
    assert again.n_steps <= 3


@pytest.mark.parametrize("method", ["mackay", "em"])
def test_warm_start_of_the_fixed_points(method):
    x, t, dictionary = PROBLEMS["sinc gaussian"]()
    options = {"prior": sbl.Flat(), "method": method}
    fit = sbl.fit_map(x, t, dictionary, **options)
    again = sbl.fit_map(x, t, dictionary, start=fit, **options)
    assert_same_fit(fit, again)
    assert again.n_steps <= 3


def test_warm_start_carries_over_to_another_prior_and_other_units():
    x, t, dictionary = PROBLEMS["blocks_sinc union"]()
    fit = sbl.fit_map(x, t, dictionary, prior=PRIORS["ric"])
    cold, warm = (sbl.fit_map(x, 1e3 * t, dictionary, selection="cyclic", start=start) for start in (None, fit))
    assert warm.converged
    assert warm.n_steps < cold.n_steps


def test_flat_prior_on_a_square_orthonormal_basis_overfits():
    data = datasets.blocks(128)
    with pytest.warns(sbl.ConvergenceWarning, match="overfitting"):
        fit = sbl.fit_map(data.x, data.t, sbl.Wavelet("haar"), prior=sbl.Flat())
    assert not fit.converged
    assert "overfitting" in fit.reason
    assert "Smoothness" in fit.reason  # the remedy


def test_step_limit_is_a_result_with_a_reason():
    x, t, dictionary = PROBLEMS["columns"]()
    with pytest.warns(sbl.ConvergenceWarning, match="max_steps=3"):
        fit = sbl.fit_map(x, t, dictionary, max_steps=3)
    assert not fit.converged
    assert "max_steps=3" in fit.reason
    assert 3 <= fit.n_steps <= 10
    assert np.isfinite(fit.predict()[0]).all()
    resumed = sbl.fit_map(x, t, dictionary, start=fit)
    assert resumed.converged
    assert resumed.history[-1] > fit.history[-1]


@pytest.mark.parametrize("method", ["mackay", "em"])
def test_step_limit_of_the_fixed_points(method):
    x, t, dictionary = PROBLEMS["columns"]()
    with pytest.warns(sbl.ConvergenceWarning, match="max_steps=3"):
        fit = sbl.fit_map(x, t, dictionary, prior=sbl.Flat(), method=method, max_steps=3)
    assert fit.n_steps == 3
    assert not fit.converged


def test_random_selection_is_reproducible_by_its_seed():
    x, t, dictionary = PROBLEMS["blocks_sinc union"]()
    first, second, other = (sbl.fit_map(x, t, dictionary, selection="random", seed=seed) for seed in (7, 7, 8))
    np.testing.assert_array_equal(first.history, second.history)
    np.testing.assert_array_equal(first.alpha, second.alpha)
    assert not np.array_equal(first.history[:10], other.history[:10])


def test_selections_take_columns_in_different_orders():
    x, t, dictionary = PROBLEMS["columns"]()
    histories = [sbl.fit_map(x, t, dictionary, selection=name).history for name in ("greedy", "random", "cyclic")]
    starts = {float(history[1]) for history in histories}
    assert len(starts) == 3
    assert histories[0][1] == max(starts)  # greedy takes the largest first step


@pytest.mark.parametrize("selection", ["greedy", "cyclic"])
def test_exchange_never_loses(selection):
    x, t, dictionary = PROBLEMS["blocks_sinc union"]()
    off, on = (
        sbl.fit_map(x, t, dictionary, prior=PRIORS["ric"], selection=selection, exchange=exchange)
        for exchange in (False, True)
    )
    assert off.converged
    assert on.converged
    assert on.history[-1] >= off.history[-1] - NEGLIGIBLE


def test_exchange_leaves_a_maximum_that_single_moves_cannot():
    """Of five random orders on overlapping bumps, some end where moving a bump to its neighbour gains."""
    x, t, dictionary = PROBLEMS["sinc gaussian"]()
    gains = []
    for seed in range(5):
        off, on = (
            sbl.fit_map(x, t, dictionary, selection="random", seed=seed, exchange=exchange)
            for exchange in (False, True)
        )
        gains.append(on.history[-1] - off.history[-1])
    assert min(gains) >= -NEGLIGIBLE
    assert max(gains) > 0.1


# --- prediction -------------------------------------------------------------------------------------------------


def assert_predicts(fit, x_new, values):
    """`values` are all columns at x_new, dense; an intercept takes their means over the training inputs."""
    if has_intercept(fit):
        values = values - fit.dictionary.bind(fit.x).matrix().mean(axis=0)
    values = values[:, fit.active]
    variance = np.einsum("ij,jk,ik->i", values, fit.covariance, values)
    variance += has_intercept(fit) * fit.noise_variance / len(fit.t)
    for noise, extra in ((True, fit.noise_variance), (False, 0.0)):
        mean, sd = fit.predict(x_new, noise=noise, augment=False)
        np.testing.assert_allclose(mean, values @ fit.mean + fit.offset, atol=1e-12 * np.abs(values @ fit.mean).max())
        np.testing.assert_allclose(sd**2, variance + extra, atol=1e-10 * (variance + extra).max())


@pytest.mark.parametrize("name", PROBLEMS)
def test_prediction_at_the_training_inputs(name):
    fit = fit_of((name, "bic", "greedy", "fast"))
    Phi = fit.dictionary.bind(fit.x).matrix()
    assert_predicts(fit, None, Phi)
    if fit.x is not None:
        assert_predicts(fit, fit.x, Phi)


def test_prediction_at_new_inputs_of_a_kernel():
    x, t, dictionary = PROBLEMS["sinc gaussian"]()
    new = np.array([-12.0, -3.3, 0.123, 9.99, 40.0])
    assert_predicts(sbl.fit_map(x, t, dictionary), new, np.exp(-(np.subtract.outer(new, x) ** 2) / 9.0))


def test_prediction_at_new_rows_of_columns():
    x, t, dictionary = PROBLEMS["columns"]()
    new = np.random.default_rng(4).standard_normal((7, 80))
    assert_predicts(sbl.fit_map(x, t, dictionary), new, new)


@pytest.mark.parametrize("wavelet", ["haar", "sym8"])
def test_wavelets_at_new_inputs(wavelet):
    """Haar takes the nearest grid point, the smooth families a straight line between two."""
    data = datasets.heavisine(64)
    fit = sbl.fit_map(data.x, data.t, sbl.Wavelet(wavelet))
    Phi, step = fit.design.matrix(), data.x[1] - data.x[0]
    new = data.x[:-1] + 0.3 * step
    assert_predicts(fit, new, Phi[:-1] if wavelet == "haar" else 0.7 * Phi[:-1] + 0.3 * Phi[1:])
    assert_predicts(fit, data.x[5:9], Phi[5:9])


def test_union_at_new_inputs():
    x, t, dictionary = PROBLEMS["blocks_sinc union"]()
    fit, new = sbl.fit_map(x, t, dictionary), x[:-1] + 0.3 * (x[1] - x[0])
    distance = np.abs(np.subtract.outer(new, x)) / 3.0
    haar = dictionary.bind(x).matrix()[:-1, :128]
    assert_predicts(fit, new, np.hstack([haar, distance**2 * np.log(distance)]))


@pytest.mark.parametrize("name", PROBLEMS)
def test_contributions_sum_to_the_curve(name):
    fit = fit_of((name, "bic", "greedy", "fast"))
    for new in (None, *([] if fit.x is None else [fit.x[3:8]])):
        curves = fit.contributions(new)
        assert len(curves) == len(fit.dictionary.parts)
        total = np.sum(list(curves.values()), axis=0)
        mean = fit.curve(new) - fit.offset
        np.testing.assert_allclose(total, mean, atol=1e-12 * max(np.abs(mean).max(), abs(fit.offset)))


@pytest.mark.parametrize("name", PROBLEMS)
def test_sd_of_contributions_is_that_of_their_own_weights(name):
    """By the dense matrix; a union of n columns each, or one part alone."""
    fit = fit_of((name, "bic", "greedy", "fast"))
    pairs, Phi, S = fit.contributions(with_sd=True), fit.design.matrix(), fit.covariance
    start = 0
    for (part, (curve, sd)), dictionary in zip(pairs.items(), fit.dictionary.parts, strict=True):
        np.testing.assert_array_equal(curve, fit.contributions()[part])
        stop = start + dictionary.bind(fit.x).n_columns
        mine = (fit.active >= start) & (fit.active < stop)
        values = Phi[:, fit.active[mine]]
        variance = np.diag(values @ S[mine][:, mine] @ values.T)
        np.testing.assert_allclose(sd**2, variance, rtol=1e-8, atol=1e-12 * variance.max(initial=1e-300))
        if fit.x is not None:
            np.testing.assert_allclose(fit.contributions(fit.x[3:8], with_sd=True)[part][1], sd[3:8], rtol=1e-6)
        start = stop


# --- saving -----------------------------------------------------------------------------------------------------


def sines(x):
    return np.stack([np.sin(k * x) for k in range(1, 9)], axis=1)


SAVED = {
    "gaussian": sbl.Gaussian(3.0),
    "centers": sbl.Gaussian(3.0, centers=np.linspace(-9, 9, 12)),
    "thin plate": sbl.ThinPlateSpline(3.0),
    "linear spline": sbl.LinearSpline(2.0),
    "polynomial": sbl.Bias() + sbl.Linear() + sbl.Polynomial(3),
    "haar": sbl.Wavelet("haar", level=3),
    "sym8": sbl.Wavelet("sym8"),
    "union": sbl.Wavelet("haar") + sbl.ThinPlateSpline(3.0) + sbl.Bias(),
    "custom": sbl.Custom(sines, name="sines") + sbl.Bias(),
}


def assert_same_after_loading(fit, path, new, **options):
    loaded = sbl.MapFit.load(fit.save(path), **options)
    for field in dataclasses.fields(fit):
        if field.name not in ("dictionary", "_design"):
            np.testing.assert_equal(getattr(loaded, field.name), getattr(fit, field.name), err_msg=field.name)
    assert repr(loaded) == repr(fit)
    assert loaded.labels == fit.labels
    for where in (None, new):
        np.testing.assert_array_equal(loaded.predict(where), fit.predict(where))


@pytest.mark.parametrize("name", SAVED)
def test_saved_fit_comes_back_the_same(name, tmp_path):
    data = datasets.sinc(32)
    fit = quiet_fit(data.x, data.t, SAVED[name], noise_prior=(1e-3, 1e-4))
    options = {"dictionary": SAVED[name]} if name == "custom" else {}
    assert_same_after_loading(fit, tmp_path / "fit.npz", data.x[3:9] + 0.01, **options)


def test_saved_columns_come_back_with_their_labels(tmp_path):
    Phi, t = small_columns()
    labels = [f"gene {k}" for k in range(12)]
    fit = sbl.fit_map(None, t, sbl.Columns(Phi, labels=labels))
    assert_same_after_loading(fit, tmp_path / "fit", Phi[:5] + 1.0)
    assert (tmp_path / "fit.npz").exists()


def test_saved_widths_per_dimension(tmp_path):
    data = datasets.sinc_2d(40)
    fit = sbl.fit_map(data.x, data.t, sbl.Gaussian([2.0, 5.0]) + sbl.Polynomial(2))
    assert_same_after_loading(fit, tmp_path / "fit.npz", data.x[:5] + 0.1)


@pytest.mark.parametrize("objective", OBJECTIVES.values(), ids=OBJECTIVES)
def test_saved_priors_and_settings(objective, tmp_path):
    fit, Phi, _ = fit_small(small_columns, objective, NOISES["noise known"], (1e-3, 1e4))
    assert_same_after_loading(fit, tmp_path / "fit.npz", Phi[:5])


def test_saved_numpy_scalars(tmp_path):
    """What a user computed, such as a seed out of an array, is as good as a Python number."""
    Phi, t = small_columns()
    prior = sbl.Smoothness(np.int64(2), low=np.float32(1e-3))
    fit = sbl.fit_map(None, t, sbl.Columns(Phi), prior=prior, seed=np.int64(3), noise_variance=np.float32(0.1))
    assert_same_after_loading(fit, tmp_path / "fit.npz", Phi[:5])


def test_custom_dictionary_must_be_given_again(tmp_path):
    data = datasets.sinc(32)
    path = quiet_fit(data.x, data.t, SAVED["custom"]).save(tmp_path / "fit.npz")
    with pytest.raises(ValueError, match="dictionary="):
        sbl.MapFit.load(path)


def test_file_needs_no_pickle(tmp_path):
    path = fit_of(("columns", "bic", "greedy", "fast")).save(tmp_path / "fit.npz")
    with np.load(path, allow_pickle=False) as stored:
        assert all(stored[name].dtype != object for name in stored.files)


@pytest.mark.parametrize(("owner", "name"), [(np, "savez_compressed"), (os, "replace"), (os, "fsync")])
def test_interrupted_save_leaves_the_old_file(owner, name, tmp_path, monkeypatch):
    old = fit_of(("columns", "bic", "greedy", "fast"))
    path = old.save(tmp_path / "fit.npz")

    def interrupt(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(owner, name, interrupt)
    with pytest.raises(KeyboardInterrupt):
        fit_of(("columns", "ric", "greedy", "fast")).save(path)
    monkeypatch.undo()
    assert os.listdir(tmp_path) == ["fit.npz"]
    np.testing.assert_array_equal(sbl.MapFit.load(path).alpha, old.alpha)


def test_saved_file_has_the_usual_permissions(tmp_path):
    """As any file that the user creates: readable by whom the umask allows."""
    path = fit_of(("columns", "bic", "greedy", "fast")).save(tmp_path / "fit.npz")
    (tmp_path / "other").touch()
    assert path.stat().st_mode == (tmp_path / "other").stat().st_mode


def with_members(path, **members):
    """The file with members changed, added, or (None) left out."""
    with np.load(path, allow_pickle=False) as stored:
        arrays = {**dict(stored), **members}
    np.savez_compressed(path, **{name: value for name, value in arrays.items() if value is not None})


def with_meta(path, **changes):
    with np.load(path, allow_pickle=False) as stored:
        meta = json.loads(str(stored["meta"]))
    with_members(path, meta=np.array(json.dumps({**meta, **changes})))


def damage(path, how):
    content = path.read_bytes()
    middle = len(content) // 2
    path.write_bytes(how(content, middle))


DAMAGED = {
    "empty": lambda path: damage(path, lambda *_: b""),
    "text": lambda path: damage(path, lambda *_: b"x,t\n1,2\n" * 99),
    "half": lambda path: damage(path, lambda content, middle: content[:middle]),
    "hole": lambda path: damage(path, lambda content, middle: content[:99] + bytes(middle) + content[99 + middle :]),
    "foreign": lambda path: np.savez(path, t=np.zeros(3)),
    "one array": lambda path: damage(path, lambda *_: b"\x93NUMPY\x01\x00v\x00{'descr': '<f8'}"),
    "no json": lambda path: with_members(path, meta=np.array("{")),
    "deep json": lambda path: with_members(path, meta=np.array("[" * 100_000)),
    "json of a list": lambda path: with_members(path, meta=np.array("[1]")),
    "number for json": lambda path: with_members(path, meta=np.zeros(3)),
    "no format": lambda path: with_members(path, meta=np.array("{}")),
    "newer": lambda path: with_meta(path, format=99),
    "function for dictionary": lambda path: with_meta(
        path, dictionary=[{"type": "as_numbers", "config": {"values": [1.0], "name": "x"}}]
    ),
    "Custom": lambda path: with_meta(path, dictionary=[{"type": "Custom", "config": {"function": "f"}}]),
    "bad width": lambda path: with_meta(path, dictionary=[{"type": "Gaussian", "config": {"width": "wide"}}]),
    "strange argument": lambda path: with_meta(path, dictionary=[{"type": "Bias", "config": {"file": "x"}}]),
    "class for prior": lambda path: with_meta(path, prior={"type": "annotations", "config": {}}),
    "no prior": lambda path: with_meta(path, prior=None),
    "no settings": lambda path: with_meta(path, settings={}),
    "negative noise": lambda path: with_meta(path, noise_variance=-1.0),
    "scale of zero": lambda path: with_meta(path, scale=0.0),
    "no alpha": lambda path: with_members(path, alpha=None),
    "short alpha": lambda path: with_members(path, alpha=np.ones(1)),
    "NaN": lambda path: with_members(path, mean=np.full(3, np.nan)),
    "text for numbers": lambda path: with_members(path, mean=np.array(["a", "b", "c"])),
    "covariance": lambda path: with_members(path, _covariance=np.eye(2)),
    "strange columns": lambda path: with_members(path, active=np.array([0, 1, 99])),
    "negative columns": lambda path: with_members(path, active=np.array([-1, 0, 1])),
    "short t": lambda path: with_members(path, t=np.zeros(5)),
    "matrix for t": lambda path: with_members(path, t=np.zeros((4, 4))),
    "infinite centers": lambda path: with_members(path, part0_centers=np.full((3, 1), np.inf)),
}


@pytest.fixture(scope="module")
def three_bumps():
    """Three columns, all kept, so that what is put in their place can have the right length."""
    x = np.linspace(-3, 3, 16)
    centers = np.array([-2.0, 0.0, 2.0])
    t = np.exp(-((x[:, None] - centers) ** 2)) @ [3.0, -2.0, 4.0] + 0.01 * np.cos(40 * x)
    fit = sbl.fit_map(x, t, sbl.Gaussian(1.0, centers=centers), center=False)
    assert len(fit.active) == 3
    return fit


@pytest.mark.parametrize("change", DAMAGED.values(), ids=DAMAGED)
def test_damaged_and_foreign_files_are_one_clear_error(three_bumps, change, tmp_path):
    path = three_bumps.save(tmp_path / "fit.npz")
    change(path)
    with pytest.raises(ValueError, match=r"fit\.npz cannot be read as a fit that MapFit\.save wrote: ."):
        sbl.MapFit.load(path)


def test_missing_file_is_the_usual_error(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"none\.npz"):
        sbl.MapFit.load(tmp_path / "none.npz")


def test_strange_members_are_not_unpacked(three_bumps, tmp_path):
    """64 MB of zeros, which take 64 kB in the file."""
    path = three_bumps.save(tmp_path / "fit.npz")
    with_members(path, more=np.zeros(8_000_000))
    assert path.stat().st_size < 1_000_000
    tracemalloc.start()
    loaded = sbl.MapFit.load(path)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    np.testing.assert_array_equal(loaded.alpha, three_bumps.alpha)
    assert peak < 8_000_000


def test_another_class_of_the_same_name_is_not_taken_for_ours(tmp_path):
    """A kernel of the user's own, were it loaded as the package's Gaussian, would predict something else."""
    own = type(
        "Gaussian", (sbl.Gaussian,), {"values": lambda self, a, b: 1 / (1 + np.subtract.outer(a[:, 0], b[:, 0]) ** 2)}
    )
    data = datasets.sinc(32)
    fit = quiet_fit(data.x, data.t, own(3.0))
    with pytest.raises(ValueError, match="pass the same one as dictionary="):
        sbl.MapFit.load(fit.save(tmp_path / "fit.npz"))
    assert_same_after_loading(fit, tmp_path / "fit.npz", data.x[:4], dictionary=own(3.0))
    with pytest.raises(ValueError, match="the dictionary has 5 rows for 32 targets"):
        sbl.MapFit.load(tmp_path / "fit.npz", dictionary=sbl.Columns(np.eye(5)))
    prior = type("Flat", (sbl.Flat,), {})
    with pytest.raises(ValueError, match="cannot be stored: it must be one of"):
        quiet_fit(data.x, data.t, sbl.Gaussian(3.0), prior=prior()).save(tmp_path / "other.npz")
    assert os.listdir(tmp_path) == ["fit.npz"]


# --- what is shown ------------------------------------------------------------------------------------------------


@each_case
def test_repr_fits_on_a_screen(case):
    fit = fit_of(case)
    lines = repr(fit).splitlines()
    assert len(lines) <= 24
    assert max(map(len, lines)) <= 100
    strongest = np.argmax(np.abs(fit.mean) / np.sqrt(fit.variance)) if len(fit.active) else None
    assert strongest is None or fit.labels[strongest][:20] in repr(fit)
    assert fit.converged != ("NOT CONVERGED" in repr(fit))


def test_repr_of_a_large_union_fits_on_a_screen():
    data = datasets.sinc(32)
    dictionary = sum((sbl.Gaussian(width) for width in (1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0)), sbl.Wavelet("sym8"))
    fit = quiet_fit(data.x, data.t, dictionary, prior=sbl.Smoothness(0.123456789, low=1e-3, high=123456.789))
    lines = repr(fit).splitlines()
    assert len(lines) <= 24
    assert max(map(len, lines)) <= 100


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.fixture
def clock(monkeypatch):
    """Time that passes only when told to."""
    now = [100.0]
    monkeypatch.setattr(problem, "time", types.SimpleNamespace(perf_counter=lambda: now[0]))
    return now


@pytest.mark.parametrize(
    ("terminal", "wanted", "seconds", "shown"),
    [
        (True, True, 1.9, False),
        (True, True, 2.1, True),
        (True, False, 2.1, False),
        (False, True, 2.1, False),
    ],
    ids=["early", "shown", "not wanted", "no terminal"],
)
def test_progress_appears_late_and_only_on_a_terminal(terminal, wanted, seconds, shown, clock, monkeypatch):
    stream = Terminal() if terminal else io.StringIO()
    monkeypatch.setattr(sys, "stderr", stream)
    with problem.Progress(wanted) as bar:
        bar.update(1, -10.0)
        clock[0] += seconds
        bar.update(11, -3.6)
        time.sleep(0.15)  # tqdm writes ten times a second at most
        bar.update(12, -3.5)
    assert ("fit_map" in stream.getvalue()) == shown
    assert ("12 kept" in stream.getvalue()) == shown


def test_fit_prints_nothing_without_a_terminal(capfd, monkeypatch):
    ticks = iter(np.arange(0.0, 1e6, 3.0))  # every look at the clock takes three seconds
    monkeypatch.setattr(problem, "time", types.SimpleNamespace(perf_counter=lambda: next(ticks)))
    sbl.fit_map(*PROBLEMS["columns"]())
    captured = capfd.readouterr()
    assert captured.out == captured.err == ""
