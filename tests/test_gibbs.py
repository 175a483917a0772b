"""The exchange kernel: its density and matrices against dense formulas, its draws against quadrature and exact ones.

Two kinds of statistical test, with fixed seeds. Against quadrature: means, variances and quartiles within four Monte
Carlo standard errors. And without any quadrature, after Geweke: draw (alpha, sigma^2) from the prior and t given both,
thousands of times, sweep each of them, and test that no expectation of a function of (alpha, sigma^2, t) has changed.
The replicates are independent, so that its z-scores are standard normal, and a limit of 4.5 has a false alarm once in
100000 for each function, once in 4000 for each test. That it sees what it should is shown by planted faults.
"""

import os
import pickle
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
import reference
from jax.scipy.linalg import cho_solve
from numpyro.diagnostics import effective_sample_size
from numpyro.infer import MCMC
from numpyro.infer.util import log_density

import sbl_ppl as sbl
from sbl_ppl.distributions import Orthonormal
from sbl_ppl.gibbs import ExchangeGibbs, _whole, draw_conditional, pair_likelihood, partition, small_problem

LOW, HIGH = 1e-2, 1e2
PRIORS = {
    "smooth-log": (sbl.Smoothness(3.0, low=LOW, high=HIGH), "smoothness", {"c": 3.0, "measure": "log"}),
    "smooth-alpha": (
        sbl.Smoothness(3.0, measure="alpha", low=LOW, high=HIGH),
        "smoothness",
        {"c": 3.0, "measure": "alpha"},
    ),
    "smooth-raw": (
        sbl.Smoothness(3.0, normalize=False, low=LOW, high=HIGH),
        "smoothness",
        {"c": 3.0, "measure": "log", "raw": True},
    ),
    "strong": (sbl.Smoothness(20.0, low=LOW, high=HIGH), "smoothness", {"c": 20.0, "measure": "log"}),
    "flat": (sbl.Flat(low=LOW, high=HIGH), "flat", {"measure": "alpha"}),
    "jeffreys": (sbl.Jeffreys(low=LOW, high=HIGH), "flat", {"measure": "log"}),
    "gamma": (sbl.Gamma(2.0, 0.5, low=LOW, high=HIGH), "gamma", {"a": 2.0, "b": 0.5}),
    "power": (sbl.Power(-0.6, low=LOW, high=HIGH), "power", {"zeta": -0.6}),
}


@pytest.fixture(autouse=True)
def _double():
    with jax.enable_x64(True):
        yield


def data(n=12, m=5, seed=0):
    rng = np.random.default_rng(seed)
    design = rng.standard_normal((n, m)) * np.exp(rng.uniform(-1, 1, m))
    return design, design[:, 0] + 0.5 * rng.standard_normal(n)


def unconstrained(alpha, low=LOW, high=HIGH):
    share = np.log(alpha / low) / np.log(high / low)
    return np.log(share) - np.log1p(-share)


def sweeps(kernel, state, args, num):
    return jax.lax.fori_loop(0, num, lambda _, state: kernel.sample(state, args, {}), state)


def values(kernel, state, args):
    return kernel.postprocess_fn(args, {})(state.z)


# -- density and matrices


DENSE = [pytest.param(prior, {}, id=name) for name, (prior, _, _) in PRIORS.items()] + [
    pytest.param(sbl.Smoothness("BIC"), {}, id="default-bounds"),
    pytest.param(sbl.Gamma(), {"noise_prior": (0.0, 0.0)}, id="improper-noise"),
    pytest.param(sbl.Smoothness("RIC", high=1e6), {"noise_variance": 0.3}, id="known-noise"),
    pytest.param(None, {"fixed_alpha": [np.nan, 0.1, np.nan, np.nan, np.inf]}, id="fixed-alpha"),
]


