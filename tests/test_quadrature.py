"""Samplers against quadrature: the whole posterior of small problems, for every prior.

A kernel is run on a problem whose posterior `quadrature` knows, and five statistics of each log α_m and of log σ² are
compared: the mean, the standard deviation, and the shares of draws below the three true quartiles. Each difference is
divided by its Monte Carlo standard error, which comes from the effective sample size of exactly what is averaged: the
draws, their squared deviations, or the indicators.

False alarms. The table of priors and designs makes 7 priors × (2 parameters for one column + 3 for two correlated
columns + 3 for two identical ones) × 5 statistics = 280 comparisons a kernel. At 4 standard errors two-sided a correct
sampler fails one of them with probability 6.3e-5, so the whole table with less than 1.8e-2 over all seeds; the seeds
are fixed. The orthonormal dictionary makes 2 designs × 64 components × 5 = 640 comparisons at 4.5 standard errors:
4.4e-3.

Two kernels go through the table, which doubles these counts; another one joins as an entry of `KERNELS`.
"""

from functools import cache, partial

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import pytest
import quadrature
import reference
from numpyro.diagnostics import effective_sample_size
from numpyro.infer import MCMC, NUTS
from scipy import integrate, stats

import sbl_ppl as sbl
from sbl_ppl.distributions import Orthonormal
from sbl_ppl.model import model

BOUNDS = {"low": 1e-3, "high": 1e3}
NOISE_PRIOR = (2.0, 1.0)
# The prior as the package has it, and as the grid has it.
PRIORS = {
    "flat": (sbl.Flat(**BOUNDS), {"kind": "flat"}),
    "Jeffreys": (sbl.Jeffreys(**BOUNDS), {"kind": "jeffreys"}),
    "smoothness": (sbl.Smoothness(4.0, **BOUNDS), {"kind": "smoothness", "c": 4.0, "measure": "log"}),
    "smoothness per d alpha": (
        sbl.Smoothness("BIC", measure="alpha", **BOUNDS),
        {"kind": "smoothness", "c": np.log(12) / 2, "measure": "alpha"},
    ),
    "smoothness raw": (
        sbl.Smoothness(3.0, normalize=False, **BOUNDS),
        {"kind": "smoothness", "c": 3.0, "measure": "log", "normalize": False},
    ),
    "gamma": (sbl.Gamma(0.5, 0.2, **BOUNDS), {"kind": "gamma", "a": 0.5, "b": 0.2}),
    "power": (sbl.Power(-0.5, **BOUNDS), {"kind": "power", "zeta": -0.5}),
}
each_prior = pytest.mark.parametrize("prior", PRIORS)
# From what `model` takes to a kernel whose MCMC is run with (key, design, t).
KERNELS = {"NUTS": lambda **settings: NUTS(partial(model, **settings)), "ExchangeGibbs": sbl.ExchangeGibbs}
each_kernel = pytest.mark.parametrize("kernel", KERNELS)
DESIGNS = {1: ["one"], 2: ["correlated", "identical"]}
STATISTICS = ("mean", "sd", "quarter", "median", "three quarters")


def problem(name):
    """Twelve observations; columns of squared norms near 5 and 30, with correlation 0.8 where there are two."""
    rng = np.random.default_rng(5)
    first, second, noise = rng.normal(size=(3, 12))
    columns = np.stack([0.6 * first, 1.6 * (0.8 * first + 0.6 * second)], 1)
    t = first + 0.7 * noise
    return columns[:, {"one": [0], "correlated": [0, 1], "identical": [0, 0]}[name]], t


def grid_prior(name):
    return {**PRIORS[name][1], **BOUNDS}


@cache
def exact(prior, design):
    return quadrature.posterior(*problem(design), grid_prior(prior), NOISE_PRIOR)


def sampler(kernel, num_samples=1000, num_warmup=300):
    """Data are arguments that are compiled once for all of a shape."""
    return MCMC(
        kernel,
        num_warmup=num_warmup,
        num_samples=num_samples,
        num_chains=4,
        chain_method="vectorized",
        progress_bar=False,
        jit_model_args=True,
    )


def draws_of(mcmc, design, t, seed=0):
    """log α_1, ..., log α_M and log σ² (if it is a site) as arrays of shape (chains, draws)."""
    mcmc.run(jax.random.key(seed), design, jnp.asarray(t))
    samples = mcmc.get_samples(group_by_chain=True)
    result = list(np.moveaxis(np.log(np.asarray(samples["alpha"])), -1, 0))
    return [*result, np.log(np.asarray(samples["noise_variance"]))] if "noise_variance" in samples else result


