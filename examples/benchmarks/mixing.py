"""Effective draws a second: ExchangeGibbs beside NUTS on the same posterior, and beside other sparse models.

All kernels are NumPyro kernels, driven by the same loop on one core, one chain after the other. Clocks run after
compilation and warm-up. The ESS is ArviZ's bulk ESS, the smallest over all watched quantities; what never mixes has an
ESS of a few whatever its length.
"""

import time
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from numpyro.infer import NUTS
from tables import markdown

import sbl_ppl as sbl
from sbl_ppl.arviz_io import group, rhat_and_ess
from sbl_ppl.distributions import SparseNormal
from sbl_ppl.posterior import model_arguments
from sbl_ppl.sampling import _start

CHAINS = 4
POSTERIORS = {
    "BIC, per dα, bounds 1e±4": sbl.Smoothness("BIC", measure="alpha", normalize=False, low=1e-4, high=1e4),
    "BIC, per d log α, default bounds": sbl.Smoothness("BIC"),
    "Jeffreys, bounds 1e±4": sbl.Jeffreys(low=1e-4, high=1e4),
}


def horseshoe(design, t):
    """w ~ N(0, (λτ)²), half-Cauchy λ and τ, non-centred."""
    noise = numpyro.sample("noise_variance", dist.InverseGamma(1e-4, 1e-4))
    tau = numpyro.sample("tau", dist.HalfCauchy(1.0))
    scale = numpyro.sample("lambda", dist.HalfCauchy(1.0).expand([design.shape[1]]).to_event(1))
    base = numpyro.sample("base", dist.Normal(0, 1).expand([design.shape[1]]).to_event(1))
    numpyro.sample("t", dist.Normal(design @ (base * scale * tau), jnp.sqrt(noise)).to_event(1), obs=t)


def compile_chain(kernel, arguments, options, state, length):
    """A function of state and count that makes count <= length draws."""
    transform = kernel.postprocess_fn(arguments, options)

    def collect(state):
        return transform(getattr(state, kernel.sample_field))

    def one(i, carried):
        state, kept = carried
        state = kernel.sample(state, arguments, options)
        return state, jax.tree.map(lambda all_, new: all_.at[i].set(new), kept, collect(state))

    def advance(state, count):
        like = jax.eval_shape(collect, state)
        kept = jax.tree.map(lambda leaf: jnp.zeros((length, *leaf.shape), leaf.dtype), like)
        return jax.lax.fori_loop(0, count, one, (state, kept))

    return jax.jit(advance).lower(state, jnp.int64(0)).compile()


def measure(kernel, arguments, options, starts, curve, num_warmup, num_samples):
    """Draws of log noise, of the function, and of log alpha if there is one; and the seconds they took."""
    draws, seconds, compiled = [], 0.0, None
    for key, start in zip(jax.random.split(jax.random.PRNGKey(0), CHAINS), starts, strict=True):
        state = kernel.init(key, num_warmup, start, arguments, options)
        compiled = compiled or compile_chain(kernel, arguments, options, state, max(num_warmup, num_samples))
        state, _ = jax.block_until_ready(compiled(state, jnp.int64(num_warmup)))
        begin = time.perf_counter()
        _, kept = jax.block_until_ready(compiled(state, jnp.int64(num_samples)))
        seconds += time.perf_counter() - begin
        draws.append({name: np.asarray(values)[:num_samples] for name, values in kept.items()})
    drawn = {name: np.stack([kept[name] for kept in draws]) for name in draws[0]}
    watched = [np.log(drawn["noise_variance"])[..., None], curve(drawn)]
    if "alpha" in drawn:
        watched.append(np.log(drawn["alpha"]))
    return np.concatenate(watched, -1), seconds


def orthonormal(n, sweeps):
    """Seconds for so many sweeps over a wavelet basis."""
    data = sbl.datasets.bumps(n, snr=7.0)
    problem = sbl.fit_map(None, data.t, sbl.Wavelet("sym8")).problem()
    arguments, options = model_arguments(problem)
    kernel = sbl.ExchangeGibbs(**options)
    state = kernel.init(jax.random.PRNGKey(0), 0, None, arguments, {})
    compiled = compile_chain(kernel, arguments, {}, state, 1)

    begin = time.perf_counter()
    for _ in range(sweeps):
        state, _ = compiled(state, jnp.int64(1))
    jax.block_until_ready(state)
    return f"{sweeps} sweeps of N = M = {n} took {time.perf_counter() - begin:.0f} s"


