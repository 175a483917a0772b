"""Tempered sampling and the evidence: against quadrature, against draws from the prior, and where modes are far apart.

The evidence of one and of two columns is known from a grid, that of twenty from many draws from the prior in plain
NumPy. Each of eight comparisons allows 3 standard errors, so that a correct sampler fails one with probability 0.02
over all seeds; the seeds are fixed. Posteriors are allowed 4, as in `test_quadrature`.
"""

import warnings
from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import quadrature
from numpyro.infer import MCMC
from scipy import integrate, stats
from test_quadrature import BOUNDS, NOISE_PRIOR, PRIORS, exact, grid_prior, problem, scores_of

import sbl_ppl as sbl
from sbl_ppl.distributions import Orthonormal
from sbl_ppl.evidence_sampling import Evidence, _run, log_evidence, stepping_stones
from sbl_ppl.gibbs import ExchangeGibbs
from sbl_ppl.sampling import _new_settings
from sbl_ppl.tempering import TemperedExchange, ladder

LADDER = (1.0, 0.7, 0.4, 0.15, 0.0)
FIELDS = ("rung_log_likelihood", "swap_accept_prob", "powers", "v", "log_noise", "potential_energy")


@pytest.fixture(autouse=True)
def _double():
    with jax.enable_x64(True):
        yield


def run(kernel, design, t, num_samples=1000, num_warmup=100, chains=2, **options):
    """A finished MCMC, its chains one after the other."""
    mcmc = MCMC(
        kernel,
        num_warmup=num_warmup,
        num_samples=num_samples,
        num_chains=chains,
        chain_method="sequential",
        progress_bar=False,
        jit_model_args=True,
    )
    fields = FIELDS if isinstance(kernel, TemperedExchange) else ()
    mcmc.run(jax.random.key(0), jnp.asarray(design), jnp.asarray(t), extra_fields=fields, **options)
    return mcmc


def parameters(mcmc):
    """log α_1, ..., log α_M and log σ² as arrays of shape (chains, draws)."""
    draws = mcmc.get_samples(group_by_chain=True)
    logs = [*np.moveaxis(np.log(np.asarray(draws["alpha"])), -1, 0)]
    return [*logs, np.log(np.asarray(draws["noise_variance"]))] if "noise_variance" in draws else logs


def evidence_of(mcmc):
    fields = mcmc.get_extra_fields(group_by_chain=True)
    powers = np.asarray(fields["powers"])[0, -1]
    return stepping_stones(powers, *(np.asarray(fields[name]) for name in FIELDS[:2]))


def standard(prior, design, kernel=TemperedExchange, powers=LADDER, **settings):
    """A run on a problem of `test_quadrature`."""
    options = {"prior": PRIORS[prior][0], "noise_prior": NOISE_PRIOR, "powers": powers}
    return run(kernel(**options), *problem(design), **settings)


@cache
def smooth():
    return standard("smoothness", "one", num_samples=1500, chains=1)


def fit_of(prior, design, scale=1.0):
    """Of t in other units, and the prior of the noise with it."""
    Phi, t = problem(design)
    noise_prior = (NOISE_PRIOR[0], NOISE_PRIOR[1] * scale**2)
    return sbl.fit_map(None, scale * t, sbl.Columns(Phi), prior, noise_prior=noise_prior, center=False, progress=False)


