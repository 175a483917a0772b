"""How well a point estimate predicts what it has not seen: the MAP found anew without each fold of the observations.

The precisions of a fit were chosen with every t_n in sight, so that densities of t_n given the others at these
precisions (`MapFit.leave_one_out`) flatter it. Here the whole fit, columns, precisions and noise, is repeated without
the fold. The dictionary stays: a kernel centred at an input that is left out is known without its t.
"""

from __future__ import annotations

import numpy as np

from .map_fit import MapFit

Array = np.ndarray

_ALL = 500  # observations up to which each is left out by itself
_FOLDS = 20  # of larger sets
_DENSE = 4096  # observations of a wavelet basis beyond which its columns, less some rows, are too many


def folds_of(n: int, seed: int = 0) -> list[Array]:
    """Each observation by itself, or twenty random folds of more than 500."""
    if n <= _ALL:
        return [np.array([k]) for k in range(n)]
    return np.array_split(np.random.default_rng(seed).permutation(n), _FOLDS)


def held_out_terms(fit: MapFit) -> Array | None:
    """log p(t_n | what was found without its fold), shape (N,); None where a refit would need a huge matrix."""
    n = len(fit.t)
    if n < 3 or (fit.design.orthonormal and n > _DENSE):
        return None
    terms = np.empty(n)
    for fold in folds_of(n):
        less = fit.without(fold)
        values = less.design.evaluate(fold, less.active)
        mean = values @ less.mean + less.offset
        variance = np.einsum("ij,jk,ik->i", values, less.covariance, values)
        variance += less.noise_variance * (1.0 + less.intercept_share)
        terms[fold] = -0.5 * (np.log(2 * np.pi * variance) + (fit.t[fold] - mean) ** 2 / variance)
    return terms
