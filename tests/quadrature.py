"""The posterior of one or two precisions and the noise variance, summed over a grid. Shares no code with the package.

The model is t ~ N(0, C), C = σ²I + Φ diag(1/α) Φᵀ, α_m ~ prior given σ² on [low, high], σ² ~ InverseGamma(g, h). All
densities here are per d log α and per d log σ², and v stands for log α. A prior is a dictionary such as
``{"kind": "smoothness", "c": 2.0, "measure": "log", "normalize": True, "low": 1e-3, "high": 1e3}``:

    kind          log density per d log α, up to log Z
    smoothness    -c κ, plus v if measure is "alpha"; κ = 1/(1 + σ²α/scale), scale = ‖φ‖² or (normalize=False) 1
    flat          v
    jeffreys      0
    power         (zeta + 1) v
    gamma         a v - b α

Simpson's rule on every axis. The integrands change on a scale of one nat, so at the default step of 0.14 nats halving
the step moves nothing by 1e-4 of a standard deviation.
"""

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from scipy import integrate, interpolate, special

NUM = 101  # points on an axis, odd for Simpson's rule
_PRIOR_NUM = 4001  # points for the normaliser, which costs nothing


@dataclass(frozen=True)
class Marginal:
    """A one-dimensional density on equally spaced points, not yet normalised."""

    points: np.ndarray
    values: np.ndarray

    @cached_property
    def _antiderivative(self):
        return interpolate.CubicSpline(self.points, self.values).antiderivative()

    @cached_property
    def _fine(self):
        fine = np.linspace(self.points[0], self.points[-1], 200_001)
        shares = self._antiderivative(fine)
        return fine, np.maximum.accumulate(shares / shares[-1])

    def cdf(self, x):
        return np.interp(x, *self._fine)

    def quantile(self, p):
        fine, shares = self._fine
        return np.interp(p, shares, fine)

    def expectation(self, function):
        weighted = integrate.simpson(function(self.points) * self.values, x=self.points)
        return weighted / integrate.simpson(self.values, x=self.points)

    @cached_property
    def mean(self):
        return self.expectation(lambda x: x)

    @cached_property
    def sd(self):
        return np.sqrt(self.expectation(lambda x: (x - self.mean) ** 2))

    @cached_property
    def quartiles(self):
        return self.quantile(np.array([0.25, 0.5, 0.75]))


@dataclass(frozen=True)
class Posterior:
    """The joint density on its grid, of axes log α_1, ..., log α_M, log σ²; `log_density` includes log p(t, ...)."""

    axes: tuple
    log_density: np.ndarray = field(repr=False)

    @cached_property
    def mass(self):
        """Probability of every point of the grid, Simpson's weights included."""
        share = np.exp(self.log_density - self.log_density.max())
        for i, axis in enumerate(self.axes):
            share = share * _on_axis(simpson_weights(axis), i, share.ndim)
        return share / share.sum()

    @cached_property
    def log_evidence(self):
        """log p(t | dictionary, prior)."""
        value = np.exp(self.log_density - self.log_density.max())
        for axis in reversed(self.axes):
            value = value @ simpson_weights(axis)
        return float(np.log(value) + self.log_density.max())

    @cached_property
    def marginals(self):
        """One a parameter, in the order of the axes."""
        result = []
        for i, axis in enumerate(self.axes):
            others = tuple(j for j in range(len(self.axes)) if j != i)
            result.append(Marginal(axis, self.mass.sum(others) / simpson_weights(axis)))
        return result

    def expectation(self, function):
        """Of a function of the broadcast axes (log α_1, ..., log α_M, log σ²)."""
        grid = [_on_axis(axis, i, len(self.axes)) for i, axis in enumerate(self.axes)]
        return float(np.sum(self.mass * function(*grid)))


def _on_axis(vector, i, ndim):
    return np.reshape(vector, [-1 if j == i else 1 for j in range(ndim)])


def simpson_weights(points):
    """1, 4, 2, ..., 4, 1 times a third of the step."""
    assert len(points) % 2 == 1
    weights = np.ones(len(points))
    weights[1:-1:2], weights[2:-1:2] = 4.0, 2.0
    return weights * (points[1] - points[0]) / 3.0


def log_prior_unnormalised(prior, v, noise_variance, norm2):
    """The table above; the arguments broadcast."""
    kind = prior["kind"]
    if kind == "smoothness":
        scale = norm2 if prior.get("normalize", True) else 1.0
        kappa = 1.0 / (1.0 + noise_variance * np.exp(v) / scale)
        return -prior["c"] * kappa + {"log": 0.0, "alpha": 1.0}[prior["measure"]] * v
    if kind == "gamma":
        return prior["a"] * v - prior["b"] * np.exp(v)
    slope = {"flat": 1.0, "jeffreys": 0.0, "power": prior.get("zeta", 0.0) + 1.0}[kind]
    return slope * v + 0.0 * noise_variance


def log_normaliser(prior, noise_variance, norm2):
    """log Z for every noise variance of a vector."""
    v = np.linspace(np.log(prior["low"]), np.log(prior["high"]), _PRIOR_NUM)
    value = log_prior_unnormalised(prior, v, np.asarray(noise_variance, float)[..., None], norm2)
    top = value.max(-1, keepdims=True)
    return np.log(np.exp(value - top) @ simpson_weights(v)) + top[..., 0]