@pytest.mark.parametrize("n", [12, 4], ids=["tall", "wide"])
@pytest.mark.parametrize(("prior", "options"), DENSE)
def test_density_is_that_of_the_model(prior, options, n):
    design, t = data(n)
    kernel, args = ExchangeGibbs(prior, **options), (design, t)
    for seed in range(2):
        state = kernel.init(jax.random.key(seed), 0, None, args, {})
        sample = values(kernel, state, args)
        joint = log_density(kernel.model, args, {}, sample)[0] + jnp.log(sample["alpha"]).sum()
        if "noise_variance" in sample:
            joint += jnp.log(sample["noise_variance"])
        np.testing.assert_allclose(-state.potential_energy, joint, rtol=1e-9)


@pytest.mark.parametrize("n", [12, 6, 4], ids=["tall", "square", "wide"])
def test_small_problems_are_those_of_the_whole(n):
    design, t = data(n, 6)
    fixed = np.array([np.nan, np.nan, 0.3, np.nan, np.inf, np.nan])
    kernel = ExchangeGibbs(noise_variance=0.2, fixed_alpha=fixed)
    state = kernel.init(jax.random.key(1), 0, {"alpha": np.array([-0.3, 0.1, 0.0, -0.1])}, (design, t), {})
    alpha, free = fixed.copy(), np.flatnonzero(np.isnan(fixed))
    alpha[free] = values(kernel, state, (design, t))["alpha"]
    norm2 = np.sum(design**2, 0)
    index = np.array([2, 0, 3])  # of the free columns
    block = small_problem(state.problem, index, _whole(state.problem, state.v), 0.2)
    s, q = reference.small_s_q(design, t, alpha, 0.2)
    for place, m in enumerate(free[index]):
        S, Q = block.without(state.v[index], np.array([place]))
        np.testing.assert_allclose(S * norm2[m], [[s[m]]], rtol=1e-8)
        np.testing.assert_allclose(Q * np.sqrt(norm2[m]), [q[m]], rtol=1e-8)

    def evidence(*pair):
        changed = alpha.copy()
        changed[free[index[[0, 2]]]] = np.exp(pair) * norm2[free[index[[0, 2]]]]
        return reference.log_evidence(design, t, changed, 0.2)

    S, Q = block.without(state.v[index], np.array([0, 2]))
    change = pair_likelihood(S, Q, np.array([1.0, -2.0])) - pair_likelihood(S, Q, np.array([-1.0, 3.0]))
    np.testing.assert_allclose(change, evidence(1.0, -2.0) - evidence(-1.0, 3.0), rtol=1e-8)


@pytest.mark.parametrize("name", ["tall", "wide"])
def test_the_changes_of_a_sweep_add_up(name):
    # 40 columns: more than one block, and columns that nearly depend on each other
    x = np.linspace(-10, 10, 60 if name == "tall" else 30)
    design = np.exp(-(np.subtract.outer(x, np.linspace(-10, 10, 40)) ** 2) / 9)
    kernel, args = (
        ExchangeGibbs(sbl.Smoothness("BIC", low=1e-4, high=1e6)),
        (design, np.sinc(x / 3) + 0.1 * np.cos(9 * x)),
    )
    state = kernel.init(jax.random.key(1), 0, None, args, {})
    step = jax.jit(lambda state: kernel.sample(state, args, {}))
    for _ in range(10):
        state = step(state)
        assert state.drift < 1e-8
        assert 0.9 < state.accept_prob <= 1
        assert 0 < state.exchange_accept_prob <= 1
    v, log_noise = np.asarray(state.v), float(state.log_noise)
    unit = design / np.linalg.norm(design, axis=0)
    exact = reference.log_evidence(unit, args[1], np.exp(v), np.exp(log_noise))
    np.testing.assert_allclose(state.log_likelihood, exact, rtol=1e-8)