@cache
def sampled(kernel, prior, num_columns):
    """Draws for each design of so many columns, from one compiled program."""
    with jax.enable_x64(True):
        mcmc = sampler(KERNELS[kernel](prior=PRIORS[prior][0], noise_prior=NOISE_PRIOR))
        data = {design: problem(design) for design in DESIGNS[num_columns]}
        return {design: draws_of(mcmc, jnp.asarray(Phi), t) for design, (Phi, t) in data.items()}


def standard_error(x):
    """Of the mean of correlated draws."""
    return np.std(x) / np.sqrt(effective_sample_size(x))


def z_scores(draws, marginal):
    """Differences between draws (chains, draws) and a marginal in standard errors, in the order of `STATISTICS`."""
    squares = (draws - marginal.mean) ** 2
    # d sd = d variance / (2 sd)
    scores = [
        (draws.mean() - marginal.mean) / standard_error(draws),
        (np.sqrt(squares.mean()) - marginal.sd) / (standard_error(squares) / (2.0 * marginal.sd)),
    ]
    for p, point in zip((0.25, 0.5, 0.75), marginal.quartiles, strict=True):
        below = (draws <= point).astype(float)
        scores.append((below.mean() - p) / np.sqrt(p * (1.0 - p) / effective_sample_size(below)))
    return np.array(scores)


def scores_of(draws, marginals):
    """A table of z scores, parameters by statistics."""
    return np.stack([z_scores(x, marginal) for x, marginal in zip(draws, marginals, strict=True)])


class TestGrid:
    """The grid itself, against formulas that share nothing with it."""

    @each_prior
    @pytest.mark.parametrize("design", ["one", "correlated", "identical"])
    def test_halving_the_step_changes_nothing(self, prior, design):
        fine = quadrature.posterior(*problem(design), grid_prior(prior), NOISE_PRIOR, num=2 * quadrature.NUM - 1)
        assert exact(prior, design).log_evidence == pytest.approx(fine.log_evidence, abs=1e-5)
        for ours, theirs in zip(exact(prior, design).marginals, fine.marginals, strict=True):
            differences = [ours.mean - theirs.mean, ours.sd - theirs.sd, *(ours.quartiles - theirs.quartiles)]
            assert np.abs(differences).max() < 1e-4 * theirs.sd
            points = theirs.quantile(np.linspace(0.01, 0.99, 9))
            np.testing.assert_allclose(ours.cdf(points), np.linspace(0.01, 0.99, 9), atol=1e-4)

    @pytest.mark.parametrize("design", ["one", "correlated", "identical"])
    def test_likelihood_equals_the_dense_one(self, design):
        Phi, t = problem(design)
        for alpha in np.exp(np.random.default_rng(0).uniform(-6, 6, (20, Phi.shape[1]))):
            for noise_variance in (0.05, 3.0):
                value = quadrature.log_likelihood(Phi, t, list(alpha), noise_variance)
                assert value == pytest.approx(reference.log_evidence(Phi, t, alpha, noise_variance), rel=1e-8)

    @each_prior
    def test_prior_equals_the_dense_one(self, prior):
        settings = grid_prior(prior)
        rest = {name: settings[name] for name in ("c", "a", "b", "zeta") if name in settings}
        kind, measure = settings["kind"], settings.get("measure", "alpha")
        kind, measure = ("flat", "log") if kind == "jeffreys" else (kind, measure)
        v, norm2 = np.linspace(-6.9, 6.9, 7), 30.0
        scale = norm2 if settings.get("normalize", True) else 1.0
        for noise_variance in (0.05, 3.0):
            ours = quadrature.log_prior(settings, v, np.full(7, noise_variance), norm2)
            theirs = reference.log_prior(
                kind, np.exp(v), noise_variance, scale, *BOUNDS.values(), measure, "log", **rest
            )
            np.testing.assert_allclose(ours, theirs, rtol=1e-9, atol=1e-9)

    def test_evidence_equals_adaptive_quadrature(self):
        Phi, t = problem("one")
        settings = grid_prior("smoothness")

        def density(v, log_noise):
            noise_variance = np.exp(log_noise)
            prior = quadrature.log_prior(settings, v, noise_variance, Phi[:, 0] @ Phi[:, 0]) + log_noise
            return np.exp(
                reference.log_evidence(Phi, t, [np.exp(v)], noise_variance)
                + reference.log_inverse_gamma(noise_variance, *NOISE_PRIOR)
                + prior
                + 20.0
            )

        bounds = np.log([*BOUNDS.values()])
        total = integrate.dblquad(density, -6.0, 6.0, *bounds, epsabs=0.0, epsrel=1e-6)[0]
        assert exact("smoothness", "one").log_evidence == pytest.approx(np.log(total) - 20.0, abs=1e-5)

    def test_orthonormal_marginals_equal_the_joint(self):
        Phi, _ = np.linalg.qr(problem("correlated")[0])
        t = problem("correlated")[1]
        settings = grid_prior("smoothness per d alpha")
        v = np.linspace(*np.log([*BOUNDS.values()]), 401)
        log_density = quadrature.log_likelihood(Phi, t, [np.exp(v)[:, None], np.exp(v)], 0.4)
        for prior in (quadrature.log_prior(settings, v, 0.4, 1.0),) * 2:
            log_density = (log_density + prior).T
        joint = quadrature.Posterior((v, v), log_density)
        for ours, theirs in zip(
            quadrature.orthonormal_marginals(Phi.T @ t, settings, 0.4), joint.marginals, strict=True
        ):
            np.testing.assert_allclose(
                [ours.mean, ours.sd, *ours.quartiles], [theirs.mean, theirs.sd, *theirs.quartiles], atol=1e-5
            )


