"""Simulation-based calibration: the rank of the truth among posterior draws is uniform, whatever is ranked.

Parameters come from the prior, data from the model, and draws from the kernel, one chain a data set. The rank of the
true value among nearly independent draws is then uniform, if prior, likelihood and kernel are those that made the data
(Cook, Gelman & Rubin 2006; Talts et al. 2018). Four quantities are ranked: log σ², log α₁, the degrees of freedom
(the trace of the smoother, Σ γ_m) and log p(t | α, σ²), which are made here by dense NumPy formulas, as are the
parameters and the data.

False alarms. Each quantity has a chi-square test of its ranks in ten cells and a Kolmogorov-Smirnov test, eight in all;
at a p-value of 1.25e-4 each, a correct kernel fails with probability 1e-3 at most over all seeds; the seed is fixed.

Teeth. The same test rejects the model without log Z(σ²) of the smoothness prior, and the one with exponent g - 1 for
g + 1 in the prior of σ². A harsh prior (c = 6), four columns and bounds of four decades make the first fault visible.

Another kernel is calibrated by one more function from (key, design, batch of t) to draws.
"""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import pytest
import quadrature
from numpyro.infer import NUTS
from scipy import stats

import sbl_ppl as sbl
from sbl_ppl.model import model

N, M, SETS = 8, 4, 320
BOUNDS = {"low": 1e-2, "high": 1e2}
PRIOR, GRID_PRIOR = sbl.Smoothness(6.0, **BOUNDS), {"kind": "smoothness", "c": 6.0, "measure": "log", **BOUNDS}
NOISE_PRIOR = (3.0, 3.0)
WARMUP, DRAWS, THIN = 120, 19, 5
QUANTITIES = ("log noise variance", "log alpha_1", "degrees of freedom", "log likelihood")
THRESHOLD = 1e-3 / (2 * len(QUANTITIES))


def simulate(seed, num_sets):
    """A design with correlated columns, and true parameters and data for every set."""
    rng = np.random.default_rng(seed)
    design = rng.normal(size=(N, M))
    design[:, 1:] += 0.7 * design[:, :-1]
    noise_variance = NOISE_PRIOR[1] / rng.gamma(NOISE_PRIOR[0], size=num_sets)
    alpha = quadrature.sample_prior(rng, GRID_PRIOR, noise_variance, (design**2).sum(0))
    weights = rng.normal(size=(num_sets, M)) / np.sqrt(alpha)
    t = weights @ design.T + np.sqrt(noise_variance)[:, None] * rng.normal(size=(num_sets, N))
    return design, t, alpha, noise_variance


def quantities(design, t, alpha, noise_variance):
    """What is ranked, on a last axis; alpha (..., M), noise_variance (...) and t that broadcasts with them."""
    signal = np.einsum("nm,...m,km->...nk", design, 1.0 / alpha, design)
    C = signal + noise_variance[..., None, None] * np.eye(N)
    freedom = N - noise_variance * np.trace(np.linalg.inv(C), axis1=-2, axis2=-1)  # tr(signal C⁻¹)
    t = np.broadcast_to(t, C.shape[:-1])
    misfit = np.einsum("...n,...n->...", t, np.linalg.solve(C, t[..., None])[..., 0])
    likelihood = -0.5 * (np.linalg.slogdet(C)[1] + misfit)
    return np.stack([np.log(noise_variance), np.log(alpha[..., 0]), freedom, likelihood], -1)


def by_kernel(make_kernel):
    """From a kernel to a function (key, design, t of shape (sets, N)) -> (alpha, noise_variance), draws on axis 1.

    One chain a data set, all of them in one compiled program.
    """

    def one(key, design, t):
        kernel, data = make_kernel(), (design, t)
        state = kernel.init(key, WARMUP, None, data, {})
        advance = partial(jax.lax.fori_loop, 0, body_fun=lambda _, s: kernel.sample(s, data, {}))

        def draw(state, _):
            state = advance(THIN, init_val=state)
            return state, kernel.postprocess_fn(data, {})(getattr(state, kernel.sample_field))

        _, draws = jax.lax.scan(draw, advance(WARMUP, init_val=state), None, length=DRAWS)
        return draws["alpha"], draws["noise_variance"]

    def run(key, design, t):
        keys = jax.random.split(key, len(t))
        return jax.jit(jax.vmap(one, (0, None, 0)))(keys, jnp.asarray(design), jnp.asarray(t))

    return run


