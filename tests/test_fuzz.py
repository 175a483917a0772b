"""`fit_map` on problems that nobody would choose by hand, against dense formulas with seventy digits.

`make test` runs a few examples, always the same; `make test-fuzz` runs new ones for ten minutes. A failure prints its
`Recipe`, which is all that is needed to see it again.
"""

import os
import tempfile
import warnings
from functools import cached_property
from pathlib import Path

import numpy as np
import pytest
import reference
from hypothesis import assume, given
from recipes import fixed_point_priors, recipes, unitless_priors

import sbl_ppl as sbl

EPS = np.finfo(float).eps
TINY = 1e-300  # a tail of a kernel that underflows
ROUNDING = 100 * EPS  # a sum of some hundred terms
NEGLIGIBLE = 1e-6  # nats: a single move that gains less does not count, as `converged` promises
BOUNDS = (1e-10, 1e10)  # of alpha by default, relative to |column|^2 / spread(t)^2
DEPENDENT = 1e-9  # share of a column that the kept ones leave, below which the search need not see it
FLOOR = 1e-12  # of the noise variance, relative to spread(t)^2


long = pytest.mark.skipif(os.environ.get("FUZZ") != "long", reason="takes minutes: make test-fuzz runs it")
REFUSAL = "linearly dependent to working precision"  # all columns stay under some priors, whatever their bounds


def fit(recipe, data=None, **changes):
    """A fit that may stop early but must not warn of anything else; recipes are valid, so hardly any is refused."""
    x, t, dictionary = recipe.data() if data is None else data
    options = recipe.options(t, dictionary.bind(x).matrix())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", sbl.ConvergenceWarning)
        try:
            return sbl.fit_map(x, t, dictionary, **{**options, **changes})
        except ValueError as error:
            assume(REFUSAL not in str(error))
            raise


