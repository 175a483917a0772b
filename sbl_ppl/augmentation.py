"""Honest bands where no kept kernel reaches: one more kernel at each new input, integrated out.

A sparse model with local kernels is sure of zero far from its kept columns, where it knows nothing. The remedy of
Rasmussen & Quiñonero-Candela (2005): for a prediction at x*, and for it alone, the model gets a kernel k(., x*) whose
weight has the spread of t as its prior standard deviation. With C of the model before, S = k' C^-1 k and
Q = k' C^-1 t, that weight has variance 1 / (1/spread^2 + S) and mean Q times this, and moves the function at x* by

    r = k(x*, x*) - phi(x*)' beta Sigma Phi' k

of it: what of the new kernel the kept columns do not do already. Far from all data r is 1 and S is 0, so that the band
is that of t; among the data S is large and little changes.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from .dictionary import Dictionary, Gaussian, as_inputs

Array = np.ndarray


def own_kernels(dictionary: Dictionary, x: Any, x_new: Any, centered: bool) -> tuple[Array, Array]:
    """Kernels at the new inputs: over the training inputs, shape (K, N), and at their own centres, shape (K,)."""
    found = [part for part in dictionary.parts if isinstance(part, Gaussian)]
    if not found:
        raise ValueError(
            "augment=True adds a kernel at each new input, and the dictionary has no Gaussian: other columns do not "
            "vanish far from the data, so leave augment out"
        )
    widest = max(found, key=lambda part: float(np.max(part.width)))
    points, new = as_inputs(x), as_inputs(x if x_new is None else x_new, "x_new")
    columns, peaks = widest.between(new, points), np.ones(len(new))
    means = columns.mean(axis=1) if centered else np.zeros(len(new))
    return columns - means[:, None], peaks - means


def augment(
    own: tuple[Any, Any], model: tuple[Any, Any, Any], values: Any, residual: Any, beta: Any, precision: float
) -> tuple[Any, Any]:
    """How mean and variance of the function at the new inputs change; for arrays of NumPy or of JAX.

    Parameters
    ----------
    own : (array of shape (K, N), array of shape (K,))
        What `own_kernels` gives.
    model : (Phi, Sigma, alpha)
        Columns (N, S), covariance and precisions of their weights.
    values : array of shape (K, S)
        The columns at the new inputs.
    residual : array of shape (N,)
        t - Phi mu.
    beta, precision : float
        1 / sigma^2, and the precision of the new weight.
    """
    (columns, peaks), (Phi, Sigma, alpha) = own, model
    v = beta * (Sigma @ (Phi.T @ columns.T))
    rest = columns.T - Phi @ v
    S = beta * (rest**2).sum(0) + (alpha[:, None] * v**2).sum(0)  # as a minimum over v: no cancellation
    reach = peaks - (values.T * v).sum(0)
    step = reach / (precision + S)
    return step * beta * (columns @ residual), step * reach