class TestSamplers:
    @pytest.mark.slow
    @each_kernel
    @each_prior
    @pytest.mark.parametrize("num_columns", DESIGNS, ids=["one column", "two columns"])
    def test_posterior(self, kernel, prior, num_columns):
        for design, draws in sampled(kernel, prior, num_columns).items():
            scores = scores_of(draws, exact(prior, design).marginals)
            assert np.abs(scores).max() < 4.0, f"{design}: {dict(zip(STATISTICS, scores.T.round(1), strict=True))}"

    @pytest.mark.slow
    def test_a_forgotten_normaliser_is_seen(self):
        """Teeth: the same comparison rejects the smoothness prior without its log Z(σ²)."""
        Phi, t = problem("correlated")
        log_noise = np.linspace(-20.0, 20.0, 4001)
        log_Z = [quadrature.log_normaliser(grid_prior("smoothness"), np.exp(log_noise), phi @ phi) for phi in Phi.T]

        def faulty(design, t):
            _, noise_variance = model(design, t, PRIORS["smoothness"][0], noise_prior=NOISE_PRIOR)
            numpyro.factor("fault", jnp.interp(jnp.log(noise_variance), log_noise, sum(log_Z)))

        with jax.enable_x64(True):
            draws = draws_of(sampler(NUTS(faulty)), jnp.asarray(Phi), t)
        scores = scores_of(draws, exact("smoothness", "correlated").marginals)
        assert np.abs(scores).max() > 6.0

    @pytest.mark.slow
    @each_kernel
    @pytest.mark.parametrize("form", ["matrix", "Orthonormal"])
    def test_orthonormal_dictionary(self, kernel, form):
        """Known σ²: given t the α are independent, and each has a one-dimensional marginal."""
        n, noise_variance = 64, 0.5
        z = np.sqrt(noise_variance) * np.random.default_rng(1).normal(size=n)
        z[::8] += np.linspace(1.0, 6.0, 8)
        Phi = reference.wavelet_matrix("db2", n, 3)
        prior = sbl.Smoothness("AIC", **BOUNDS)
        marginals = quadrature.orthonormal_marginals(
            z, {"kind": "smoothness", "c": 1.0, "measure": "log", **BOUNDS}, noise_variance
        )
        with jax.enable_x64(True):
            mcmc = sampler(KERNELS[kernel](prior=prior, noise_variance=noise_variance), 300, 150)
            data = (jnp.asarray(Phi), Phi @ z) if form == "matrix" else (Orthonormal(n), z)
            scores = scores_of(draws_of(mcmc, *data), marginals)
        assert scores.shape == (n, len(STATISTICS))
        assert np.abs(scores).max() < 4.5


