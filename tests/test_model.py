"""The NumPyro model: its sites, its log density against dense formulas in the user's units, and its ways of being run.

What it samples is compared with quadrature in test_quadrature.py; here that is done for the two forms in which the
weights are a site, and for a noise prior without an integral.
"""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import pytest
import quadrature
import reference
from numpyro import handlers
from numpyro.infer import NUTS, Predictive
from numpyro.infer.util import log_density
from scipy import special
from test_quadrature import sampler, standard_error, z_scores

import sbl_ppl as sbl
from sbl_ppl.distributions import GammaPrecision, Orthonormal, PowerPrecision, SmoothnessPrecision
from sbl_ppl.model import model, precision

N, M = 9, 3
BOUNDS = {"low": 1e-3, "high": 1e4}
NOISE_PRIOR = (2.0, 1.5)
# The class, its arguments, and the same for the dense formula.
PRIORS = {
    "flat": (sbl.Flat, {}, "flat", {"measure": "alpha"}),
    "flat in log": (sbl.Flat, {"measure": "log"}, "flat", {"measure": "log"}),
    "Jeffreys": (sbl.Jeffreys, {}, "flat", {"measure": "log"}),
    "BIC": (sbl.Smoothness, {"c": "BIC"}, "smoothness", {"c": np.log(N) / 2, "measure": "log"}),
    "RIC per d alpha": (
        sbl.Smoothness,
        {"c": "RIC", "measure": "alpha"},
        "smoothness",
        {"c": np.log(N), "measure": "alpha"},
    ),
    "raw": (sbl.Smoothness, {"c": 2.5, "normalize": False}, "smoothness", {"c": 2.5, "measure": "log"}),
    "no smoothness": (sbl.Smoothness, {"c": "None"}, "flat", {"measure": "log"}),
    "gamma": (sbl.Gamma, {"a": 0.5, "b": 0.2}, "gamma", {"a": 0.5, "b": 0.2}),
    "gamma default": (sbl.Gamma, {}, "gamma", {"a": 1e-4, "b": 1e-4}),
    "power": (sbl.Power, {"zeta": -0.5}, "power", {"zeta": -0.5}),
}
each_prior = pytest.mark.parametrize("prior", PRIORS)


@pytest.fixture
def x64():
    with jax.enable_x64(True):
        yield


def problem():
    rng = np.random.default_rng(2)
    design = rng.normal(size=(N, M)) * [0.5, 1.0, 4.0]
    alpha, noise_variance = np.exp(rng.normal(size=M)), 0.7
    t = design @ (rng.normal(size=M) / np.sqrt(alpha)) + rng.normal(size=N)
    return design, t, alpha, noise_variance


def prior_of(name, **bounds):
    family, arguments, _, _ = PRIORS[name]
    return family(**arguments, **bounds)


def value_of(sites, *arguments, **settings):
    """Log joint density at constrained values of the sites, per d alpha and d noise_variance; all sites compiled."""
    density = jax.jit(lambda sites: log_density(model, arguments, settings, sites)[0])
    return float(density(jax.tree.map(jnp.asarray, sites)))


def dense_prior(name, design, alpha, noise_variance, bounds):
    """Log density of every alpha per d alpha; bounds is a pair of numbers for each column."""
    _, arguments, kind, parameters = PRIORS[name]
    values = []
    for phi, a, (low, high) in zip(design.T, alpha, bounds, strict=True):
        scale = phi @ phi if arguments.get("normalize", True) else 1.0
        values.append(reference.log_prior(kind, a, noise_variance, scale, low, high, **parameters))
    return np.array(values)


def sites_of(*arguments, seed=0, **settings):
    """Shapes of the sites of a run, without the observed one, and of what the model returns."""

    def run():
        with handlers.seed(rng_seed=seed), handlers.trace() as trace:
            result = model(*arguments, **settings)
        return {name: site["value"] for name, site in trace.items() if not site.get("is_observed")}, result

    return jax.tree.map(lambda leaf: leaf.shape, jax.eval_shape(run), is_leaf=lambda leaf: hasattr(leaf, "shape"))