class TestPosterior:
    @pytest.mark.slow
    def test_rung_0_follows_the_posterior(self):
        scores = scores_of(parameters(smooth()), exact("smoothness", "one").marginals)
        assert np.abs(scores).max() < 4.0

    @pytest.mark.slow
    def test_adapted_ladder_and_two_columns(self):
        mcmc = standard("Jeffreys", "identical", powers=5, num_samples=1000, chains=1)
        scores = scores_of(parameters(mcmc), exact("Jeffreys", "identical").marginals)
        assert np.abs(scores).max() < 4.0
        fields = mcmc.get_extra_fields(group_by_chain=True)
        powers = np.asarray(fields["powers"])
        assert np.array_equal(powers, np.broadcast_to(powers[:, :1], powers.shape))  # at rest after warmup
        assert np.all(np.diff(powers) < 0)
        assert np.all(powers[..., 0] == 1)
        assert np.all(powers[..., -1] == 0)
        accepted = np.asarray(fields["swap_accept_prob"]).mean((0, 1))
        assert accepted.max() - accepted.min() < 0.25

    @pytest.mark.slow
    def test_energy_is_that_of_the_plain_kernel(self):
        mcmc, (Phi, t) = smooth(), problem("one")
        plain = ExchangeGibbs(PRIORS["smoothness"][0], noise_prior=NOISE_PRIOR)
        last = mcmc.last_state
        state = plain.init(jax.random.key(0), 0, last.z, (jnp.asarray(Phi), jnp.asarray(t)), {})
        np.testing.assert_allclose(last.potential_energy, state.potential_energy, rtol=1e-9)
        np.testing.assert_allclose(last.rung_log_likelihood[0], state.log_likelihood, rtol=1e-9)


def prior_marginals(name, norm2):
    """Those of v = log α and of log σ² under the prior of `test_quadrature`."""
    v = np.linspace(*np.log([*BOUNDS.values()]), 2001)
    log_noise = np.linspace(-4.0, 14.0, 401)
    noise = np.exp(quadrature.log_noise_prior(log_noise, *NOISE_PRIOR))
    given = np.exp(quadrature.log_prior(grid_prior(name), v[:, None], np.exp(log_noise), norm2))
    mixed = integrate.simpson(given * noise, x=log_noise, axis=1)
    return [quadrature.Marginal(v, mixed), quadrature.Marginal(log_noise, noise)]


class TestPrior:
    @pytest.mark.slow
    def test_last_rung_draws_from_the_prior(self):
        fields = smooth().get_extra_fields(group_by_chain=True)
        Phi, _ = problem("one")
        norm2 = Phi[:, 0] @ Phi[:, 0]
        v = np.asarray(fields["v"])[..., -1, 0] + np.log(norm2)
        log_noise = np.asarray(fields["log_noise"])[..., -1]
        for draws, marginal in zip((v, log_noise), prior_marginals("smoothness", norm2), strict=True):
            # Every fourth draw: what a swap brings up from below is not yet independent of the one before
            assert stats.kstest(draws[:, ::4].ravel(), marginal.cdf).pvalue > 1e-3

    @pytest.mark.slow
    def test_sweeps_without_data_keep_the_prior(self):
        """A last power of 1e-12 is swept as any other rung, and not drawn afresh."""
        mcmc = standard("smoothness", "correlated", powers=(1.0, 1e-12), num_samples=1500)
        fields = mcmc.get_extra_fields(group_by_chain=True)
        Phi, _ = problem("correlated")
        for m, norm2 in enumerate(np.sum(Phi**2, 0)):
            draws = [np.asarray(fields["v"])[..., -1, m] + np.log(norm2), np.asarray(fields["log_noise"])[..., -1]]
            assert np.abs(scores_of(draws, prior_marginals("smoothness", norm2))).max() < 4.0