@pytest.mark.parametrize(("free", "blocks"), [(70, 3), (64, 2), (5, 1)])
def test_partition_holds_every_column(free, blocks):
    weight = np.exp(-np.abs(np.subtract.outer(np.arange(free), np.arange(free))) / 4.0) - np.eye(free)
    index = np.asarray(partition(jax.random.key(0), jnp.asarray(weight), blocks))
    assert index.shape == (blocks, -(-free // blocks))
    assert set(index.ravel()) == set(range(free))
    assert all(len(set(row)) == len(row) for row in index)


@pytest.mark.parametrize("name", PRIORS)
def test_acceptance_of_conditional_draws(name):
    rng = np.random.default_rng(0)
    log_s, quality = rng.uniform(-8, 8, 2000), np.exp(rng.uniform(-8, 8, 2000))
    kernel = ExchangeGibbs(PRIORS[name][0])
    problem = kernel._prepare(np.eye(2), np.ones(2))
    prior = kernel._conditional(problem, problem.low, problem.low, jnp.zeros(()))
    target = prior.at(np.zeros(2000, int))._replace(log_s=jnp.asarray(log_s), quality=jnp.asarray(quality))
    v = jnp.asarray(rng.uniform(np.log(LOW), np.log(HIGH), 2000))
    for _ in range(3):
        v, probability = draw_conditional(target, v, jnp.asarray(rng.uniform(size=(2000, 2))), 12)
    assert np.all((v >= target.low) & (v <= target.high))
    assert probability.mean() > 0.9


# -- draws against draws; against quadrature they are held in test_quadrature.py


def log_alpha_of(kernel, args, **options):
    """Chains of log(alpha) (chains, draws, M) and log(sigma^2) (chains, draws)."""
    mcmc = MCMC(
        kernel,
        num_warmup=100,
        num_samples=600,
        num_chains=48,
        chain_method="vectorized",
        progress_bar=False,
    )
    mcmc.run(jax.random.key(options.get("seed", 0)), *args)
    return {name: np.log(x) for name, x in mcmc.get_samples(group_by_chain=True).items()}


@pytest.mark.slow
def test_orthonormal_equals_the_matrix():
    rng = np.random.default_rng(3)
    z = rng.standard_normal(6) * [3, 1, 1, 0.3, 0.3, 0.1]
    options = {"prior": PRIORS["smooth-log"][0], "noise_prior": (2.0, 1.0)}
    one = log_alpha_of(ExchangeGibbs(**options), (Orthonormal(6), jnp.asarray(z)))
    two = log_alpha_of(ExchangeGibbs(**options), (jnp.eye(6), jnp.asarray(z)), seed=1)
    for name in one:
        a, b = (x[name].reshape(*x[name].shape[:2], -1) for x in (one, two))
        for f in (lambda x: x, np.square):
            variance = sum(np.var(f(x), (0, 1)) / effective_sample_size(f(x)) for x in (a, b))
            assert np.all(np.abs(f(a).mean((0, 1)) - f(b).mean((0, 1))) < 4 * np.sqrt(variance))


# -- exact draws of everything stay exact draws


HUB = np.array([[1.0, 2.0, 0, 0], [1.0, 0, 2.0, 0], [1.0, 0, 0, 0.5]])  # one column resembles each of the others


def prior_draws(rng, name, sigma2, norm2):
    """Exact draws of v given sigma^2, one for each, by rejection and inversion."""
    _, kind, p = PRIORS[name]
    low, high, uniform = np.log(LOW), np.log(HIGH), rng.uniform(size=sigma2.shape)
    if kind == "gamma":
        ends = [reference.special.gammainc(p["a"], p["b"] * x) for x in (LOW, HIGH)]
        return np.log(reference.special.gammaincinv(p["a"], ends[0] + uniform * (ends[1] - ends[0])) / p["b"])
    power = p["zeta"] + 1 if kind == "power" else float(p["measure"] == "alpha")
    if power:
        v = np.log(LOW**power + uniform * (HIGH**power - LOW**power)) / power
    else:
        v = low + uniform * (high - low)
    if kind == "smoothness":
        norm2 = 1.0 if p.get("raw") else norm2
        kappa, least = (1 / (1 + sigma2 * alpha / norm2) for alpha in (np.exp(v), HIGH))
        rejected = rng.uniform(size=sigma2.shape) > np.exp(p["c"] * (least - kappa))
        if rejected.any():
            v[rejected] = prior_draws(rng, name, sigma2[rejected], norm2)  # and again, until all are accepted
    return v


def z_scores(kernel_class, name, design=HUB, num=10_000, num_sweeps=4, fixed=None, **options):
    """z-scores of the changes of many functions of (v, log sigma^2, t), after a few sweeps from exact draws."""
    rng = np.random.default_rng(7)
    Phi = np.eye(design.num_obs) if isinstance(design, Orthonormal) else design
    n, m = Phi.shape
    g, h = 2.0, 1.0
    sigma2 = h / rng.gamma(g, size=num)
    v = np.stack([prior_draws(rng, name, sigma2, phi @ phi) for phi in Phi.T], 1)
    if fixed is not None:
        v[:, ~np.isnan(fixed)] = np.log(fixed[~np.isnan(fixed)])
    w = rng.standard_normal((num, m)) * np.exp(-v / 2)
    t = w @ Phi.T + np.sqrt(sigma2)[:, None] * rng.standard_normal((num, n))
    kernel = kernel_class(PRIORS[name][0], noise_prior=(g, h), fixed_alpha=fixed, **options)
    v = v if fixed is None else v[:, np.isnan(fixed)]

    def replicate(key, t, alpha, log_noise):
        args = (design, t)
        state = kernel.init(key, 0, {"alpha": alpha, "noise_variance": log_noise}, args, {})
        state = sweeps(kernel, state, args, num_sweeps)
        return values(kernel, state, args)

    keys = jax.random.split(jax.random.key(8), num)
    start = (keys, jnp.asarray(t), jnp.asarray(unconstrained(np.exp(v))), jnp.log(sigma2))
    # In small batches: XLA's factorisations of many matrices at once may wait for each other for ever
    after = jax.jit(lambda start: jax.lax.map(lambda x: replicate(*x), start, batch_size=250))(start)
    columns = Phi if fixed is None else Phi[:, np.isnan(fixed)]
    fit = np.log(np.square(t @ columns) / np.sum(columns**2, 0))
    size = np.log(np.sum(t**2, 1))

    centre, middle = v.mean(0), np.log(sigma2).mean()

    def functions(v, log_noise):
        kappa = 1 / (1 + np.exp(log_noise)[:, None] * np.exp(v))
        x, y = v - centre, log_noise - middle
        single = [y, y**2, y * (size - size.mean()), np.exp(-log_noise), x.mean(1) * y]
        precision = np.exp(v) if fixed is None else np.where(np.isnan(fixed), 0.0, fixed) + np.zeros((num, 1))
        if fixed is not None:
            precision[:, np.isnan(fixed)] = np.exp(v)
        C = np.exp(log_noise)[:, None, None] * np.eye(n) + Phi / precision[:, None] @ Phi.T
        solved = np.linalg.solve(C, t[..., None])[..., 0]
        single += [np.linalg.slogdet(C)[1], np.log(np.sum(t * solved, 1))]
        several = [x, x**2, x * (fit - fit.mean(0)), x * y[:, None], x * np.roll(x, 1, axis=1), kappa]
        return np.concatenate([np.stack(single, 1), *several], 1)

    change = functions(np.log(after["alpha"]), np.log(after["noise_variance"])) - functions(v, np.log(sigma2))
    return change.mean(0) / (change.std(0) / np.sqrt(num))


LIMIT = 4.5

RIGHT = {
    "strong": {},
    "smooth-alpha": {},
    "smooth-raw": {},
    "gamma": {"fixed": np.array([np.nan, 0.5, np.nan, np.nan])},
    "power": {"design": HUB[:2, :3]},
    "jeffreys": {"design": Orthonormal(3)},
}


@pytest.mark.slow
@pytest.mark.parametrize("name", RIGHT)
def test_exact_draws_stay_exact(name):
    z = z_scores(ExchangeGibbs, name, **RIGHT[name])
    assert np.max(np.abs(z)) < LIMIT


class NoisePriorIgnored(ExchangeGibbs):
    def _seen_noise(self, log_noise):
        return jnp.zeros_like(log_noise)


class NoNormaliser(ExchangeGibbs):
    def _log_normaliser(self, precision):
        mode, log_total = super()._log_normaliser(precision)
        return mode, jnp.zeros_like(log_total)


class WrongInverseGamma(ExchangeGibbs):
    def _log_noise_prior(self, problem, log_noise):
        return super()._log_noise_prior(problem, log_noise) + 2 * log_noise  # x^-(g - 1) for x^-(g + 1)


class NoProposalRatio(ExchangeGibbs):
    def _exchange_correction(self, log_total, i, j):
        return 0.0


class NoiseGivenWeights(ExchangeGibbs):
    """sigma^2 from its inverse gamma given the weights: right only if no prior of a precision depends on it."""

    def _weights(self, key, problem, v, log_noise):
        # By a draw of everything and a correction by its misfit
        Phi, sd = problem.columns, jnp.exp(log_noise / 2)
        n, m = Phi.shape
        normal = jax.random.normal(key, (m + n,))
        w = normal[:m] * jnp.exp(-v / 2)
        C = sd**2 * jnp.eye(n) + Phi * jnp.exp(-v) @ Phi.T
        misfit = problem.t - Phi @ w - sd * normal[m:]
        return w + jnp.exp(-v) * (Phi.T @ cho_solve((jnp.linalg.cholesky(C), True), misfit))

    def _update_noise(self, key, likelihood, problem, v, log_noise, now, log_step):
        key, key_weights = jax.random.split(key)
        w = self._weights(key_weights, problem, v, log_noise)
        rest = jnp.sum((problem.t - problem.columns @ w) ** 2)
        shape = self._noise_prior[0] + len(problem.t) / 2
        log_noise = jnp.log(dist.InverseGamma(shape, self._noise_prior[1] + rest / 2).sample(key))
        return log_noise, likelihood(jnp.exp(log_noise)), jnp.ones(())


class StaleWeights(NoiseGivenWeights):
    """... and from weights that were drawn before the precisions."""

    def _sweep(self, state, orthonormal):
        self._old = super()._weights(jax.random.fold_in(state.rng_key, 1), state.problem, state.v, state.log_noise)
        # XLA's batched factorisations may block each other if two of them run at once: these weights come first
        state, self._old = jax.lax.optimization_barrier((state, self._old))
        return super()._sweep(state, orthonormal)

    def _weights(self, *args):
        return self._old


@pytest.mark.slow
def test_noise_given_weights_is_right_where_it_should_be():
    # The control for the two faults below: the overridden step itself raises no alarm
    assert np.max(np.abs(z_scores(NoiseGivenWeights, "jeffreys", design=0.3 * np.eye(3), num=20_000))) < LIMIT


@pytest.mark.slow
@pytest.mark.parametrize(
    ("fault", "name", "options"),
    [
        (NoisePriorIgnored, "strong", {}),
        (NoNormaliser, "smooth-log", {}),
        (WrongInverseGamma, "smooth-log", {}),
        (NoProposalRatio, "smooth-log", {"num_exchanges": 20}),
        (NoiseGivenWeights, "strong", {}),
        (StaleWeights, "jeffreys", {"design": 0.3 * np.eye(3), "num": 20_000}),
    ],
    ids=lambda x: x.__name__ if isinstance(x, type) else "",
)
def test_planted_faults_are_found(fault, name, options):
    assert np.max(np.abs(z_scores(fault, name, **options))) > 1.5 * LIMIT


# -- as a NumPyro kernel


ARGS = data(10, 4)


def run(method="sequential", chains=2, key=0, fields=(), num_warmup=20, num_samples=30, **options):
    mcmc = MCMC(
        ExchangeGibbs(**options),
        num_warmup=num_warmup,
        num_samples=num_samples,
        num_chains=chains,
        chain_method=method,
        progress_bar=False,
    )
    mcmc.run(jax.random.key(key), *ARGS, extra_fields=fields)
    return mcmc


FIELDS = ("accept_prob", "exchange_accept_prob", "noise_accept_prob", "potential_energy", "drift", "log_step")


def test_chain_methods_agree():
    runs = [run(method, fields=FIELDS) for method in ("sequential", "vectorized")]
    samples = [mcmc.get_samples(group_by_chain=True) for mcmc in runs]
    assert samples[0]["alpha"].shape == (2, 30, 4)
    assert samples[0]["noise_variance"].shape == (2, 30)
    # The chains draw the same numbers; sums in another order make the values differ in the last digits
    for name in samples[0]:
        np.testing.assert_allclose(samples[0][name], samples[1][name], rtol=1e-5)
    fields = runs[0].get_extra_fields(group_by_chain=True)
    assert set(fields) == set(FIELDS)
    assert all(x.shape == (2, 30) and np.all(np.isfinite(x)) for x in fields.values())
    assert np.all(fields["log_step"] == fields["log_step"][:, :1])  # adapted in warmup only
    assert not np.array_equal(samples[0]["alpha"][0], samples[0]["alpha"][1])


@pytest.mark.slow
def test_parallel_chains():
    code = """if True:
        import jax, numpy as np
        from numpyro.infer import MCMC
        import sbl_ppl as sbl
        from sbl_ppl.gibbs import ExchangeGibbs
        assert jax.local_device_count() == 2
        design = np.random.default_rng(0).standard_normal((8, 3))
        with jax.enable_x64(True):
            mcmc = MCMC(ExchangeGibbs(sbl.Jeffreys()), num_warmup=5, num_samples=7, num_chains=2, progress_bar=False)
            mcmc.run(jax.random.key(0), design, design[:, 0])
            alpha = mcmc.get_samples(group_by_chain=True)["alpha"]
        assert alpha.shape == (2, 7, 3) and np.all(np.isfinite(alpha)) and not np.array_equal(alpha[0], alpha[1])
    """
    env = {**os.environ, "XLA_FLAGS": "--xla_force_host_platform_device_count=2", "JAX_PLATFORMS": "cpu"}
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("method", ["sequential", "vectorized"])
def test_a_run_goes_on_bit_for_bit(method):
    whole = run(method, num_samples=40)
    part = run(method, num_samples=20)
    first = part.get_samples(group_by_chain=True)["alpha"]
    part.post_warmup_state = pickle.loads(pickle.dumps(jax.tree.map(np.asarray, part.last_state._replace(rng_key=0))))
    part.post_warmup_state = part.post_warmup_state._replace(rng_key=part.last_state.rng_key)
    part.run(part.last_state.rng_key, *ARGS)
    both = np.concatenate([first, part.get_samples(group_by_chain=True)["alpha"]], 1)
    np.testing.assert_array_equal(both, whole.get_samples(group_by_chain=True)["alpha"])


def test_init_params_are_those_of_nuts():
    kernel = ExchangeGibbs(PRIORS["smooth-log"][0])
    alpha = np.array([0.011, 0.5, 30.0, 99.0])
    state = kernel.init(jax.random.key(0), 0, {"alpha": unconstrained(alpha), "noise_variance": np.log(0.3)}, ARGS, {})
    sample = values(kernel, state, ARGS)
    np.testing.assert_allclose(sample["alpha"], alpha, rtol=1e-12)
    np.testing.assert_allclose(sample["noise_variance"], 0.3, rtol=1e-12)
    joint, _ = log_density(kernel.model, ARGS, {}, sample)
    np.testing.assert_allclose(-state.potential_energy, joint + np.log(alpha).sum() + np.log(0.3), rtol=1e-10)


def test_random_starts_lie_inside_the_bounds_and_differ():
    kernel = ExchangeGibbs(PRIORS["smooth-log"][0])
    state = kernel.init(jax.random.split(jax.random.key(0), 50), 0, None, ARGS, {})
    alpha = jax.vmap(lambda z: kernel.postprocess_fn(ARGS, {})(z)["alpha"])(state.z)
    assert np.all((alpha > LOW) & (alpha < HIGH))
    assert len(np.unique(alpha)) == alpha.size


def test_bound_prior_and_keyword_arguments():
    design, t = ARGS
    prior = sbl.Smoothness("BIC")
    bound = prior.natural(10, np.sum(design**2, 0), np.mean(t**2))
    states = []
    for kernel, args, kwargs in [
        (ExchangeGibbs(prior), ARGS, {}),
        (ExchangeGibbs(bound), (), {"design": design, "t": t}),
    ]:
        state = kernel.init(jax.random.key(0), 0, None, args, kwargs)
        states.append(kernel.sample(state, args, kwargs))
    np.testing.assert_allclose(states[0].v, states[1].v, rtol=1e-8)
    np.testing.assert_allclose(states[0].potential_energy, states[1].potential_energy, rtol=1e-8)


def test_units_do_not_matter():
    design, t = ARGS
    scale = np.array([1e3, 1e-2, 1.0, 7.0])
    one = run(chains=1, num_warmup=5, num_samples=5)
    other = MCMC(ExchangeGibbs(), num_warmup=5, num_samples=5, progress_bar=False)
    other.run(jax.random.key(0), design * scale, 100 * t)
    for name, factor in (("alpha", scale**2 / 1e4), ("noise_variance", 1e4)):
        np.testing.assert_allclose(other.get_samples()[name], one.get_samples()[name] * factor, rtol=1e-6)


def test_arviz_reads_a_run():
    import arviz as az

    posterior = az.from_numpyro(run(fields=("accept_prob", "potential_energy"))).posterior
    assert posterior["alpha"].shape == (2, 30, 4)
    assert posterior["noise_variance"].shape == (2, 30)


def test_diagnostics_tell_three_acceptances():
    kernel = ExchangeGibbs()
    state = kernel.sample(kernel.init(jax.random.key(0), 0, None, ARGS, {}), ARGS, {})
    text = kernel.get_diagnostics_str(state)
    assert all(word in text for word in ("acc. prob=", "exchange=", "noise="))


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"noise_variance": -1.0}, "noise_variance=-1.0"),
        ({"noise_prior": (1.0, -1.0)}, "noise_prior="),
        ({"num_exchanges": -1}, "num_exchanges=-1"),
        ({"num_noise_steps": 0}, "num_noise_steps=0"),
        ({"grid_size": 3}, "grid_size=3"),
    ],
)
def test_bad_options_are_named(options, match):
    with pytest.raises(ValueError, match=match):
        ExchangeGibbs(**options)