class Dense:
    """A fit seen from outside: its point in the user's units, and dense formulas there."""

    def __init__(self, recipe, **changes):
        self.recipe, self.fit = recipe, fit(recipe, **changes)
        self.n, self.spread2 = len(self.fit.t), recipe.spread(self.fit.t) ** 2
        self.design, self.sigma2 = self.fit.dictionary.bind(self.fit.x), self.fit.noise_variance
        self.Phi = self.design.matrix()
        self.alpha = np.full(self.Phi.shape[1], np.inf)
        self.alpha[self.fit.active] = self.fit.alpha
        # A wavelet basis alone has its own constant: then centring is a shift of t and no more.
        alone = len(recipe.parts) == 1 and recipe.parts[0][0] == "wavelet"
        self.intercept, self.shift = recipe.center and not alone, recipe.center * alone * np.mean(self.fit.t)
        self.columns = self.Phi - self.intercept * self.Phi.mean(axis=0)
        self.t = self.fit.t - recipe.center * np.mean(self.fit.t)
        self.norm2 = np.sum(self.columns**2, axis=0)
        self.norm2[self.norm2 <= np.maximum((10 * EPS) ** 2 * np.sum(self.Phi**2, axis=0), 1e-300)] = 0.0  # constants
        if self.distant:
            self.norm2 = self.norm2 * self.fit.problem().seen
        self.unit2 = np.where(self.norm2 > 0, self.norm2, 1.0) / self.spread2  # of alpha

    @cached_property
    def exact(self):
        return reference.ExactNormal(self.Phi, self.fit.t - self.shift, self.alpha, self.sigma2, self.intercept)

    # --- the prior, in the units of the search: unit columns, t of unit spread

    @property
    def distant(self):
        """Whether the data may hardly see a column, or do not at all: what its bounds are is the package's affair."""
        kernels = ("gaussian", "thin plate", "linear spline")
        return not self.norm2.all() or any(kind in kernels and rest[1] for kind, *rest in self.recipe.parts)

    @cached_property
    def bounds(self):
        """In the user's units."""
        prior = self.fit.prior
        if prior.low is not None:
            return tuple(np.full(len(self.alpha), bound) for bound in (prior.low, prior.high))
        if self.distant:
            problem = self.fit.problem()
            unit = problem.norms**2 / problem.scale**2
            return problem.prior.low * unit, problem.prior.high * unit
        return tuple(bound * self.unit2 for bound in BOUNDS)

    def log_prior(self, alpha, sigma2, columns=slice(None)):
        """Without its normaliser, per d log alpha or d alpha as the prior is maximised; `alpha` (..., columns)."""
        kind, *parameters = self.recipe.prior
        unit2, norm2 = self.unit2[columns], 1.0
        coordinate, settings = "log", {}
        if kind == "smoothness":
            c, coordinate, normalize = parameters
            settings["c"] = {"AIC": 1.0, "BIC": np.log(self.n) / 2, "RIC": np.log(self.n)}.get(c, c)
            norm2 = 1.0 if normalize else 1.0 / (unit2 * self.spread2)
        elif kind == "flat":
            (coordinate,) = parameters
        elif kind == "gamma":
            settings = {"a": self.fit.prior.a, "b": self.fit.prior.b * unit2}
        elif kind == "power":
            coordinate, settings["zeta"] = "alpha", parameters[0]
        alpha = alpha / unit2
        name = "flat" if kind == "jeffreys" else kind
        value = reference.log_prior_unnormalised(name, alpha, sigma2 / self.spread2, norm2, coordinate, **settings)
        return value + (coordinate == "log") * np.log(alpha)

    @cached_property
    def pruned(self):
        """What each column contributes when it is out: nothing, or where out means `high`, the value there."""
        if self.recipe.prior[0] in ("gamma", "power"):
            return self.log_prior(self.bounds[1], self.sigma2)
        return np.zeros(len(self.alpha))

    def log_noise(self, sigma2):
        if self.recipe.noise is not None:
            return 0.0
        g, h = (1e-4, 1e-4) if self.recipe.noise_prior is None else self.recipe.noise_prior
        return -(g + 1.0) * np.log(sigma2 / self.spread2) - h * self.spread2 / sigma2

    def log_priors(self, sigma2):
        active = self.fit.active
        return np.append(self.log_prior(self.fit.alpha, sigma2, active), np.delete(self.pruned, active))

    def objective(self):
        return float(self.exact.log_evidence()) + self.log_priors(self.sigma2).sum() + self.log_noise(self.sigma2)

    # --- what rounding makes of it

    @cached_property
    def scaled(self):
        """Norms and condition of the stacked [Phi / sigma; sqrt(A)] that least squares work on, columns made equal."""
        kept = self.fit.active
        stacked = np.vstack([self.columns[:, kept] / np.sqrt(self.sigma2), np.diag(np.sqrt(self.fit.alpha))])
        norms = np.linalg.norm(stacked, axis=0)
        if not len(kept):
            return norms, 1.0
        values = np.linalg.svd(stacked / norms, compute_uv=False)
        # centring leaves the rounding of the columns' means in them
        raw = np.linalg.norm(self.Phi[:, kept] / np.sqrt(self.sigma2), axis=0)
        return norms, values[0] / max(values[-1], 1e-300) * max(1.0, (raw / norms).max())

    @property
    def condition(self):
        return self.scaled[1]

    @property
    def loss(self):
        """Digits that a factorisation loses: Cholesky the square of the condition, QR, taken from 1e2 on, less."""
        return self.condition * min(self.condition, 100.0)

    @cached_property
    def sizes(self):
        """Largest terms of the exponent: of t and its parts in the residual, times the residual; and the exponent."""
        kept = self.fit.active
        mean = self.exact.weights_posterior()[0]
        residual = np.linalg.norm(self.t - self.columns[:, kept] @ mean)
        terms = np.linalg.norm(self.fit.t) + np.linalg.norm(self.Phi[:, kept], axis=0) @ np.abs(mean)
        misfit = residual**2 / self.sigma2 + mean @ (self.fit.alpha * mean)
        return terms / np.sqrt(self.sigma2), np.sqrt(misfit), np.linalg.norm(self.scaled[0] * mean)

    def rounding(self):
        """Of the objective: of its terms, of the pivots, of the residual, and of mu, which enters squared."""
        terms, misfit, weights = self.sizes
        value = self.n * (1.0 + abs(np.log(self.sigma2))) + np.abs(self.log_priors(self.sigma2)).sum()
        value += np.abs(self.fit.history).max()  # moves add to what was there
        value += abs(self.log_noise(self.sigma2)) + len(self.fit.active) * self.loss + (terms + misfit) * misfit
        return ROUNDING * value + (ROUNDING * (terms + weights + self.condition * misfit)) ** 2


# --- what every fit holds ----------------------------------------------------------------------------------------