class TestSites:
    @pytest.mark.parametrize(
        ("settings", "expected"),
        [
            ({}, {"noise_variance": (), "alpha": (M,)}),
            ({"noise_variance": 0.3}, {"alpha": (M,)}),
            ({"fixed_alpha": [np.nan, 1e-4, np.nan]}, {"noise_variance": (), "alpha": (2,)}),
            ({"fixed_alpha": [1.0, 2.0, np.inf]}, {"noise_variance": (), "alpha": (0,)}),
            ({"weights": "centered"}, {"noise_variance": (), "alpha": (M,), "weights": (M,)}),
            (
                {"weights": "noncentered"},
                {"noise_variance": (), "alpha": (M,), "weights_base": (M,), "weights": (M,)},
            ),
            ({"prefix": "trend"}, {"trend_noise_variance": (), "trend_alpha": (M,)}),
            (
                {"prefix": "trend", "weights": "noncentered", "noise_variance": 1.0},
                {"trend_alpha": (M,), "trend_weights_base": (M,), "trend_weights": (M,)},
            ),
        ],
        ids=["plain", "known noise", "one fixed", "all fixed", "centered", "noncentered", "prefix", "prefix weights"],
    )
    def test_names_and_shapes(self, settings, expected, x64):
        design, t, _, _ = problem()
        shapes, (alpha, noise_variance) = sites_of(design, t, noise_prior=NOISE_PRIOR, **settings)
        assert shapes == expected
        assert (alpha, noise_variance) == ((M,), ())

    def test_orthonormal_has_one_precision_an_observation(self, x64):
        shapes, _ = sites_of(Orthonormal(N), problem()[1], noise_prior=NOISE_PRIOR)
        assert shapes == {"noise_variance": (), "alpha": (N,)}

    def test_observed_site_holds_t(self, x64):
        design, t, _, _ = problem()
        with handlers.seed(rng_seed=0), handlers.trace() as trace:
            model(design, t, noise_prior=NOISE_PRIOR, prefix="trend")
        assert trace["trend_t"]["is_observed"]
        np.testing.assert_array_equal(trace["trend_t"]["value"], t)

    def test_two_models_in_one_program(self, x64):
        design, t, alpha, noise_variance = problem()
        settings = {"prior": prior_of("BIC", **BOUNDS), "noise_prior": NOISE_PRIOR}

        def both(prefixes):
            for prefix, columns in zip(prefixes, (design, design[:, :1]), strict=True):
                model(columns, t, prefix=prefix, **settings)

        values = {
            "a_alpha": jnp.asarray(alpha),
            "a_noise_variance": noise_variance,
            "b_alpha": jnp.asarray(alpha[:1]),
            "b_noise_variance": 0.3,
        }
        together = log_density(both, (("a", "b"),), {}, values)[0]
        apart = value_of({"alpha": alpha, "noise_variance": noise_variance}, design, t, **settings)
        apart += value_of({"alpha": alpha[:1], "noise_variance": 0.3}, design[:, :1], t, **settings)
        assert together == pytest.approx(apart, rel=1e-12)
        with pytest.raises(AssertionError, match="unique"):
            log_density(both, (("a", "a"),), {}, values)

    @pytest.mark.parametrize(
        ("prior", "family"),
        [("BIC", SmoothnessPrecision), ("gamma", GammaPrecision), ("power", PowerPrecision), ("flat", PowerPrecision)],
    )
    def test_precision_is_the_distribution_of_the_prior(self, prior, family, x64):
        design, _, alpha, noise_variance = problem()
        distribution = precision(prior_of(prior, **BOUNDS), noise_variance, (design**2).sum(0), N)
        assert isinstance(getattr(distribution, "base_dist", distribution), family)
        expected = dense_prior(prior, design, alpha, noise_variance, [BOUNDS.values()] * M)
        np.testing.assert_allclose(distribution.log_prob(alpha), expected, rtol=1e-10)

    @each_prior
    @pytest.mark.parametrize("bounds", [BOUNDS, {"high": 1e4}, {}], ids=["both bounds", "one bound", "no bounds"])
    def test_norms_give_precisions_their_batch_shape(self, prior, bounds, x64):
        """`to_event` adds up one term a column; the quantiles are those of one column alone."""
        design, _, alpha, noise_variance = problem()
        norm2, chosen = (design**2).sum(0), prior_of(prior, **bounds)
        one = precision(chosen, noise_variance, norm2[0], N)
        assert one.batch_shape == ()
        each = precision(chosen, noise_variance, norm2, N)
        assert each.batch_shape == (M,)
        assert precision(chosen, np.full((2, 1), noise_variance), norm2, N).batch_shape == (2, M)
        assert each.sample(jax.random.key(0), (4,)).shape == (4, M)
        assert each.to_event(1).log_prob(alpha) == pytest.approx(float(each.log_prob(alpha).sum()), rel=1e-12)
        assert each.log_prob(alpha[0]).shape == each.cdf(alpha[0]).shape == each.icdf(0.3).shape == (M,)
        for name, argument in (("log_prob", alpha[0]), ("cdf", alpha[0]), ("icdf", 0.3)):
            expected = getattr(one, name)(argument)
            np.testing.assert_allclose(getattr(each, name)(argument)[0], expected, rtol=1e-10)
            np.testing.assert_allclose(getattr(each.expand((2, M)), name)(argument)[1, 0], expected, rtol=1e-10)

    @pytest.mark.parametrize("prior", [sbl.Gamma(0.5, 0.2, **BOUNDS), sbl.Smoothness(normalize=False, **BOUNDS)])
    def test_one_normaliser_serves_columns_that_share_a_prior(self, prior, x64):
        """256 exponentials make a normaliser, and no array in the program is as large as for each column one."""
        many = 1000
        program = jax.make_jaxpr(lambda a: precision(prior, 0.1, np.ones(many), N).log_prob(a))(np.ones(many))
        assert "1000" in str(program)
        assert not any(f"[{many},16" in line for line in str(program).splitlines())