class TestEvidence:
    @pytest.mark.slow
    @pytest.mark.parametrize(
        ("prior", "design"), [("gamma", "one"), ("Jeffreys", "identical"), ("smoothness per d alpha", "correlated")]
    )
    def test_equals_quadrature(self, prior, design):
        fit = fit_of(PRIORS[prior][0], design)
        found = log_evidence(fit, num_rungs=6, num_warmup=100, num_samples=500, num_chains=2, progress=False)
        assert found.standard_error < 0.05
        assert abs(found.value - exact(prior, design).log_evidence) < 3 * found.standard_error
        assert found.contributions.sum() - 12 * np.log(fit.scale) == pytest.approx(found.value, abs=1e-9)

    @pytest.mark.slow
    def test_units_of_t(self):
        """log p(10 t) = log p(t) - N log 10, if the prior of the noise and the bounds of the precisions go along."""
        fit = fit_of(sbl.Flat(low=1e-5, high=10.0), "one", scale=10.0)
        found = log_evidence(fit, num_rungs=6, num_warmup=100, num_samples=500, num_chains=2, progress=False)
        true = exact("flat", "one").log_evidence - 12 * np.log(10.0)
        assert abs(found.value - true) < 3 * found.standard_error

    @pytest.mark.slow
    def test_standard_error_is_one(self):
        """Over 48 short runs (of two chains each) the z scores have mean 0 and standard deviation 1."""
        fit = fit_of(PRIORS["smoothness"][0], "one")
        settings = _new_settings({"num_warmup": 50, "num_chains": 96})
        powers, values, swaps = _run(fit, fit.problem(), settings, LADDER, 200, progress=False)
        shift = len(fit.t) * np.log(fit.scale)
        runs = [stepping_stones(powers, values[k : k + 2], swaps[k : k + 2], shift) for k in range(0, 96, 2)]
        true = exact("smoothness", "one").log_evidence
        scores = np.array([(run.value - true) / run.standard_error for run in runs])
        assert abs(scores.mean()) < 4 / np.sqrt(48)
        low, high = stats.chi2(47).ppf([1e-4, 1 - 1e-4]) / 47
        assert low < scores.var() < high

    @pytest.mark.slow
    @pytest.mark.parametrize("known", [True, False], ids=["noise known", "noise sampled"])
    def test_twenty_columns_equal_draws_from_the_prior(self, known):
        rng = np.random.default_rng(3)
        x = np.linspace(-2.0, 2.0, 12)
        Phi = np.exp(-((x[:, None] - np.linspace(-2.0, 2.0, 20)) ** 2))
        t = np.cos(x) + 0.7 * rng.normal(size=12)
        value, error = prior_monte_carlo(rng, Phi, t, 0.1, 1e3, 0.5 if known else NOISE_PRIOR)
        assert error < 0.05
        noise = {"noise_variance": 0.5} if known else {"noise_prior": NOISE_PRIOR}
        fit = sbl.fit_map(None, t, sbl.Columns(Phi), sbl.Jeffreys(0.1, 1e3), center=False, progress=False, **noise)
        found = log_evidence(fit, num_rungs=6, num_warmup=100, num_samples=300, num_chains=2, progress=False)
        assert found.standard_error < 0.1
        assert abs(found.value - value) < 3 * np.hypot(found.standard_error, error)

    @pytest.mark.slow
    def test_orthonormal_dictionary(self):
        """Known σ²: the evidence is a product of one-dimensional integrals, for the transform and for the matrix."""
        rng = np.random.default_rng(1)
        n, noise_variance = 16, 0.5
        z = np.sqrt(noise_variance) * rng.normal(size=n) + 3.0 * (np.arange(n) < 3)
        v = np.linspace(*np.log([*BOUNDS.values()]), 2001)
        variance = noise_variance + np.exp(-v)
        density = stats.norm.pdf(z[:, None], scale=np.sqrt(variance)) / np.log(1e6)
        true = np.log(integrate.simpson(density, x=v, axis=1)).sum()
        kernel = TemperedExchange(sbl.Jeffreys(**BOUNDS), noise_variance, powers=LADDER)
        state = kernel.init(jax.random.key(0), 50, None, (Orthonormal(n), jnp.asarray(z)), {})
        mcmc = MCMC(kernel, num_warmup=50, num_samples=1000, num_chains=1, progress_bar=False)
        assert state.rung_log_likelihood.shape == (5,)
        mcmc.run(jax.random.key(0), Orthonormal(n), jnp.asarray(z), extra_fields=FIELDS)
        found = evidence_of(mcmc)
        assert abs(found.value - true) < 3 * found.standard_error

    def test_one_draw_repeated_has_no_error(self):
        values = np.broadcast_to([-1.0, -2.0, -3.0], (2, 30, 3)) + 1e-9 * np.random.default_rng(0).normal(
            size=(2, 30, 3)
        )
        found = stepping_stones(np.array([1.0, 0.5, 0.0]), values, np.full((2, 30, 2), 0.5), shift=1.0)
        assert found.value == pytest.approx(0.5 * -2.0 + 0.5 * -3.0 - 1.0)
        assert found.standard_error < 1e-8
        assert repr(found).startswith("Evidence: log p(t) = -3.5 ± ")
        assert "swaps accepted 50% to 50%" in repr(found)


