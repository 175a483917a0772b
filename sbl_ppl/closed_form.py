"""The type-II MAP of an orthonormal dictionary, in closed form but for the noise: O(N) in all."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from .priors import BoundPrior
from .problem import FLOOR, Noise, Problem, Solution, overfit_reason, overfits

Array = np.ndarray


def is_orthonormal(problem: Problem) -> bool:
    """Whether the unit-norm columns are orthonormal; probed with random vectors, O(N M), where not known."""
    design = problem.design
    if design.orthonormal:
        return True
    if design.n_columns > design.n_rows or not isinstance(problem.prior.rho, float):
        return False
    probe = np.random.default_rng(0).standard_normal((2, design.n_columns))
    for v in probe:
        back = design.project(design.combine(v / problem.norms)) / problem.norms
        if np.abs(back - v).max() > 1e-10 * np.abs(v).max():
            return False
    return True


def solve_orthonormal(problem: Problem) -> Solution:
    """The closed form: given sigma^2 the columns are independent, s = beta and q = beta z; search over sigma^2 alone.

    For the smoothness prior alpha = beta / (beta z^2 - 1 - 2c) if beta z^2 > 1 + 2c, else infinity (SE07 eq. 46-49,
    which factor here).
    """
    z2, prior, noise = problem.z**2, problem.prior, problem.noise
    n, total = len(problem.t), float(problem.t @ problem.t)
    beta = 1.0 / noise.fixed if noise.fixed else _profile_maximum(z2, total, n, prior, noise)
    alpha, gain = prior.maximise(np.full(len(z2), beta), beta**2 * z2, beta)
    index = np.flatnonzero(np.isfinite(alpha))
    alpha, z = alpha[index], problem.z[index]
    variance = 1.0 / (alpha + beta)
    mu = beta * variance * z
    residual2 = max(total - z2[index].sum(), 0.0) + ((z - mu) ** 2).sum()
    evidence = n * np.log(beta / (2 * np.pi)) - np.log1p(beta / alpha).sum() - beta * residual2 - alpha @ mu**2
    objective = 0.5 * (n * np.log(beta / (2 * np.pi)) - beta * total) + gain.sum() + noise.log_prior(beta)
    converged, reason = True, "closed form of an orthonormal dictionary"
    if not noise.fixed and overfits(float((beta * variance).sum()), n):
        converged, reason = False, overfit_reason(len(index), beta)
    return Solution(index, alpha, mu, variance, beta, 0.5 * evidence, converged, reason, [objective], 1)


def _profile_maximum(z2: Array, total: float, n: int, prior: BoundPrior, noise: Noise) -> float:
    """The noise precision that maximises the profile of an orthonormal dictionary.

    The profile can have several maxima (SE07's RIC rows sit on a lower one), so it is scanned on a grid, with z^2
    grouped into bins where there are many; then the zero of its slope is bracketed on the data themselves.
    """
    grid = np.linspace(np.log(FLOOR), np.log(4.0), 193)  # log noise variance
    values, weights = _group(z2) if prior.uniform and len(z2) > 2048 else (z2, np.ones(len(z2)))
    beta = np.exp(-grid)
    heights = 0.5 * n * np.log(beta) - 0.5 * beta * total
    heights += (noise.shape + 1.0) * np.log(beta) - noise.rate * beta
    if prior.smooth and prior.uniform:
        v = np.maximum(np.multiply.outer(beta, values) - 2.0 * prior.c, 1.0)
        heights += 0.5 * (v - 1.0 - np.log(v)) @ weights
    else:
        heights += [prior.gains(np.full(len(values), b), b**2 * values, b) @ weights for b in beta]

    def slope(log_variance: float) -> float:
        """Derivative of the profile in log sigma^2; alpha stands still, because it is at its best (T01 eq. 45)."""
        b = np.exp(-log_variance)
        live = np.flatnonzero(b * z2 > threshold)
        chosen, z2_live = prior.at(live), z2[live]
        alpha = chosen.maximise(np.full(len(live), b), b**2 * z2_live, b)[0]
        kept = np.isfinite(alpha)
        chosen, alpha, z2_live = chosen.at(np.flatnonzero(kept)), alpha[kept], z2_live[kept]
        gamma = b / (alpha + b)
        residual2 = total - z2_live @ (gamma * (2.0 - gamma))
        likelihood = 0.5 * (n - b * residual2 - gamma.sum())
        return -float(likelihood + chosen.derivatives(alpha, b)[2].sum() + noise.shape + 1.0 - noise.rate * b)

    threshold = 1.0 + 2.0 * prior.c if prior.smooth and prior.uniform else -1.0
    best = int(heights.argmax())
    low, high = max(best - 1, 0), min(best + 1, len(grid) - 1)
    while low > 0 and slope(grid[low]) < 0:  # the bins may have misplaced the maximum by a cell
        low -= 1
    while high < len(grid) - 1 and slope(grid[high]) > 0:
        high += 1
    return float(np.exp(-_falling_zero(slope, grid[low], grid[high])))


def _group(z2: Array) -> tuple[Array, Array]:
    """z^2 in bins of equal width in the logarithm: the mean of each bin, and its count."""
    logs = np.log(np.maximum(z2, FLOOR))
    low, width = logs.min(), max(np.ptp(logs), 1e-9) / 511.0
    places = ((logs - low) / width).astype(np.intp)
    counts = np.bincount(places)
    sums = np.bincount(places, weights=z2)
    used = counts > 0
    return sums[used] / counts[used], counts[used].astype(float)


def _falling_zero(function: Callable[[float], float], low: float, high: float) -> float:
    """Where a function falls through zero: regula falsi with the Illinois rule, and bisection when it is slow."""
    f_low, f_high = function(low), function(high)
    if f_low <= 0 or f_high >= 0:  # the maximum is at an end
        return low if f_low <= 0 else high
    for k in range(100):
        if high - low < 1e-13:
            break
        middle = (low * f_high - high * f_low) / (f_high - f_low) if k % 4 != 3 else 0.5 * (low + high)
        f_middle = function(middle)
        if f_middle == 0 or abs(f_middle) < 1e-12 * max(abs(f_low), abs(f_high)):
            return middle
        if f_middle > 0:
            low, f_low, f_high = middle, f_middle, 0.5 * f_high
        else:
            high, f_high, f_low = middle, f_middle, 0.5 * f_low
    return 0.5 * (low + high)