@given(recipes())
def test_everything_is_finite_and_of_its_shape(recipe):
    found = fit(recipe)
    kept, n, x_new = len(found.active), recipe.n, recipe.new_inputs(found.x, found.dictionary)
    assert found.alpha.shape == found.mean.shape == found.variance.shape == (kept,)
    assert found.covariance.shape == (kept, kept)
    assert found.history.shape == (found.n_steps,)
    assert (np.diff(found.active) > 0).all()
    assert (found.alpha > 0).all()
    assert found.design.matrix()[:, found.active].any(axis=0).all(), "a column of zeros was kept"
    assert found.noise_variance > 0
    assert len(found.labels) == kept
    for where, size in ((None, n), (x_new, 5)):
        mean, sd = found.predict(where)
        assert mean.shape == sd.shape == (size,)
        assert (sd > 0).all()
        assert np.isfinite([mean, sd, found.curve(where), sum(found.contributions(where).values())]).all()
    for name in ("alpha", "mean", "covariance", "noise_variance", "log_evidence", "log_posterior", "history"):
        assert np.isfinite(getattr(found, name)).all(), name
    assert found.leave_one_out().shape == (n,)
    assert not np.isnan(found.leave_one_out()).any()
    assert recipe.noise is None or found.noise_variance == pytest.approx((recipe.noise * recipe.spread(found.t)) ** 2)
    assert repr(found).startswith("MapFit")


@given(recipes())
def test_objective_never_falls_and_ends_where_it_says(recipe):
    dense = Dense(recipe)
    history = dense.fit.history
    # a column that would end at a given `high` and brings less than that there is as good as out
    fall = NEGLIGIBLE if recipe.bounds else 0.0
    assert np.diff(history).min(initial=0.0) >= -fall - 1e-9 * max(1.0, np.abs(history).max())
    assert history[-1] == pytest.approx(dense.objective(), rel=0, abs=dense.rounding())


@given(recipes(methods=("em", "mackay"), priors=fixed_point_priors()))
def test_fixed_points_end_where_they_say(recipe):
    """EM never falls, but for rounding; MacKay's updates may."""
    dense = Dense(recipe, max_steps=300)
    history = dense.fit.history
    if recipe.method == "em":
        assert np.diff(history).min(initial=0.0) >= -1e-9 * max(1.0, np.abs(history).max()) - dense.rounding()
    assert history[-1] == pytest.approx(dense.objective(), rel=0, abs=dense.rounding())


@given(recipes())
def test_evidence_and_predictions_equal_dense_ones(recipe):
    dense = Dense(recipe)
    found, (norms, condition) = dense.fit, dense.scaled
    assert found.log_evidence == pytest.approx(float(dense.exact.log_evidence()), rel=0, abs=dense.rounding())
    terms, misfit, weights = dense.sizes
    # errors of the weights in units in which the stacked columns have unit norm
    mean_error = ROUNDING * (dense.loss * weights + condition * (terms + condition * misfit))
    covariance_error = ROUNDING * dense.loss * condition**2
    mean, Sigma = dense.exact.weights_posterior()
    assert np.abs((found.mean - mean) * norms).max(initial=0.0) <= mean_error
    assert np.abs((found.covariance - Sigma) * np.outer(norms, norms)).max(initial=0.0) <= covariance_error
    x_new = recipe.new_inputs(found.x, found.dictionary)
    for where in (None, x_new):
        Phi = dense.Phi if where is None else dense.design.evaluate(found.inputs(where), np.arange(len(dense.alpha)))
        mean, variance = dense.exact.predict(Phi)
        size = np.linalg.norm((Phi - dense.intercept * dense.Phi.mean(axis=0))[:, found.active] / norms, axis=1)
        parts = np.abs(Phi[:, found.active]) @ np.abs(found.mean) + recipe.center * np.abs(found.t).max()
        atol = size * mean_error + ROUNDING * parts + TINY
        assert (np.abs(found.predict(where, augment=False)[0] - mean - dense.shift) <= atol).all()
        assert (np.abs(found.curve(where) - mean - dense.shift) <= atol).all()
        for noise in (0.0, dense.sigma2):
            error = np.abs(found.predict(where, noise=noise > 0, augment=False)[1] ** 2 - variance - noise)
            assert (error <= size**2 * covariance_error + ROUNDING * (variance + noise) + TINY).all()


# --- what a converged fit promises -------------------------------------------------------------------------------