@pytest.mark.parametrize(
    ("args", "match"),
    [
        ((np.ones(3), np.ones(3)), "design has shape"),
        ((np.ones((3, 2)), np.ones(4)), "t has shape"),
        ((np.ones((3, 2)), np.array([1.0, np.nan, 0.0])), "t has entries"),
        ((np.full((3, 2), np.inf), np.ones(3)), "design has entries"),
        ((np.ones((3, 2)), np.zeros(3)), "t is zero"),
        ((np.ones((3, 2)),), "t=None"),
    ],
)
def test_bad_data_are_named(args, match):
    with pytest.raises(ValueError, match=match):
        ExchangeGibbs().init(jax.random.key(0), 0, None, args, {})


def test_other_bad_arguments_are_named():
    with pytest.raises(TypeError, match="prior='BIC'"):
        ExchangeGibbs("BIC")
    with pytest.raises(TypeError, match="constructor"):
        ExchangeGibbs().init(jax.random.key(0), 0, None, ARGS, {"prior": sbl.Flat()})
    with pytest.raises(ValueError, match="fixed_alpha"):
        ExchangeGibbs(fixed_alpha=np.ones(3)).init(jax.random.key(0), 0, None, ARGS, {})
    with pytest.raises(ValueError, match=r"init_params\['alpha'\]"):
        ExchangeGibbs(noise_variance=1.0).init(jax.random.key(0), 0, {"alpha": np.zeros(3)}, ARGS, {})