class TestLogDensity:
    @each_prior
    @pytest.mark.parametrize("bounds", [BOUNDS, {}], ids=["given bounds", "default bounds"])
    def test_equals_the_dense_formula(self, prior, bounds, x64):
        """Default bounds are 1e-10 and 1e10 times |phi|^2 over the mean square of t."""
        design, t, alpha, noise_variance = problem()
        unit = (design**2).sum(0) / np.mean(t**2)
        limits = [(1e-10 * u, 1e10 * u) for u in unit] if not bounds else [bounds.values()] * M
        expected = (
            dense_prior(prior, design, alpha, noise_variance, limits).sum()
            + reference.log_evidence(design, t, alpha, noise_variance)
            + reference.log_inverse_gamma(noise_variance, *NOISE_PRIOR)
        )
        sites = {"alpha": alpha, "noise_variance": noise_variance}
        settings = {"prior": prior_of(prior, **bounds), "noise_prior": NOISE_PRIOR}
        assert value_of(sites, design, t, **settings) == pytest.approx(expected, rel=1e-10)

    @pytest.mark.parametrize("prior", ["BIC", "gamma", "flat"])
    def test_data_may_be_traced(self, prior, x64):
        """Bounds, norms and the scale of t are then traced too; uncompiled, arguments are validated as well."""
        design, t, alpha, noise_variance = problem()
        sites = {"alpha": jnp.asarray(alpha), "noise_variance": jnp.asarray(noise_variance)}

        def density(design, t):
            return log_density(model, (design, t), {"prior": prior_of(prior)}, sites)[0]

        assert jax.jit(density)(design, t) == pytest.approx(float(density(design, t)), rel=1e-12)

    def test_defaults(self, x64):
        """Smoothness("BIC"), and an inverse gamma of (1e-4, 1e-4 times the mean square of t)."""
        design, t, alpha, noise_variance = problem()
        sites = {"alpha": alpha, "noise_variance": noise_variance}
        explicit = {"prior": sbl.Smoothness("BIC"), "noise_prior": (1e-4, 1e-4 * np.mean(t**2))}
        assert value_of(sites, design, t) == pytest.approx(value_of(sites, design, t, **explicit), rel=1e-12)

    @pytest.mark.parametrize("prior", ["flat", "Jeffreys", "BIC", "RIC per d alpha", "power"])
    def test_defaults_do_not_depend_on_units(self, prior, x64):
        """Columns 7 times and t 1e3 times as large: alpha is 49e-6 times what it was, and the rest is Jacobian."""
        design, t, alpha, noise_variance = problem()
        before = value_of({"alpha": alpha, "noise_variance": noise_variance}, design, t, prior=prior_of(prior))
        sites = {"alpha": alpha * 49e-6, "noise_variance": noise_variance * 1e6}
        after = value_of(sites, 7.0 * design, 1e3 * t, prior=prior_of(prior))
        jacobian = M * np.log(49e-6) + np.log(1e6) + N * np.log(1e3)
        assert after + jacobian == pytest.approx(before, rel=1e-10)

    def test_given_bounds_are_in_the_units_of_the_user(self, x64):
        design, t, _, _ = problem()
        with handlers.seed(rng_seed=0), handlers.trace() as trace:
            model(7.0 * design, 1e3 * t, sbl.Jeffreys(**BOUNDS), noise_prior=NOISE_PRIOR)
        support = trace["alpha"]["fn"].support.base_constraint
        np.testing.assert_allclose([np.max(support.lower_bound), np.min(support.upper_bound)], [*BOUNDS.values()])

    def test_known_noise_variance(self, x64):
        design, t, alpha, noise_variance = problem()
        value = value_of({"alpha": alpha}, design, t, prior_of("raw", **BOUNDS), noise_variance)
        expected = reference.log_evidence(design, t, alpha, noise_variance)
        expected += dense_prior("raw", design, alpha, noise_variance, [BOUNDS.values()] * M).sum()
        assert value == pytest.approx(expected, rel=1e-10)

    @pytest.mark.parametrize("noise_prior", [(0.0, 0.0), (0, 0), (1.5, 0.0), (0.0, 2.0)], ids=str)
    def test_noise_prior_without_an_integral(self, noise_prior, x64):
        design, t, alpha, noise_variance = problem()
        g, h = noise_prior
        prior = prior_of("BIC", **BOUNDS)
        sites = {"alpha": alpha, "noise_variance": noise_variance}
        value = value_of(sites, design, t, prior, noise_prior=noise_prior)
        rest = value_of({"alpha": alpha}, design, t, prior, noise_variance)
        assert value - rest == pytest.approx(-(g + 1.0) * np.log(noise_variance) - h / noise_variance, rel=1e-10)

    def test_fixed_precisions(self, x64):
        """They count in the likelihood, not in the prior; inf is an absent column."""
        design, t, alpha, noise_variance = problem()
        prior = prior_of("BIC", **BOUNDS)
        for fixed in (1e-6, np.inf):
            whole = np.array([alpha[0], fixed, alpha[2]])
            value = value_of(
                {"alpha": alpha[[0, 2]]}, design, t, prior, noise_variance, fixed_alpha=[np.nan, fixed, np.nan]
            )
            free = dense_prior("BIC", design[:, [0, 2]], alpha[[0, 2]], noise_variance, [BOUNDS.values()] * 2)
            # C has the condition number 1e7 where alpha = 1e-6
            expected = free.sum() + reference.log_evidence(design, t, whole, noise_variance)
            assert value == pytest.approx(expected, rel=1e-8)

    def test_fixed_precisions_are_returned(self, x64):
        design, t, _, _ = problem()
        with handlers.seed(rng_seed=0), handlers.substitute(data={"alpha": jnp.asarray([2.0, 3.0])}):
            alpha, _ = model(design, t, sbl.Jeffreys(), noise_variance=0.3, fixed_alpha=[np.nan, 1e-6, np.nan])
        np.testing.assert_array_equal(alpha, [2.0, 1e-6, 3.0])

    @pytest.mark.parametrize("weights", ["centered", "noncentered"])
    def test_weights_as_a_site(self, weights, x64):
        design, t, alpha, noise_variance = problem()
        w = np.array([0.3, -1.0, 0.2])
        site = {"weights": w} if weights == "centered" else {"weights_base": w * np.sqrt(alpha)}
        value = value_of(
            {"alpha": alpha, **site}, design, t, prior_of("BIC", **BOUNDS), noise_variance, None, None, weights
        )
        expected = dense_prior("BIC", design, alpha, noise_variance, [BOUNDS.values()] * M).sum()
        expected += -0.5 * (alpha @ w**2 + M * np.log(2 * np.pi))
        expected += 0.5 * np.log(alpha).sum() if weights == "centered" else 0.0  # the base is per d base
        misfit = np.sum((t - design @ w) ** 2) / noise_variance
        expected -= 0.5 * (misfit + N * np.log(2 * np.pi * noise_variance))
        assert value == pytest.approx(expected, rel=1e-10)

    def test_orthonormal_equals_the_matrix(self, x64):
        Phi = np.linalg.qr(np.random.default_rng(0).normal(size=(N, N)))[0]
        t, alpha = problem()[1], np.exp(np.random.default_rng(1).normal(size=N))
        sites = {"alpha": alpha, "noise_variance": 0.4}
        for prior in (prior_of("BIC"), prior_of("raw", **BOUNDS), prior_of("gamma")):
            matrix, diagonal = (value_of(sites, *data, prior) for data in ((Phi, t), (Orthonormal(N), Phi.T @ t)))
            assert diagonal == pytest.approx(matrix, rel=1e-10)

    def test_a_prior_in_definite_units_is_taken_as_it_is(self, x64):
        design, t, alpha, noise_variance = problem()
        sites = {"alpha": alpha, "noise_variance": noise_variance}
        bound = prior_of("BIC").natural(N, (design**2).sum(0), np.mean(t**2))
        ours = value_of(sites, design, t, bound, fixed_alpha=[np.nan] * M)
        assert ours == pytest.approx(value_of(sites, design, t, prior_of("BIC")), rel=1e-12)


