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

from .dictionary import Dictionary, Gaussian, Pair, as_inputs

Array = np.ndarray


def is_local(dictionary: Dictionary) -> bool:
    """Whether the dictionary has kernels that vanish far from their centres, so that augmentation makes sense."""
    return any(isinstance(part, Gaussian) for part in dictionary.parts)


def new_points(x: Any, x_new: Any) -> Array:
    """The inputs of kernels among the new inputs, which may have rows of `Columns` beside them; None is x itself."""
    points = x_new.points if isinstance(x_new, Pair) else x_new
    return as_inputs(x if points is None else points, "x_new")


def own_kernels(dictionary: Dictionary, x: Any, x_new: Any, centered: bool) -> tuple[Array, Array]:
    """Kernels at the new inputs: over the training inputs, shape (K, N), and at their own centres, shape (K,).

    Of several Gaussians the widest. With an intercept they lose their means over the training inputs, as columns do.
    """
    if not is_local(dictionary):
        raise ValueError(
            "augment=True adds a kernel at each new input, and the dictionary has no Gaussian: other columns do not "
            "vanish far from the data, so leave augment out"
        )
    found = [part for part in dictionary.parts if isinstance(part, Gaussian)]
    widest = max(found, key=lambda part: float(np.max(part.width)))
    new = new_points(x, x_new)
    columns = widest.between(new, as_inputs(x))
    means = columns.mean(axis=1) if centered else np.zeros(len(new))
    return columns - means[:, None], 1.0 - means


def augment(
    own: tuple[Any, Any, Any], Sigma: Any, values: Any, projection: Any, beta: Any, precision: float
) -> tuple[Any, Any]:
    """How mean and variance of the function at the new inputs change; for arrays of NumPy or of JAX.

    Parameters
    ----------
    own : arrays of shapes (S, K), (K,), (K,)
        Products Phi' k of the columns with the new kernels, the kernels' squared norms, and their values at their own
        centres.
    Sigma : array of shape (S, S)
        Covariance of the columns' weights.
    values : array of shape (K, S)
        The columns at the new inputs.
    projection : array of shape (K,)
        Products of the new kernels with the residual t - Phi mu.
    beta, precision : float
        1 / sigma^2, and the precision of a new weight.
    """
    overlap, norm2, peaks = own
    v = beta * (Sigma @ overlap)
    S = beta * (norm2 - (overlap * v).sum(0))  # rounding of it is nothing beside the precision that is added
    reach = peaks - (values.T * v).sum(0)
    step = reach / (precision + S * (S > 0))
    return step * beta * projection, step * reach