def likelihood_gain(new, old, s, q2):
    """What moving one precision changes in the log evidence, without cancellation; inf means out."""
    with np.errstate(invalid="ignore"):
        out_new, out_old = np.isinf(new), np.isinf(old)
        a, b = np.where(out_new, 1.0, new), np.where(out_old, 1.0, old)
        inside = q2 * (b - a) / ((a + s) * (b + s)) - np.log1p(s / a) + np.log1p(s / b)
    alone = reference.component_log_contribution
    return np.select([out_new & out_old, out_new, out_old], [0.0, -alone(b, s, q2), alone(a, s, q2)], 0.5 * inside)


def best_single_moves(dense, s, q2):
    """What the best precision of each column, or none, gains over the present one: a grid, refined three times."""
    old, columns = dense.alpha, np.arange(len(dense.alpha))
    kept = np.isfinite(old)
    present = np.where(kept, dense.log_prior(np.where(kept, old, 1.0), dense.sigma2), dense.pruned)

    def gain(new):
        return likelihood_gain(new, old, s, q2) + dense.log_prior(new, dense.sigma2) - present

    low, high = (np.log(bound) for bound in dense.bounds)
    first, last = low.copy(), high.copy()
    for _ in range(4):
        grid = first + (last - first) * np.linspace(0.0, 1.0, 201)[:, None]
        values = gain(np.exp(grid))
        best = values.argmax(axis=0)
        step = (last - first) / 200
        middle = grid[best, columns]
        first, last = np.maximum(middle - step, low), np.minimum(middle + step, high)
    deletion = likelihood_gain(np.full_like(old, np.inf), old, s, q2) + dense.pruned - present
    return np.maximum(values.max(axis=0), deletion)


@long
@given(recipes())
def test_no_single_move_gains_at_convergence(recipe):
    """No addition, deletion, re-estimation, or change of the noise.

    Columns of which the kept ones leave less than DEPENDENT are left out. The gain of a move is known to the search as
    well as s and q are: s to the rounding of sigma^-2 |phi|^2 times the digits that the factorisation loses.
    """
    dense = Dense(recipe)
    if not dense.fit.converged:
        return
    s, q2 = dense.exact.small_s_q2()
    share = s * dense.sigma2 / np.maximum(dense.norm2, 1e-300)
    seen = (share > DEPENDENT) & (dense.norm2 > 0)
    s, q2, share = (np.where(seen, value, 1.0) for value in (s, q2, share))
    terms, misfit, _ = dense.sizes
    error = dense.loss / share * (1.0 + q2 / s) + np.sqrt(q2 / s / share) * (terms + dense.condition * misfit)
    gains = np.where(seen, best_single_moves(dense, s, q2), 0.0)
    excess = gains - 1.1 * NEGLIGIBLE - ROUNDING * error - dense.rounding()
    assert excess.max(initial=-1.0) <= 0.0, f"column {excess.argmax()} gains {gains[excess.argmax()]:.3g}"
    if recipe.noise is None:
        evidence, rest = (
            dense.exact.log_evidence(),
            dense.log_priors(dense.sigma2).sum() + dense.log_noise(dense.sigma2),
        )
        for step in (-3.0, -0.3, -0.03, -1e-3, 1e-3, 0.03, 0.3, 3.0):
            sigma2 = dense.sigma2 * np.exp(step)
            if sigma2 < FLOOR * dense.spread2:
                continue
            gain = float(dense.exact.log_evidence(sigma2) - evidence)
            gain += dense.log_priors(sigma2).sum() + dense.log_noise(sigma2) - rest
            assert gain <= NEGLIGIBLE + dense.rounding(), f"noise variance times {np.exp(step):.3g} gains {gain:.3g}"


# --- the same again ----------------------------------------------------------------------------------------------


def assert_same(one, other):
    """Bit for bit."""
    for name in ("active", "alpha", "mean", "covariance", "history", "t"):
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name), err_msg=name)
    names = ("noise_variance", "log_evidence", "log_posterior", "converged", "reason", "n_steps", "offset", "scale")
    assert [getattr(one, name) for name in names] == [getattr(other, name) for name in names]
    assert one.settings == other.settings
    assert one.prior == other.prior


