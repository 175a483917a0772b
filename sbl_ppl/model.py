"""Sparse regression as a NumPyro model, alone or as a piece of a larger one.

    MCMC(NUTS(sbl.model), num_warmup=500, num_samples=500).run(key, design, t, prior=sbl.Jeffreys())

The weights are integrated out, so that the sites are `alpha`, `noise_variance` and `t`, all in the user's units:

    noise_variance ~ InverseGamma(g, h),    alpha_m ~ prior,    t ~ N(0, noise_variance I + Phi diag(1/alpha) Phi').

With `weights="centered"` or `"noncentered"` the weights are a site too, for models that need them: then t ~ N(Phi w,
noise_variance I), and the sampler has M more dimensions and a harder geometry. `prefix` keeps the sites of two such
pieces in one program apart. `precision` makes the NumPyro distribution of a prior, for models of your own.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
from numpyro import distributions as dist
from numpyro.util import not_jax_tracer

from .checks import choice, instance, positive, whole_number
from .dictionary import as_numbers
from .distributions import GammaPrecision, Orthonormal, PowerPrecision, SmoothnessPrecision, SparseNormal, check_digits
from .priors import BoundPrior, Prior, Smoothness

Array = jax.Array


def precision(
    prior: Prior | BoundPrior,
    noise_variance: Any = 1.0,
    norm2: Any = 1.0,
    num_obs: int | None = None,
    scale2: Any = 1.0,
) -> dist.Distribution:
    """The NumPyro distribution of precisions under a prior.

    Parameters
    ----------
    prior : Prior
        Such as ``Smoothness("BIC")``.
    noise_variance : array_like
        sigma^2, on which the smoothness prior depends.
    norm2 : array_like
        Squared norms of the columns; its shape is the batch shape (broadcast with that of `noise_variance`). Where the
        columns share one prior, one normaliser serves them all.
    num_obs : int, optional
        N, for the severities "BIC" and "RIC".
    scale2 : array_like
        Mean square of t. Bounds that the prior does not give are 1e-10 and 1e10 times norm2 / scale2.
    """
    instance("prior", prior, (Prior, BoundPrior), "a Prior such as Smoothness('BIC') or Jeffreys()")
    if num_obs is not None:
        whole_number("num_obs", num_obs, 1)
    for name, value in (("noise_variance", noise_variance), ("norm2", norm2), ("scale2", scale2)):
        if value is None or isinstance(value, str | bool):
            raise ValueError(f"{name}={value!r} must be a number or an array of numbers")
    bound = prior if isinstance(prior, BoundPrior) else prior.natural(num_obs, norm2, scale2)
    low, high = bound.low, bound.high
    family: dist.Distribution
    if bound.c:
        measure = "alpha" if bound.exponent == 0 else "log"
        family = SmoothnessPrecision(bound.c, noise_variance, bound.rho, low, high, measure)
    elif jnp.ndim(bound.b) or bound.b:
        family = GammaPrecision(bound.exponent + 1.0, bound.b, low, high)
    else:
        family = PowerPrecision(bound.exponent, low, high)
    return family.expand(jnp.broadcast_shapes(family.batch_shape, jnp.shape(noise_variance), jnp.shape(norm2)))


def noise_prior_distribution(shape: float, rate: Any) -> dist.Distribution:
    """The inverse gamma of a variance, density per d sigma^2; improper if shape or rate is zero."""
    if shape > 0 and (not isinstance(rate, float | int) or rate > 0):
        return dist.InverseGamma(shape, rate)
    return _ImproperInverseGamma(shape, rate)


class _ImproperInverseGamma(dist.ImproperUniform):
    """x^-(shape + 1) exp(-rate / x), which has no integral if shape or rate is zero, and so no draws."""

    def __init__(self, shape: float, rate: float):
        self.shape_parameter, self.rate = shape, rate
        super().__init__(dist.constraints.positive, (), ())

    def log_prob(self, value: Any) -> Array:
        return -(self.shape_parameter + 1.0) * jnp.log(value) - self.rate / value


def free_columns(fixed_alpha: Any, num_columns: int) -> np.ndarray:
    """Indices of the columns whose precision is to be sampled."""
    if fixed_alpha is None:
        return np.arange(num_columns)
    fixed = as_numbers(fixed_alpha, "fixed_alpha")
    if fixed.shape != (num_columns,) or not np.all(np.isnan(fixed) | (fixed > 0)):
        raise ValueError(
            f"fixed_alpha must hold {num_columns} numbers, one a column: positive, or NaN where the precision is "
            f"sampled; got shape {fixed.shape}"
        )
    return np.flatnonzero(np.isnan(fixed))


def _check(design: Any, t: Any, prior: Any, noise_variance: Any, noise_prior: Any, weights: str | None) -> None:
    """Raise ValueError, with the argument's name, for what cannot be a model; of what is traced only shapes are known.

    With NumPy: inside a trace JAX would trace these tests too.
    """
    choice("weights", weights, (None, "centered", "noncentered"))
    if isinstance(design, Orthonormal):
        if weights:
            raise ValueError(f"weights={weights!r} needs the columns: give them as a matrix instead of Orthonormal")
        num_obs = design.num_obs
    elif np.ndim(design) != 2:
        raise ValueError(f"design has shape {np.shape(design)}: give a matrix (N, M) or Orthonormal(N)")
    else:
        num_obs = np.shape(design)[0]
        known = as_numbers(design, "design") if not_jax_tracer(design) else np.ones((1, 1))
        # a column of zeros has no norm to measure a prior by; a prior that is bound already has its measures
        if not (np.isfinite(known).all() and (isinstance(prior, BoundPrior) or known.any(axis=0).all())):
            raise ValueError("design has a column of zeros, or values that are not finite: remove them")
    if t is not None and np.shape(t) != (num_obs,):
        raise ValueError(f"t has shape {np.shape(t)} and design has {num_obs} rows: make them equal")
    known = np.ones(1) if t is None or not not_jax_tracer(t) else as_numbers(t, "t")
    if not (np.isfinite(known).all() and known.any()):
        raise ValueError("t is zero everywhere, or holds values that are not finite: there is no spread to measure by")
    instance("prior", prior, (Prior, BoundPrior), "a Prior such as Smoothness('BIC') or Jeffreys()")
    if noise_variance is not None and not_jax_tracer(noise_variance):
        positive("noise_variance", noise_variance, ", or None to sample it")
    if noise_prior is not None:
        pair = tuple(noise_prior) if np.ndim(noise_prior) == 1 else ()
        if len(pair) != 2 or any(not_jax_tracer(value) and not value >= 0 for value in pair):
            raise ValueError(f"noise_prior={noise_prior!r} must be two numbers (g, h) >= 0")


def model(
    design: Any,
    t: Any = None,
    prior: Prior | BoundPrior | None = None,
    noise_variance: Any = None,
    noise_prior: tuple[float, float] | None = None,
    fixed_alpha: Any = None,
    weights: str | None = None,
    prefix: str = "",
) -> tuple[Array, Array]:
    """Sparse regression of t on the columns of a design, a NumPyro model function.

    With the weights integrated out no site knows the data once alpha and noise_variance are given, and
    ``Predictive(model, samples)`` draws t from N(0, C), not around the observed t. New observations come from the
    weights given t: ``SparseNormal(design, alpha, noise_variance).sample_weights(key, t)``, or from `sample`, which
    returns a group `posterior_predictive`, or with the weights as a site.

    Parameters
    ----------
    design : array_like of shape (N, M), or Orthonormal
        The columns, with all of them orthonormal and M = N in the second case, where t is Phi't.
    t : array_like of shape (N,), optional
        Targets; without them the model draws its own.
    prior : Prior
        Prior of the precisions; default ``Smoothness("BIC")``. Bounds it does not give are relative to the columns'
        norms and to the mean square of t.
    noise_variance : float, optional
        Known noise variance; default a site.
    noise_prior : (g, h), optional
        Inverse gamma of the noise variance; default (1e-4, 1e-4 times the mean square of t), of which most draws are
        infinite: for a prior predictive give another one.
    fixed_alpha : array_like of shape (M,), optional
        Known precisions, NaN where a precision is to be sampled: the site `alpha` has only these. A bias with a small
        fixed precision is never pruned.
    weights : {"centered", "noncentered"}, optional
        Make the weights a site instead of integrating them out.
    prefix : str
        Put before the name of every site, with an underscore.

    Returns
    -------
    alpha, noise_variance
        As sampled (the former with what is fixed), for use in the rest of a program.

    Warns
    -----
    UserWarning
        In float32, if that has too few digits for the design: run inside ``jax.enable_x64(True)``.
    """
    prior = Smoothness("BIC") if prior is None else prior
    _check(design, t, prior, noise_variance, noise_prior, weights)
    instance("prefix", prefix, str, "a string")
    orthonormal = isinstance(design, Orthonormal)
    t = None if t is None else jnp.asarray(t)
    num_obs, num_columns = (design.num_obs, design.num_obs) if orthonormal else np.shape(design)
    free = free_columns(fixed_alpha, num_columns)
    norm2 = 1.0 if orthonormal else jnp.sum(jnp.asarray(design) ** 2, 0)
    if weights is None and num_columns > num_obs:
        check_digits(design, wide=True)
    scale2 = 1.0 if t is None else jnp.mean(jnp.square(t))
    name = (prefix + "_{}" if prefix else "{}").format
    g, h = (1e-4, 1e-4 * scale2) if noise_prior is None else noise_prior
    if noise_variance is None:
        noise_variance = numpyro.sample(name("noise_variance"), noise_prior_distribution(g, h))
    if isinstance(prior, Prior):
        prior = prior.natural(num_obs, norm2, scale2)
    # One normaliser serves all columns where they have one prior
    components = precision(prior.at(free), noise_variance).expand([len(free)]).to_event(1)
    alpha = numpyro.sample(name("alpha"), components)
    if fixed_alpha is not None:
        alpha = jnp.asarray(fixed_alpha, alpha.dtype).at[free].set(alpha)
    if weights is None:
        numpyro.sample(name("t"), SparseNormal(design, alpha, noise_variance), obs=t)
        return alpha, noise_variance
    sd = 1 / jnp.sqrt(alpha)
    if weights == "centered":
        w = numpyro.sample(name("weights"), dist.Normal(0, sd).to_event(1))
    else:
        base = numpyro.sample(name("weights_base"), dist.Normal(jnp.zeros_like(sd), 1).to_event(1))
        w = numpyro.deterministic(name("weights"), sd * base)
    numpyro.sample(name("t"), dist.Normal(jnp.asarray(design) @ w, jnp.sqrt(noise_variance)).to_event(1), obs=t)
    return alpha, noise_variance
