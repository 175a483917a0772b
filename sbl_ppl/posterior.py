"""What follows exactly from draws of the hyperparameters: weights, gamma, leave-one-out terms, predictions.

Given alpha and sigma^2 everything is Gaussian, so these quantities carry no Monte Carlo error of their own but for the
drawn weights. The leave-one-out terms log p(t_n | all other t, alpha, sigma^2) come from C^-1 (mean t_n - g_n / k_n,
variance 1 / k_n, with g = C^-1 t and k = diag C^-1). An importance sampler over draws then needs just these terms, also
though the likelihood does not factorise: p(alpha, sigma^2 | all but t_n) is the posterior divided by such a term.

Everything here is in units of the search, and runs in float64 whatever JAX's global setting.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from .augmentation import augment
from .distributions import Orthonormal, SparseNormal
from .model import precision
from .problem import Problem

Array = np.ndarray


def workers() -> int:
    """Threads worth starting. A compiled JAX function runs without Python's lock, so that chains run side by side."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def model_arguments(problem: Problem, fixed_alpha: Array | None = None) -> tuple[tuple[Any, Any], dict[str, Any]]:
    """Arguments of `model` for a standardised problem; z = Phi't for an orthonormal dictionary, where it is enough.

    `fixed_alpha` is in units of the search too.
    """
    noise = problem.noise
    options: dict[str, Any] = {"prior": problem.prior, "noise_variance": noise.fixed}
    options["noise_prior"] = (noise.shape, noise.rate)
    if fixed_alpha is not None:
        options["fixed_alpha"] = fixed_alpha
    if problem.design.orthonormal:
        return (Orthonormal(problem.design.n_rows), problem.z), options
    return problem.contrasts(), options


def _normal_log_density(t: Any, mean: Any, variance: Any) -> Any:
    return -0.5 * (jnp.log(2 * jnp.pi * variance) + (t - mean) ** 2 / variance)


def _describe(
    design: Any, t: Any, prior: Any, observed: Any, alpha: Any, noise_variance: Any, key: Any
) -> dict[str, Any]:
    """All that follows from one draw; `observed` are the columns and t over the observations, not in contrasts."""
    normal = SparseNormal(design, alpha, noise_variance)
    gamma = normal.gamma()
    known = {
        "weights": normal.sample_weights(key, t),
        "gamma": gamma,
        "degrees_of_freedom": gamma.sum(),
        "log_likelihood": normal.log_prob(t),
        "log_prior": precision(prior, noise_variance).log_prob(alpha) + jnp.log(alpha),
    }
    if observed is not None:
        columns, targets, intercept = observed
        mean, variance = SparseNormal(columns, alpha, noise_variance).leave_one_out(targets)
        # With an intercept C^-1 loses what it does to a constant
        left = jnp.maximum(1 - intercept * variance / (len(targets) * noise_variance), jnp.finfo(mean.dtype).eps)
        mean = targets - (targets - mean) / left
        known["leave_one_out"] = _normal_log_density(targets, mean, variance / left)
    return known


def _in_threads(function: Callable[..., Any], arrays: tuple[Array, ...]) -> Any:
    """function of one draw, over the leading axis of arrays, in as many threads as there are cores."""
    count = len(arrays[0])
    size = -(-count // workers())
    mapped = jax.jit(lambda *pieces: jax.lax.map(lambda piece: function(*piece), pieces))
    # Pieces of one length, the last one filled up by repeating its end, so that there is one compilation
    starts = range(0, count, size)
    chosen = [np.minimum(np.arange(start, start + size), count - 1) for start in starts]
    # On the device already: another thread does not know of enable_x64
    pieces = [tuple(jnp.asarray(array[rows]) for array in arrays) for rows in chosen]
    compiled = mapped.lower(*pieces[0]).compile()
    with ThreadPoolExecutor(len(pieces)) as pool:
        results = list(pool.map(lambda piece: jax.tree.map(np.asarray, compiled(*piece)), pieces))
    return jax.tree.map(lambda *parts: np.concatenate(parts)[:count], *results)


def describe(problem: Problem, alpha: Array, noise_variance: Array, keys: Array) -> dict[str, Array]:
    """Weights, gamma, degrees of freedom, log likelihood, log prior and leave-one-out terms of draws.

    `alpha` has shape (draws, M), `noise_variance` (draws,), `keys` (draws, 2). The log prior is that of each alpha per
    d log(alpha), its normaliser included.
    """
    with jax.enable_x64(True):
        (design, t), options = model_arguments(problem)
        observed = None
        if not isinstance(design, Orthonormal):
            observed = problem.design.matrix() / problem.norms, problem.t, problem.design.centered
        known = _in_threads(partial(_describe, design, t, options["prior"], observed), (alpha, noise_variance, keys))
    if "leave_one_out" not in known:
        terms = [_orthonormal_leave_one_out(problem, a, v) for a, v in zip(alpha, noise_variance, strict=True)]
        known["leave_one_out"] = np.array(terms)
    return known


def _orthonormal_leave_one_out(problem: Problem, alpha: Array, noise_variance: float) -> Array:
    """C^-1 = Phi diag(1 / (sigma^2 + 1 / alpha)) Phi', so two transforms do."""
    design = problem.design
    precisions = 1.0 / (noise_variance + 1.0 / alpha)
    k = design.spread(None, np.arange(design.n_columns), precisions)
    g = design.combine(precisions * problem.z)
    return np.asarray(0.5 * (np.log(k / (2 * np.pi)) - g**2 / k))


def predict(
    problem: Problem, alpha: Array, noise_variance: Array, x_new: Any = None, own: tuple[Array, Array] | None = None
) -> tuple[Array, Array]:
    """Mean and variance of the function at inputs for each draw, both of shape (draws, K), in units of the search.

    `own` are kernels at these inputs to augment the model with (`sbl_ppl.augmentation`).
    """
    design, columns = problem.design, np.arange(problem.design.n_columns)
    if design.orthonormal:
        kappa = 1 / (1 + alpha * noise_variance[:, None])
        mean = [design.curve(x_new, columns, k * problem.z) for k in kappa]
        variance = [design.spread(x_new, columns, k * v) for k, v in zip(kappa, noise_variance, strict=True)]
        return np.array(mean), np.array(variance)
    Phi, t = design.matrix() / problem.norms, problem.t
    values = Phi if x_new is None else design.evaluate(x_new, columns) / problem.norms
    if own is not None:
        kernels, peaks = own
        new = (kernels @ Phi).T, np.einsum("ij,ij->i", kernels, kernels), peaks

    def one(alpha: Any, noise_variance: Any) -> tuple[Any, Any]:
        weights, covariance = SparseNormal(Phi, alpha, noise_variance).weights(t)
        mean, variance = values @ weights, jnp.maximum(jnp.sum((values @ covariance) * values, -1), 0)
        if own is not None:
            projection = kernels @ t - weights @ new[0]
            shift, more = augment(new, covariance, values, projection, 1 / noise_variance, 1.0)
            mean, variance = mean + shift, variance + more
        return mean, variance + design.centered * noise_variance / len(t)

    with jax.enable_x64(True):
        return _in_threads(one, (alpha, noise_variance))