LOG_NOISE = np.linspace(-20.0, 20.0, 2001)


def faulty(design, t, fault):
    """The model with a fault, put in as a factor."""
    _, noise_variance = model(design, t, PRIOR, noise_prior=NOISE_PRIOR)
    log_noise = jnp.log(noise_variance)
    if fault == "log Z dropped":
        # Z depends on σ²/‖φ‖² only
        log_Z = quadrature.log_normaliser(GRID_PRIOR, np.exp(LOG_NOISE), 1.0)
        norm2 = jnp.sum(design**2, 0)
        numpyro.factor("fault", jnp.sum(jnp.interp(log_noise - jnp.log(norm2), LOG_NOISE, log_Z)))
    if fault == "g - 1 for g + 1":
        numpyro.factor("fault", 2.0 * log_noise)


def nuts(fault=None):
    return by_kernel(lambda: NUTS(partial(faulty, fault=fault), max_tree_depth=5))


CORRECT = {
    "NUTS": nuts(),
    "ExchangeGibbs": by_kernel(lambda: sbl.ExchangeGibbs(PRIOR, noise_prior=NOISE_PRIOR)),
}
WRONG = {fault: nuts(fault) for fault in ("log Z dropped", "g - 1 for g + 1")}


def p_values(run, num_sets, seed=0):
    """Of both tests for each quantity, shape (2, quantities)."""
    design, t, alpha, noise_variance = simulate(seed, num_sets)
    with jax.enable_x64(True):
        draws = [np.asarray(x) for x in run(jax.random.key(seed), design, t)]
    truth = quantities(design, t, alpha, noise_variance)
    ranked = quantities(design, t[:, None], *draws)
    assert np.isfinite(ranked).all()
    ranks = (ranked < truth[:, None]).sum(1)  # 0, ..., DRAWS
    jitter = np.random.default_rng(seed).uniform(size=ranks.shape)
    cells = [np.bincount(rank * 10 // (DRAWS + 1), minlength=10) for rank in ranks.T]
    chi_square = [stats.chisquare(cell).pvalue for cell in cells]
    smirnov = [stats.kstest(u, "uniform").pvalue for u in ((ranks + jitter) / (DRAWS + 1)).T]
    return np.array([chi_square, smirnov])


@pytest.mark.slow
@pytest.mark.parametrize("kernel", CORRECT)
def test_ranks_are_uniform(kernel):
    values = p_values(CORRECT[kernel], SETS)
    assert values.min() > THRESHOLD, dict(zip(QUANTITIES, values.T, strict=True))


@pytest.mark.slow
@pytest.mark.parametrize("fault", WRONG)
def test_a_fault_is_seen(fault):
    """A third of the sets will do."""
    assert p_values(WRONG[fault], SETS // 3).min() < THRESHOLD


def test_draws_of_the_prior_follow_it():
    """The simulator's own inverse cdf, by the moments of v = log α on a grid: 4 standard errors of 4000 draws."""
    noise_variance = np.full(4000, 0.7)
    v = np.log(quadrature.sample_prior(np.random.default_rng(0), GRID_PRIOR, noise_variance, [3.0]))
    grid = np.linspace(*np.log([*BOUNDS.values()]), 2001)
    marginal = quadrature.Marginal(grid, np.exp(quadrature.log_prior(GRID_PRIOR, grid, 0.7, 3.0)))
    assert abs(v.mean() - marginal.mean) < 4.0 * marginal.sd / np.sqrt(len(v))
    assert stats.kstest(v[:, 0], marginal.cdf).pvalue > 1e-4