class TestRunning:
    def tiny(self):
        """One column, and a prior under which the weight's own geometry is no obstacle."""
        rng = np.random.default_rng(4)
        design = 0.7 * rng.normal(size=(10, 1))
        return design, design[:, 0] + 0.6 * rng.normal(size=10)

    @pytest.mark.slow
    @pytest.mark.parametrize("weights", ["centered", "noncentered"])
    def test_posterior_with_weights_is_the_collapsed_one(self, weights, x64):
        """log noise_variance, log alpha and the weight against quadrature: 11 numbers at 4 standard errors, 7e-4."""
        design, t = self.tiny()
        bounds = {"low": 0.05, "high": 50.0}
        exact = quadrature.posterior(design, t, {"kind": "gamma", "a": 2.0, "b": 1.0, **bounds}, NOISE_PRIOR)
        settings = {"prior": sbl.Gamma(2.0, 1.0, **bounds), "noise_prior": NOISE_PRIOR, "weights": weights}
        mcmc = sampler(NUTS(partial(model, **settings)))
        mcmc.run(jax.random.key(0), jnp.asarray(design), jnp.asarray(t))
        samples = {name: np.asarray(values) for name, values in mcmc.get_samples(group_by_chain=True).items()}
        draws = np.log(samples["alpha"][..., 0]), np.log(samples["noise_variance"])
        for x, marginal in zip(draws, exact.marginals, strict=True):
            assert np.abs(z_scores(x, marginal)).max() < 4.0
        phi, w = design[:, 0], samples["weights"][..., 0]
        expected = exact.expectation(lambda v, s: phi @ t / (phi @ phi + np.exp(s + v)))
        assert abs(w.mean() - expected) < 4.0 * standard_error(w)

    @pytest.mark.slow
    def test_compiled_arguments_and_an_improper_noise_prior(self, x64):
        """One program for two data sets (jit_model_args=True), each against quadrature: 20 comparisons, 1.3e-3."""
        design, t = self.tiny()
        mcmc = sampler(NUTS(partial(model, prior=sbl.Jeffreys(low=1e-2, high=1e2), noise_prior=(0.0, 0.0))))
        for data in (t, 5.0 * t[::-1]):
            exact = quadrature.posterior(design, data, {"kind": "jeffreys", "low": 1e-2, "high": 1e2}, (0.0, 0.0))
            mcmc.run(jax.random.key(0), jnp.asarray(design), jnp.asarray(data))
            samples = mcmc.get_samples(group_by_chain=True)
            draws = np.log(samples["alpha"][..., 0]), np.log(samples["noise_variance"])
            for x, marginal in zip(draws, exact.marginals, strict=True):
                assert np.abs(z_scores(np.asarray(x), marginal)).max() < 4.0

    @pytest.mark.parametrize("weights", [None, "centered", "noncentered"], ids=str)
    def test_prior_predictive(self, weights, x64):
        design, _, _, _ = problem()
        settings = {"prior": sbl.Jeffreys(low=0.1, high=10.0), "noise_prior": (3.0, 3.0), "weights": weights}
        draws = Predictive(model, num_samples=500)(jax.random.key(0), design, **settings)
        assert draws["t"].shape == (500, N)
        assert draws["alpha"].shape == (500, M)
        # The mean of u²/variance is 1 with a standard error of sqrt(2/500); 4 of them
        variance = draws["noise_variance"] + (1 / draws["alpha"]) @ (design[0] ** 2)
        assert np.mean(draws["t"][:, 0] ** 2 / variance) == pytest.approx(1.0, abs=4.0 * np.sqrt(2 / 500))
        # The mean of log σ² ~ InverseGamma(3, 3) is log 3 - ψ(3), its variance ψ'(3)
        error = np.sqrt(special.polygamma(1, 3) / 500)
        expected = np.log(3.0) - special.digamma(3)
        assert np.log(draws["noise_variance"]).mean() == pytest.approx(expected, abs=4.0 * error)

    def test_predictions_come_from_the_weights_given_the_data(self, x64):
        """Draws of the collapsed model are around zero, those of the weights around the dense posterior mean.

        4000 draws at one alpha and noise variance, 4.5 standard errors.
        """
        design, t, alpha, noise_variance = problem()
        samples = {"alpha": jnp.tile(alpha, (4000, 1)), "noise_variance": jnp.full(4000, noise_variance)}
        blind = Predictive(model, samples)(jax.random.key(0), design)["t"]
        C = noise_variance * np.eye(N) + design / alpha @ design.T
        assert np.all(np.abs(blind.mean(0)) < 4.5 * np.sqrt(np.diag(C) / 4000))
        weights = sbl.distributions.SparseNormal(design, **samples).sample_weights(jax.random.key(1), t)
        Sigma = np.linalg.inv(np.diag(alpha) + design.T @ design / noise_variance)
        curve, variance = design @ Sigma @ design.T @ t / noise_variance, np.diag(design @ Sigma @ design.T)
        assert np.all(np.abs((weights @ design.T).mean(0) - curve) < 4.5 * np.sqrt(variance / 4000))
        seen = Predictive(model, {**samples, "weights": weights})(jax.random.key(2), design, weights="centered")["t"]
        assert np.all(np.abs(seen.mean(0) - curve) < 4.5 * np.sqrt((variance + noise_variance) / 4000))

    def test_an_improper_noise_prior_has_no_draws(self):
        with pytest.raises(NotImplementedError):
            Predictive(model, num_samples=2)(jax.random.key(0), problem()[0], noise_prior=(0.0, 0.0))

    def test_single_precision_where_it_has_too_few_digits(self):
        """NUTS meets the data first outside of any compiled function, whichever form the factorisation has."""
        design, t, _, _ = problem()
        wide = np.random.default_rng(0).standard_normal((N, N + 1))
        twins = np.column_stack([design, design[:, 0] + 1e-4 * design[:, 1]])
        for columns, reason in ((wide, f"{N + 1} columns and {N} rows"), (twins, "nearly dependent")):
            with pytest.warns(UserWarning, match=rf"{reason}.*jax.enable_x64\(True"):
                NUTS(model).init(jax.random.PRNGKey(0), 5, None, (columns, t), {})
            NUTS(model).init(jax.random.PRNGKey(0), 5, None, (columns, t), {"weights": "centered"})

    def test_a_piece_of_a_larger_program(self, x64):
        """What the model returns may be used, and the likelihood of something else added."""
        design, t, alpha, noise_variance = problem()

        def program(design, t):
            alpha, noise_variance = model(design, t, prior_of("BIC", **BOUNDS), noise_prior=NOISE_PRIOR)
            numpyro.deterministic("kappa", 1 / (1 + noise_variance * alpha / jnp.sum(design**2, 0)))

        sites = {"alpha": jnp.asarray(alpha), "noise_variance": noise_variance}
        trace = log_density(program, (design, t), {}, sites)[1]
        expected = 1 / (1 + noise_variance * alpha / (design**2).sum(0))
        np.testing.assert_allclose(trace["kappa"]["value"], expected, rtol=1e-12)

    def test_precision_of_jax_is_left_alone(self):
        """Without x64 everything is float32, and right to its digits."""
        assert not jax.config.jax_enable_x64
        design, t, alpha, noise_variance = problem()
        sites = {"alpha": jnp.asarray(alpha), "noise_variance": jnp.asarray(noise_variance)}
        value = log_density(model, (design, t), {}, sites)[0]
        assert value.dtype == jnp.float32
        assert not jax.config.jax_enable_x64
        with jax.enable_x64(True):
            assert value == pytest.approx(
                value_of({"alpha": alpha, "noise_variance": noise_variance}, design, t), rel=1e-5
            )
        assert not jax.config.jax_enable_x64