@long
@given(recipes())
def test_same_call_and_saved_fit_are_the_same(recipe):
    found = fit(recipe)
    assert_same(fit(recipe), found)
    with tempfile.TemporaryDirectory() as folder:
        loaded = sbl.MapFit.load(found.save(Path(folder) / "fit"))
    assert_same(loaded, found)
    x_new = recipe.new_inputs(found.x, found.dictionary)
    for where in (None, x_new):
        np.testing.assert_array_equal(loaded.predict(where), found.predict(where))
        for name, curve in found.contributions(where).items():
            np.testing.assert_array_equal(loaded.contributions(where)[name], curve)
    np.testing.assert_array_equal(loaded.leave_one_out(), found.leave_one_out())


# --- leaving one out ---------------------------------------------------------------------------------------------


@long
@given(recipes())
def test_leave_one_out_equals_leaving_one_out(recipe):
    dense = Dense(recipe)
    found, terms = dense.fit, dense.fit.leave_one_out()
    for n in np.random.default_rng(recipe.seed).choice(recipe.n, 3):
        rest = np.delete(np.arange(recipe.n), n)
        others = reference.ExactNormal(
            dense.Phi[rest], (found.t - dense.shift)[rest], dense.alpha, dense.sigma2, dense.intercept
        )
        (mean,), (variance,) = others.predict(dense.Phi[[n]])
        variance += dense.sigma2
        z2 = (found.t[n] - dense.shift - mean) ** 2 / variance
        expected = -0.5 * (np.log(2 * np.pi * variance) + z2)
        # the share of the noise in what is predicted, and z, are differences of terms of size one and of `sizes`
        share = dense.sigma2 / variance
        dz = ROUNDING * sum(dense.sizes) * dense.condition / np.sqrt(share)
        error = ROUNDING * dense.loss / share * (1.0 + z2) + np.sqrt(z2) * dz + dz**2
        if error < 0.1:
            assert terms[n] == pytest.approx(expected, rel=ROUNDING, abs=error)


# --- invariance --------------------------------------------------------------------------------------------------


def changed(recipe, order, factors, unit):
    """The fit with the columns in another order and in other units, with other signs, and t in another unit."""
    _, t, dictionary = recipe.data()
    options = recipe.options(t, dictionary.matrix)
    if recipe.noise is not None:
        options["noise_variance"] *= unit**2
    if recipe.noise_prior is not None:
        options["noise_prior"] = options["noise_prior"][0], options["noise_prior"][1] * unit**2
    return fit(recipe, (None, unit * t, sbl.Columns(dictionary.matrix[:, order] * factors)), **options)


def unitless(**fixed):
    """Columns and priors without units of their own, and targets with one."""
    strategy = recipes(only_columns=True, priors=unitless_priors(), bounds=None, **fixed)
    return strategy.filter(lambda recipe: recipe.data()[1].any())


@long
@given(unitless())
def test_powers_of_two_as_units_of_columns_change_no_bit(recipe):
    found, rng = fit(recipe), np.random.default_rng(recipe.seed + 2)
    factors = 2.0 ** rng.integers(-9, 10, found.n_columns)
    same = changed(recipe, np.arange(found.n_columns), factors, 1.0)
    np.testing.assert_array_equal(same.active, found.active)
    np.testing.assert_array_equal(same.alpha, found.alpha * factors[found.active] ** 2)
    np.testing.assert_array_equal(same.mean, found.mean / factors[found.active])
    np.testing.assert_array_equal(same.history, found.history)
    assert same.noise_variance == found.noise_variance


@long
@given(unitless(selection="greedy"))
def test_order_signs_and_units_matter_no_more_than_rounding(recipe):
    """The same maximum again, unless the rounding of the columns alone leads to others: equal gains, or nearly."""
    dense, rng = Dense(recipe), np.random.default_rng(recipe.seed + 2)
    m, unit = len(dense.alpha), float(10.0 ** rng.uniform(-3, 3))
    height = dense.fit.history[-1]

    def differs(order, factors, unit):
        found = changed(recipe, order, factors, unit).history[-1] + (recipe.n - dense.intercept) * np.log(unit)
        return abs(found - height) > 10 * NEGLIGIBLE + dense.rounding()

    signs = rng.choice([-1.0, 1.0], m)
    if differs(rng.permutation(m), signs, 1.0) or differs(np.arange(m), 10.0 ** rng.uniform(-3, 3, m), unit):
        nearly = 1.0 + EPS * rng.integers(-4, 5, (20, *dense.Phi.shape))
        assert any(differs(np.arange(m), factors, 1.0) for factors in nearly), "another maximum"