class TestIdenticalColumns:
    """T01's thought experiment: two equal columns, of which the data can determine only 1/α₁ + 1/α₂."""

    def shape_of_the_ridge(self, mean):
        """Five numbers, where `mean` averages a function of (log α₁, log α₂, log σ²) over the posterior.

        The standard deviations across and along the ridge; the probabilities that one of the columns has nine tenths
        of 1/α₁ + 1/α₂, that each has a quarter at least, and that the first has more than the second.
        """

        def log_total(v1, v2, _):
            return np.logaddexp(-v1, -v2)

        def share(v1, v2, _):
            return 1.0 / (1.0 + np.exp(v1 - v2))  # (1/α₁) / (1/α₁ + 1/α₂)

        centre = mean(log_total)
        across = np.sqrt(mean(lambda *x: (log_total(*x) - centre) ** 2))
        along = np.sqrt(mean(lambda v1, v2, _: (v1 - v2) ** 2))
        ends = mean(lambda *x: (share(*x) < 0.1) | (share(*x) > 0.9))
        middle = mean(lambda *x: np.abs(share(*x) - 0.5) < 0.25)
        first = mean(lambda *x: np.heaviside(share(*x) - 0.5, 0.5))
        return {"across": across, "along": along, "ends": ends, "middle": middle, "first": first}

    @pytest.mark.parametrize("prior", ["Jeffreys", "smoothness"])
    def test_posterior_is_a_ridge(self, prior):
        """Narrow across 1/α₁ + 1/α₂ = const., as wide as the prior along it, and most of it out on the two arms.

        A priori log α₁ - log α₂ has standard deviation 5.6 under Jeffreys' prior. Across the ridge about 2 nats remain:
        what one weight tells of its own variance.
        """
        ridge = self.shape_of_the_ridge(exact(prior, "identical").expectation)
        assert 5.0 < ridge["along"] < 6.0
        assert ridge["across"] < 2.5
        assert ridge["ends"] > 0.7
        assert ridge["middle"] < 0.15
        assert ridge["first"] == pytest.approx(0.5, abs=1e-12)

    @pytest.mark.slow
    @each_kernel
    def test_sampler_walks_the_whole_ridge(self, kernel):
        """Three shares within 4 standard errors of the grid's, a false alarm rate of 2e-4."""
        draws = sampled(kernel, "Jeffreys", 2)["identical"]
        ridge = self.shape_of_the_ridge(exact("Jeffreys", "identical").expectation)
        errors = self.shape_of_the_ridge(lambda f: standard_error(np.asarray(f(*draws), float)))
        ours = self.shape_of_the_ridge(lambda f: np.mean(f(*draws)))
        for name in ("ends", "middle", "first"):
            assert abs(ours[name] - ridge[name]) < 4.0 * errors[name]
            assert errors[name] < 0.05

    def test_where_one_is_small_the_other_is_free(self):
        """Given that the first column carries the signal alone, the second has its prior, cut off below."""
        post = exact("Jeffreys", "identical")
        v1, v2, _ = post.axes
        joint = post.mass.sum(2) / np.outer(quadrature.simpson_weights(v1), quadrature.simpson_weights(v2))
        np.testing.assert_allclose(joint, joint.T, rtol=1e-10)
        row = joint[np.searchsorted(v1, 0.0)][v2 > 3.5]
        assert row.max() / row.min() < 1.05  # over a quarter of the range of log α₂
        # The best point is no summary: within one nat of it lies less than a twentieth of the mass
        best = np.unravel_index(joint.argmax(), joint.shape)
        near = np.hypot(v1[:, None] - v1[best[0]], v2 - v2[best[1]]) < 1.0
        assert post.mass.sum(2)[near].sum() < 0.05

    def test_delta_functions_on_the_ridge_predict_the_same(self):
        Phi, t = problem("identical")
        fit = sbl.fit_map(None, t, sbl.Columns(Phi), prior=PRIORS["Jeffreys"][0], center=False, progress=False)
        assert len(fit.active) == 1
        new = np.linspace(-2.0, 2.0, 7)[:, None] * np.ones(2)
        mean, sd = fit.predict(new)
        total, noise_variance = 1.0 / fit.alpha[0], fit.noise_variance
        evidence = reference.log_evidence(Phi[:, :1], t, fit.alpha, noise_variance)
        for share in (1.0, 0.999, 0.7, 0.5, 0.2, 1e-6):
            with np.errstate(divide="ignore"):
                alpha = 1.0 / (total * np.array([share, 1.0 - share]))
            w, Sigma = reference.weights_posterior(Phi, t, alpha, noise_variance)
            columns = new[:, np.isfinite(alpha)]
            variance = np.einsum("ij,jk,ik->i", columns, Sigma, columns) + noise_variance
            # The condition of the 2 x 2 matrix at a share of 1e-6 costs seven digits
            np.testing.assert_allclose(columns @ w, mean, rtol=1e-8, atol=1e-10)
            np.testing.assert_allclose(np.sqrt(variance), sd, rtol=1e-8)
            assert reference.log_evidence(Phi, t, alpha, noise_variance) == pytest.approx(evidence, rel=1e-10)


def test_false_alarm_rates_are_those_of_the_docstring():
    comparisons = len(PRIORS) * (2 + 3 + 3) * len(STATISTICS)
    assert comparisons == 280
    assert comparisons * 2 * stats.norm.sf(4.0) < 1.8e-2
    assert 2 * 64 * len(STATISTICS) * 2 * stats.norm.sf(4.5) < 4.4e-3