def prior_monte_carlo(rng, Phi, t, low, high, noise, num=200_000):
    """log p(t) and its standard error under Jeffreys' prior, by draws from the prior and dense matrices."""
    total = []
    for _ in range(10):
        alpha = np.exp(rng.uniform(np.log(low), np.log(high), (num // 10, Phi.shape[1])))
        known = np.ndim(noise) == 0
        noise_variance = np.full(len(alpha), noise) if known else noise[1] / rng.gamma(noise[0], size=len(alpha))
        C = np.einsum("im,km,jm->kij", Phi, 1 / alpha, Phi, optimize=True) + noise_variance[:, None, None] * np.eye(
            len(t)
        )
        L = np.linalg.cholesky(C)
        y = np.linalg.solve(L, np.broadcast_to(t[:, None], (len(alpha), len(t), 1)))[..., 0]
        log_det = np.log(np.diagonal(L, axis1=1, axis2=2)).sum(1)
        total.append(-0.5 * (len(t) * np.log(2 * np.pi) + (y**2).sum(1)) - log_det)
    total = np.concatenate(total)
    weights = np.exp(total - total.max())
    return np.log(weights.mean()) + total.max(), weights.std() / weights.mean() / np.sqrt(num)


class WrongSign(TemperedExchange):
    def _swap_log_ratio(self, powers, values):
        return -super()._swap_log_ratio(powers, values)


class FullPowerForNoise(TemperedExchange):
    def _noise_power(self, problem):
        return 1.0


class FullPowerForPrecisions(TemperedExchange):
    def _conditional(self, *arguments):
        return super()._conditional(*arguments)._replace(temper=1.0)


def largest_score(kernel):
    """Of the evidence and of all statistics of rung 0, in standard errors from the grid's."""
    mcmc, true = standard("Jeffreys", "one", kernel, num_samples=3000, chains=1), exact("Jeffreys", "one")
    found = evidence_of(mcmc)
    scores = scores_of(parameters(mcmc), true.marginals)
    return max(abs(found.value - true.log_evidence) / found.standard_error, np.abs(scores).max())


@pytest.mark.slow
@pytest.mark.parametrize("fault", [WrongSign, FullPowerForNoise, FullPowerForPrecisions])
def test_planted_faults_are_found(fault):
    assert largest_score(fault) > 6.0


@pytest.mark.slow
def test_without_a_fault_it_is_right():
    assert largest_score(TemperedExchange) < 4.0


def two_triples():
    """t = a_1 + a_2 + a_3 = b_1 + b_2 + b_3, where no mixture of fewer than five columns makes t.

    A rotation that keeps t maps one triple to the other, so that each has half of the posterior.
    """
    angle = 2 * np.pi * np.arange(3) / 3
    circle, nothing = np.stack([np.cos(angle), np.sin(angle)]), np.zeros((2, 3))
    third = np.full((1, 3), 1 / 3)
    a, b = np.concatenate([third, circle, nothing]), np.concatenate([third, nothing, circle])
    return np.concatenate([a, b], 1), np.array([1.0, 0.0, 0.0, 0.0, 0.0])


@pytest.mark.slow
def test_two_far_modes():
    Phi, t = two_triples()
    options = {"prior": sbl.Jeffreys(low=1e-2, high=1e6), "noise_variance": 1e-6}
    start = np.log(np.array([1.0, 1.0, 1.0, 1e5, 1e5, 1e5]) / 1e-2) / np.log(1e8)
    at_a = {"alpha": jnp.asarray(np.log(start / (1 - start)))}

    def share(kernel, num_samples):
        """How often the second triple carries more of t."""
        draws = parameters(run(kernel, Phi, t, num_samples, 100, chains=1, init_params=at_a))
        return np.mean(np.sum(draws[:3], 0) > np.sum(draws[3:], 0))

    assert share(ExchangeGibbs(**options), 1000) == 0.0
    assert 0.25 < share(TemperedExchange(**options, powers=12), 1500) < 0.75


class TestContract:
    def test_ladder(self):
        powers = ladder(5)
        assert powers[0] == 1
        assert powers[-1] == 0
        assert np.all(np.diff(powers) < 0)
        np.testing.assert_array_equal(ladder((1, 0.5, 0)), [1, 0.5, 0])

    @pytest.mark.parametrize(
        "powers", [1, True, 2.5, (1.0,), (0.9, 0.0), (1.0, 1.0), (1.0, 0.2, 0.3), (1.0, -0.1), "many", (1.0, np.nan)]
    )
    def test_bad_powers_are_named(self, powers):
        with pytest.raises(ValueError, match="powers="):
            TemperedExchange(noise_variance=1.0, powers=powers)

    def test_bad_noise_priors_are_named(self):
        with pytest.raises(ValueError, match=r"noise_prior=.*10000 nats.*noise_variance"):
            TemperedExchange()
        for pair in ((0.0, 1.0), (1.0, 0.0)):
            with pytest.raises(ValueError, match=r"noise_prior=.*no integral"):
                TemperedExchange(noise_prior=pair)
        with pytest.raises(ValueError, match="noise_prior="):
            TemperedExchange(noise_prior=(-1.0, 1.0))
        TemperedExchange(powers=(1.0, 0.5, 0.1))  # does not reach the prior
        TemperedExchange(noise_variance=2.0)

    def test_bad_input_of_log_evidence_is_named(self):
        t = np.sin(np.arange(12.0))
        columns = sbl.Columns(np.random.default_rng(0).normal(size=(12, 2)))
        fit = sbl.fit_map(None, t, columns, progress=False)
        for options, match in (
            ({}, "noise_prior=.*10000 nats"),
            ({"noise_prior": (0.0, 1.0)}, "noise_prior=.*no integral"),
            ({"noise_prior": 3.0}, "noise_prior="),
            ({"noise_prior": (2.0, 1.0), "prior": "BIC"}, "prior must be a Prior"),
            ({"noise_prior": (2.0, 1.0), "num_rungs": 1}, "num_rungs=1"),
            ({"noise_prior": (2.0, 1.0), "num_samples": 2}, "num_samples=2"),
            ({"noise_prior": (2.0, 1.0), "num_chains": 0}, "num_chains=0"),
            ({"noise_prior": (2.0, 1.0), "powers": (1.0, 0.5)}, "powers=.*end at 0"),
        ):
            with pytest.raises(ValueError, match=match):
                log_evidence(fit, **options)
        with pytest.raises(ValueError, match="fit must be a MapFit"):
            log_evidence(t)
        known = sbl.fit_map(None, t, columns, noise_variance=0.1, progress=False)
        with pytest.raises(ValueError, match="noise_variance is known"):
            log_evidence(known, noise_prior=(2.0, 1.0))

    @pytest.mark.slow
    def test_poor_runs_are_told(self):
        fit = fit_of(sbl.Jeffreys(1e-6, 1e6), "one")
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            found = log_evidence(
                fit, noise_prior=(2.0, 1e-6), num_rungs=2, num_warmup=50, num_samples=20, num_chains=1, progress=False
            )
        assert isinstance(found, Evidence)
        messages = " ".join(str(warning.message) for warning in caught)
        assert "num_rungs" in messages
        assert "effective sample size" in messages

    @pytest.mark.slow
    def test_a_run_goes_on_bit_for_bit_and_chain_methods_agree(self):
        Phi, t = (jnp.asarray(x) for x in problem("one"))
        kernel = TemperedExchange(PRIORS["flat"][0], noise_prior=NOISE_PRIOR, powers=3)
        state = kernel.init(jax.random.key(1), 8, None, (Phi, t), {})
        step = jax.jit(lambda state: kernel.sample(state, (Phi, t), {}))
        for _ in range(6):
            state = step(state)
        again = jax.tree.map(jnp.asarray, state)
        np.testing.assert_array_equal(step(state).v, step(again).v)
        assert kernel.get_diagnostics_str(state).count("=") == 4
        keys = jax.random.split(jax.random.key(2), 2)
        both = step(kernel.init(keys, 8, None, (Phi, t), {}))
        first = step(kernel.init(keys[0], 8, None, (Phi, t), {}))
        assert both.v.shape == (2, 3, 1)
        np.testing.assert_allclose(both.v[0], first.v, rtol=1e-8)
        values = kernel.postprocess_fn((Phi, t), {})(state.z)
        assert set(values) == {"alpha", "noise_variance"}