def blocks_sinc(quick):
    """Four chains over Haar wavelets and thin-plate splines, as `sample` runs them, on all cores."""
    n, lengths = (32, (50, 20)) if quick else (128, (2000, 2500))
    data = sbl.datasets.blocks_sinc(n, snr=7.0)
    fit = sbl.fit_map(data.x, data.t, sbl.Wavelet("haar") + sbl.ThinPlateSpline(3.0))
    begin = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", sbl.SamplingWarning)  # single precisions of splines mix slowly
        post = sbl.sample(fit, num_warmup=lengths[0], num_samples=lengths[1], thin=4, progress=False)
    seconds = time.perf_counter() - begin
    posterior = group(post, "posterior")
    curves = posterior["weights"].values @ fit.design.matrix().T
    scalars = [np.log(posterior["noise_variance"].values), posterior["degrees_of_freedom"].values]
    rhat, ess = rhat_and_ess(np.concatenate([np.stack(scalars, -1), curves], -1))
    drift = group(post, "sample_stats")["drift"]
    return f"""BlocksSinc, N = {n}, {2 * n} columns, BIC, {CHAINS} chains of {lengths[1]} draws, every fourth sweep, in
{seconds:.0f} s on all cores: R-hat of log σ² {rhat[0]:.4f}, of the degrees of freedom {rhat[1]:.4f}, of the function
at its worst point {rhat[2:].max():.4f}; smallest ESS {ess.min():.0f}. Drift of log p(t) over a sweep: median
{float(drift.median()):.0e}, largest {float(drift.max()):.0e}."""


def run(quick: bool) -> str:
    data = sbl.datasets.sinc(64, snr=5.0)
    fit = sbl.fit_map(data.x, data.t, sbl.Gaussian(3.0))
    lengths = {"exchange": (500, 2000), "nuts": (500, 500)}
    if quick:
        lengths = {"exchange": (20, 20), "nuts": (60, 20)}
    rows, summary = [], []
    with jax.enable_x64(True):
        Phi, t = (jnp.asarray(a) for a in model_arguments(fit.problem())[0])

        def collapsed_curve(drawn):
            """A function of α and σ² alone: the mean given them, at every point."""

            def one(alpha, noise):
                return Phi @ SparseNormal(Phi, alpha, noise).weights(t)[0]

            flat = [drawn[name].reshape(-1, *drawn[name].shape[2:]) for name in ("alpha", "noise_variance")]
            means = jax.lax.map(lambda pair: one(*pair), tuple(map(jnp.asarray, flat)))
            return np.asarray(means).reshape(*drawn["alpha"].shape[:2], -1)

        def explicit_curve(drawn):
            weights = drawn.get("weights")
            if weights is None:
                weights = drawn["base"] * drawn["lambda"] * drawn["tau"][..., None]
            return weights @ np.asarray(Phi).T

        def row(name, posterior, *arguments):
            watched, seconds = measure(*arguments)
            rhat, ess = rhat_and_ess(watched)
            rows.append((posterior, name, f"{rhat.max():.3f}", f"{ess.min():.0f}", f"{ess.min() / seconds:.3g}"))
            return ess.min() / seconds

        for posterior, prior in POSTERIORS.items():
            problem = fit.problem(prior)
            _, options = model_arguments(problem)
            starts = [_start(fit, problem, "map", np.asarray(jax.random.PRNGKey(k))) for k in range(CHAINS)]
            own = sbl.ExchangeGibbs(**options)
            rate = row("ExchangeGibbs", posterior, own, (Phi, t), {}, starts, collapsed_curve, *lengths["exchange"])
            apart = [_start(fit, problem, "dispersed", np.asarray(jax.random.PRNGKey(k))) for k in range(CHAINS)]
            row("ExchangeGibbs, dispersed", posterior, own, (Phi, t), {}, apart, collapsed_curve, *lengths["exchange"])
            nuts = NUTS(sbl.model)
            other = row("NUTS", posterior, nuts, (Phi, t), options, starts, collapsed_curve, *lengths["nuts"])
            summary.append(f"{posterior}: {rate / other:.0f}")
        explicit = {"prior": sbl.Smoothness("BIC"), "weights": "noncentered"}
        for name, posterior, other, options in (
            ("NUTS, weights as a site", "BIC, per d log α", NUTS(sbl.model), explicit),
            ("NUTS, horseshoe", "another model", NUTS(horseshoe), {}),
        ):
            row(name, posterior, other, (Phi, t), options, [None] * CHAINS, explicit_curve, *lengths["nuts"])
        long = orthonormal(2**8 if quick else 2**14, 20 if quick else 1000)
    table = markdown(("posterior", "kernel", "largest R-hat", "smallest ESS", "ESS a second"), rows)
    return f"""## Mixing

Sinc, 64 points, 64 Gaussian kernels of width 3; {CHAINS} chains from around the MAP, one core. Watched are log σ², the
function at every point, and every log α where it is sampled.

{table}

ESS a second of ExchangeGibbs over that of NUTS on the same posterior: {"; ".join(summary)}. Where NUTS has an R-hat far
above 1.01 its ESS says only that it did not mix.

An orthonormal dictionary is swept in one vectorised pass: {long}.

{blocks_sinc(quick)}
"""