@pytest.mark.parametrize("prior", [None, sbl.Gamma(), sbl.Flat()], ids=["smoothness", "gamma", "flat"])
def test_float32_stays_finite(prior):
    design, t = data(20, 8)
    with jax.enable_x64(False):
        kernel, args = ExchangeGibbs(prior), (jnp.asarray(design), jnp.asarray(t))
        state = kernel.init(jax.random.key(0), 50, None, args, {})
        state = jax.jit(sweeps, static_argnums=(0, 3))(kernel, state, args, 100)
        sample = values(kernel, state, args)
        assert sample["alpha"].dtype == np.float32
        assert np.isfinite(state.potential_energy)
        assert np.all(np.isfinite(sample["alpha"]))
        assert 0.5 < state.accept_prob <= 1


def test_all_precisions_fixed_but_one_and_a_column_of_zeros():
    design, t = data(10, 3)
    design[:, 1] = 0.0
    kernel = ExchangeGibbs(PRIORS["smooth-raw"][0], fixed_alpha=[0.5, np.nan, 0.5])
    state = kernel.init(jax.random.key(0), 0, None, (design, t), {})
    state = sweeps(kernel, state, (design, t), 5)
    assert np.isfinite(state.potential_energy)
    assert LOW <= values(kernel, state, (design, t))["alpha"][0] <= HIGH


