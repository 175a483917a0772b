"""The type-II MAP of an orthonormal dictionary, in closed form but for the noise: O(N) in all."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from .priors import BoundPrior
from .problem import COLLAPSED, FLOOR, Noise, Problem, Solution, collapsed, overfit_reason, overfits

Array = np.ndarray


def is_orthonormal(problem: Problem) -> bool:
    """Whether the unit-norm columns are orthonormal; probed with random vectors, O(N M), where not known."""
    design = problem.design
    if design.orthonormal:
        return True
    if design.n_columns > design.n_rows or not isinstance(problem.prior.rho, float):
        return False
    few = problem.columns(np.arange(min(8, design.n_columns)))
    if np.abs(few @ few.T - np.eye(len(few))).max() > 1e-10:  # the usual answer, at once
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
    z, prior, noise, n = problem.z, problem.prior, problem.noise, problem.n
    z2 = z * z
    outside = 0.0  # of |t|^2, in directions that no column has: from the rest itself, |t|^2 - |z|^2 would cancel
    if len(z) < n:
        rest = problem.t - problem.design.combine(z / problem.norms)
        outside = float(rest @ rest)
    beta = 1.0 / noise.fixed if noise.fixed else _profile_maximum(z2, outside, n, prior, noise)
    index = _may_stay(z2, beta, prior)
    alpha, _ = prior.at(index).maximise(np.full(len(index), beta), beta**2 * z2[index], beta)
    kept = np.isfinite(alpha)
    index, alpha = index[kept], alpha[kept]
    z, pruned2 = z[index], float(np.delete(z2, index).sum())
    variance = 1.0 / (alpha + beta)
    mu = beta * variance * z
    residual2 = outside + pruned2 + ((z - mu) ** 2).sum()
    evidence = n * np.log(beta / (2 * np.pi)) - np.log1p(beta / alpha).sum() - beta * residual2 - alpha @ mu**2
    objective = 0.5 * evidence + prior.total(index, alpha, beta, len(z2)) + noise.log_prior(beta)
    converged, reason = True, "closed form of an orthonormal dictionary"
    if not noise.fixed and overfits(float((beta * variance).sum()), n):
        converged, reason = False, overfit_reason(len(index), beta)
    elif not noise.fixed and collapsed(beta):
        converged, reason = False, COLLAPSED
    return Solution(index, alpha, mu, variance, beta, 0.5 * evidence, converged, reason, [objective], 1)


def _profile_maximum(z2: Array, outside: float, n: int, prior: BoundPrior, noise: Noise) -> float:
    """The noise precision that maximises the profile of an orthonormal dictionary.

    The profile can have several maxima, so it is scanned on a grid, with z^2 grouped into bins where there are many.
    The highest is taken; but if it keeps most of the components, few are left to tell the noise, and it may be a spike:
    then the peak that holds most mass in sigma^2. The zero of the slope is bracketed on the data themselves.
    """
    largest = max(1.0, (outside + z2.sum() + 2.0 * noise.rate) / (n + 2.0 * (noise.shape + 1.0)))  # of the empty model
    grid = np.linspace(np.log(FLOOR), np.log(4.0 * largest), 193)  # log noise variance
    simple = prior.smooth and prior.uniform
    values, weights = _group(z2) if prior.uniform and len(z2) > 512 else (z2, np.ones(len(z2)))
    beta = np.exp(-grid)
    heights = (0.5 * n + noise.shape + 1.0) * np.log(beta) - (0.5 * outside + noise.rate) * beta
    if simple:
        # A kept component's share of beta |t|^2 / 2 cancels against its gain: neither is formed.
        u = np.multiply.outer(beta, values)
        kept = u > 1.0 + 2.0 * prior.c
        price = 1.0 + 2.0 * prior.c + np.log(np.where(kept, u - 2.0 * prior.c, 1.0))
        heights -= 0.5 * np.where(kept, price, u) @ weights
    else:
        heights += [(prior.gains(np.full(len(values), b), b**2 * values, b) - 0.5 * b * values) @ weights for b in beta]

    def slope(log_variance: float) -> float:
        """Derivative of the profile in log sigma^2; alpha stands still, because it is at its best (T01 eq. 45)."""
        b = np.exp(-log_variance)
        alpha = chosen.maximise(np.full(len(live), b), b**2 * live, b)[0]
        kept = np.flatnonzero(np.isfinite(alpha))
        alpha, gamma = alpha[kept], b / (alpha + b)
        residual2 = rest + live @ (1.0 - gamma) ** 2
        likelihood = 0.5 * (n - b * residual2 - gamma.sum())
        in_noise = chosen.at(kept).derivatives(alpha, b)[2].sum()
        return -float(likelihood + in_noise + noise.shape + 1.0 - noise.rate * b)

    low = high = int(heights.argmax())
    alpha = prior.maximise(np.full(len(values), beta[low]), beta[low] ** 2 * values, beta[low])[0]
    if weights @ (1.0 / (1.0 + alpha / beta[low])) > 0.5 * n:
        low = high = _heaviest_peak(heights, grid)
    while True:
        low, high = max(low - 1, 0), min(high + 1, len(grid) - 1)
        index = _may_stay(z2, np.exp(-grid[low]), prior)  # of the others only the sum of squares counts
        live, chosen = z2[index], prior.at(index)
        rest = outside + float(z2.sum() - live.sum()) if len(index) < len(z2) else outside
        rises, falls = slope(grid[low]) > 0 or low == 0, slope(grid[high]) < 0 or high == len(grid) - 1
        if rises and falls:  # else the bins have misplaced the maximum by a cell
            return float(np.exp(-_falling_zero(slope, grid[low], grid[high])))


def _heaviest_peak(heights: Array, grid: Array) -> int:
    """Where the profile, a log density per d sigma^2 on a grid in log sigma^2, has the peak that holds most mass."""
    valleys = 1 + np.flatnonzero((heights[1:-1] < heights[:-2]) & (heights[1:-1] <= heights[2:]))
    weights = np.exp(heights + grid - (heights + grid).max())
    peaks = np.split(np.arange(len(grid)), valleys)
    heaviest = max(peaks, key=lambda peak: weights[peak].sum())
    return int(heaviest[heights[heaviest].argmax()])


def _may_stay(z2: Array, beta: float, prior: BoundPrior) -> Array:
    """Indices of the components that are not surely pruned at this noise precision or any lower one."""
    if not (prior.smooth and prior.uniform):
        return np.arange(len(z2))
    return np.flatnonzero(z2 > (1.0 + 2.0 * prior.c) * (1.0 - 1e-12) / beta)


def _group(z2: Array) -> tuple[Array, Array]:
    """z^2 in bins of equal width in the logarithm: the mean of each bin, and its count."""
    logs = np.maximum(z2, FLOOR)  # in place from here: fresh pages cost more than the arithmetic
    np.log(logs, out=logs)
    low = logs.min()
    logs -= low
    logs *= 511.0 / max(logs.max(), 1e-9)
    places = logs.astype(np.intp)
    counts = np.bincount(places)
    sums = np.bincount(places, weights=z2)
    used = counts > 0
    return sums[used] / counts[used], counts[used].astype(float)


def _falling_zero(function: Callable[[float], float], low: float, high: float) -> float:
    """Where a function falls through zero: regula falsi with the Illinois rule."""
    f_low, f_high = function(low), function(high)
    if f_low <= 0 or f_high >= 0:  # the maximum is at an end
        return low if f_low <= 0 else high
    smallest, side = 1e-13 * max(f_low, -f_high), 0
    for _ in range(100):
        middle = (low * f_high - high * f_low) / (f_high - f_low)
        f_middle = function(middle)
        if abs(f_middle) <= smallest or high - low < 1e-12:
            return middle
        if f_middle > 0:
            low, f_low = middle, f_middle
            f_high *= 0.5 if side > 0 else 1.0  # an end that stands still twice would slow the method down
            side = 1
        else:
            high, f_high = middle, f_middle
            f_low *= 0.5 if side < 0 else 1.0
            side = -1
    return 0.5 * (low + high)