def log_prior(prior, v, noise_variance, norm2):
    """Normalised log density per d log α, for noise variances that broadcast with v."""
    return log_prior_unnormalised(prior, v, noise_variance, norm2) - log_normaliser(prior, noise_variance, norm2)


def sample_prior(rng, prior, noise_variance, norm2):
    """One α for every noise variance and column, of shape (K, M), by inverting the cdf on a grid."""
    v = np.linspace(np.log(prior["low"]), np.log(prior["high"]), _PRIOR_NUM)
    noise_variance, norm2 = np.asarray(noise_variance, float), np.asarray(norm2, float)
    alpha = np.empty((len(noise_variance), len(norm2)))
    for k, m in np.ndindex(*alpha.shape):
        density = np.exp(log_prior(prior, v, noise_variance[k], norm2[m]))
        shares = integrate.cumulative_trapezoid(density, v, initial=0.0)
        alpha[k, m] = np.exp(np.interp(rng.uniform(0.0, shares[-1]), shares, v))
    return alpha


def log_noise_prior(log_noise, g, h):
    """InverseGamma(g, h) per d log σ²; without its normaliser, which it has not, if g or h is zero."""
    constant = g * np.log(h) - special.gammaln(g) if g > 0 and h > 0 else 0.0
    return constant - g * log_noise - h * np.exp(-log_noise)


def log_likelihood(Phi, t, alpha, noise_variance):
    """log N(t | 0, C) for one or two columns, where alpha is a list of arrays that broadcast with noise_variance.

    With G = ΦᵀΦ, u = Φᵀt and B = σ²A + G: |C| = σ²^(N-M) |B| / |A| and tᵀC⁻¹t = (tᵀt - uᵀB⁻¹u)/σ². The determinant
    is written out so that two equal columns lose no digits.
    """
    n, m = Phi.shape
    G, u = Phi.T @ Phi, Phi.T @ t
    if m == 1:
        determinant = noise_variance * alpha[0] + G[0, 0]
        explained = u[0] ** 2 / determinant
    else:
        B = [noise_variance * alpha[i] + G[i, i] for i in (0, 1)]
        gram = max(G[0, 0] * G[1, 1] - G[0, 1] ** 2, 0.0)
        determinant = noise_variance * (noise_variance * alpha[0] * alpha[1] + alpha[0] * G[1, 1] + alpha[1] * G[0, 0])
        determinant = determinant + gram
        explained = (u[0] ** 2 * B[1] + u[1] ** 2 * B[0] - 2.0 * u[0] * u[1] * G[0, 1]) / determinant
    log_det = (n - m) * np.log(noise_variance) + np.log(determinant) - sum(np.log(a) for a in alpha)
    return -0.5 * (n * np.log(2.0 * np.pi) + log_det + (t @ t - explained) / noise_variance)


def _log_joint(Phi, t, prior, noise_prior, axes):
    """On the grid, log of p(t | α, σ²) times the priors."""
    *v, log_noise = [_on_axis(axis, i, len(axes)) for i, axis in enumerate(axes)]
    noise_variance = np.exp(log_noise)
    value = log_likelihood(Phi, t, [np.exp(x) for x in v], noise_variance) + log_noise_prior(log_noise, *noise_prior)
    for x, phi in zip(v, Phi.T, strict=True):
        value = value + log_prior(prior, x, noise_variance, phi @ phi)
    return value


def posterior(Phi, t, prior, noise_prior, num=NUM):
    """The posterior for one or two columns and unknown σ², on num points an axis.

    A coarse grid finds the noise variances whose density is within 40 nats of the largest one; both bounds of α are on
    the grid.
    """
    v = [np.linspace(np.log(prior["low"]), np.log(prior["high"]), num)] * Phi.shape[1]
    wide = np.log(np.mean(t**2)) + np.linspace(-25.0, 25.0, 401)
    coarse = _log_joint(Phi, t, prior, noise_prior, (*(axis[:: num // 10] for axis in v), wide))
    inside = np.flatnonzero(coarse.max(tuple(range(len(v)))) > coarse.max() - 40.0)
    assert 0 < inside[0] < inside[-1] < len(wide) - 1
    axes = (*v, np.linspace(wide[inside[0] - 1], wide[inside[-1] + 1], 2 * num - 1))
    return Posterior(axes, _log_joint(Phi, t, prior, noise_prior, axes))


def orthonormal_marginals(z, prior, noise_variance, num=2001):
    """Marginals of every log α_m for orthonormal columns and known σ², where z = Φᵀt: z_m ~ N(0, σ² + 1/α_m)."""
    v = np.linspace(np.log(prior["low"]), np.log(prior["high"]), num)
    variance = noise_variance + np.exp(-v)
    log_density = log_prior(prior, v, noise_variance, 1.0) - 0.5 * (np.log(variance) + z[:, None] ** 2 / variance)
    return [Marginal(v, np.exp(row - row.max())) for row in log_density]