def test_orthonormal_sweeps_of_a_long_signal_are_fast():
    z = np.random.default_rng(0).standard_normal(2**14) * np.where(np.arange(2**14) < 200, 5.0, 0.1)
    kernel, args = ExchangeGibbs(), (Orthonormal(2**14), jnp.asarray(z))
    state = kernel.init(jax.random.key(0), 0, None, args, {})
    state = jax.jit(sweeps, static_argnums=(0, 3))(kernel, state, args, 20)
    assert abs(state.log_noise - np.log(0.01)) < 0.2


class TestSinglePrecision:
    """JAX's default. Fewer, well separated columns than rows keep their digits; others warn when the data are given."""

    def start(self, design, t):
        return ExchangeGibbs().init(jax.random.PRNGKey(0), 10, None, (design, t), {})

    @pytest.mark.parametrize(("n", "m"), [(20, 20), (20, 40)])
    def test_as_many_columns_as_rows_warn(self, n, m):
        with jax.enable_x64(False), pytest.warns(UserWarning, match=rf"{m} columns and {n} rows.*jax.enable_x64\(True"):
            self.start(*data(n, m))

    def test_nearly_dependent_columns_warn_once_for_all_chains(self):
        design, t = data(20, 4)
        design[:, 3] = design[:, 0] + 1e-4 * design[:, 1]
        with jax.enable_x64(False):
            mcmc = MCMC(ExchangeGibbs(), num_warmup=2, num_samples=2, num_chains=2, chain_method="sequential")
            with pytest.warns(UserWarning, match="nearly dependent.*enable_x64"):
                mcmc.run(jax.random.PRNGKey(0), design, t)
            self.start(design, t)
        self.start(design.copy(), t)  # nor in float64

    def test_well_separated_columns_keep_their_digits(self):
        """Summed over a sweep, the changes of log p(t) are right within a thousandth: eps times the condition."""
        design, t = data(20, 4)
        assert np.linalg.cond(design / np.linalg.norm(design, axis=0)) < 10
        with jax.enable_x64(False):
            mcmc = MCMC(ExchangeGibbs(), num_warmup=20, num_samples=100, progress_bar=False)
            mcmc.run(jax.random.PRNGKey(0), design, t, extra_fields=("drift",))
            self.start(Orthonormal(20), t)
        assert mcmc.get_samples()["alpha"].dtype == np.float32
        assert np.max(mcmc.get_extra_fields()["drift"]) < 1e-3