@pytest.mark.parametrize(
    ("design", "settings", "match"),
    [
        (None, {"weights": "both"}, "weights='both' is unknown"),
        (Orthonormal(N), {"weights": "centered"}, "weights='centered' needs the columns"),
        (None, {"fixed_alpha": [1.0]}, r"fixed_alpha must hold 3 numbers.*shape \(1,\)"),
        (None, {"fixed_alpha": [1.0, -1.0, np.nan]}, "fixed_alpha must hold 3 numbers.*positive"),
        (None, {"fixed_alpha": [1.0, 0.0, np.nan]}, "fixed_alpha must hold 3 numbers.*positive"),
        (None, {"noise_variance": -1.0}, "noise_variance"),
        (None, {"noise_variance": 0.0}, "noise_variance"),
    ],
    ids=["weights", "weights of Orthonormal", "fixed shape", "fixed sign", "fixed zero", "negative noise", "no noise"],
)
def test_invalid_arguments(design, settings, match):
    _, t, _, _ = problem()
    with pytest.raises(ValueError, match=match):
        sites_of(problem()[0] if design is None else design, t, **{"noise_prior": NOISE_PRIOR, **settings})


BAD_ARGUMENTS = {
    "vector as design": ({"design": np.ones(5)}, r"design has shape \(5,\)"),
    "column of zeros": ({"design": np.zeros((5, 2))}, "design has a column of zeros"),
    "short t": ({"t": np.ones(4)}, r"t has shape \(4,\) and design has 5 rows"),
    "NaN in t": ({"t": np.full(5, np.nan)}, "t is zero everywhere, or holds values that are not finite"),
    "zero t": ({"t": np.zeros(5)}, "t is zero everywhere"),
    "prior by name": ({"prior": "BIC"}, "prior must be a Prior"),
    "one number as noise prior": ({"noise_prior": 3.0}, "noise_prior=3.0 must be two"),
    "negative noise prior": ({"noise_prior": (-1.0, 1.0)}, r"noise_prior=\(-1.0, 1.0\) must be two numbers"),
}


@pytest.mark.parametrize(("change", "message"), BAD_ARGUMENTS.values(), ids=BAD_ARGUMENTS)
def test_arguments_that_make_no_model_are_named(change, message):
    arguments = {"design": np.eye(5)[:, :2], "t": np.arange(5.0), **change}
    with pytest.raises(ValueError, match=message), handlers.seed(rng_seed=0):
        model(**arguments)


def test_targets_may_be_a_list():
    with handlers.seed(rng_seed=0):
        model([[1.0, 2.0], [0.5, 1.0], [3.0, 1.0]], [1.0, 2.0, 3.0])
