"""Slow, dense, obvious formulas that the tests compare the package with. Shares no code with it.

Plain user units throughout: `Phi` (N, M), `t` (N,), `alpha` (M,) where inf means an absent column, and
`noise_variance` = σ². What goes through C loses precision as 1e-16 ‖φ‖²/(α σ²), the condition number of C:
1e-11 at α = 1e-3, σ² = 0.2 and nothing left at α = 1e-14, so compare at moderate α.
"""

import itertools
from decimal import Decimal, localcontext

import numpy as np
import pywt
from scipy import integrate, linalg, optimize, special


def contrasts(Phi, t):
    """Columns and targets in N - 1 orthonormal contrasts: what a flat intercept leaves to the likelihood."""
    H = linalg.helmert(len(t))
    return H @ Phi, H @ t


def covariance_matrix(Phi, alpha, noise_variance):
    """C = σ²I + Φ diag(1/α) Φᵀ, the covariance of t with the weights integrated out."""
    return noise_variance * np.eye(len(Phi)) + Phi @ np.diag(1.0 / np.asarray(alpha, float)) @ Phi.T


def log_evidence(Phi, t, alpha, noise_variance):
    """log N(t | 0, C)."""
    C = covariance_matrix(Phi, alpha, noise_variance)
    return -0.5 * (len(t) * np.log(2.0 * np.pi) + np.linalg.slogdet(C)[1] + t @ np.linalg.solve(C, t))


def big_S_Q(Phi, t, alpha, noise_variance):
    """S_m = φ_mᵀ C⁻¹ φ_m and Q_m = φ_mᵀ C⁻¹ t with the whole C, for every column."""
    inverse = np.linalg.inv(covariance_matrix(Phi, alpha, noise_variance))
    return np.array([phi @ inverse @ phi for phi in Phi.T]), Phi.T @ inverse @ t


def small_s_q(Phi, t, alpha, noise_variance):
    """s_m and q_m: as S_m and Q_m, with column m really left out of C."""
    s, q = np.empty(Phi.shape[1]), np.empty(Phi.shape[1])
    for m, phi in enumerate(Phi.T):
        C = covariance_matrix(np.delete(Phi, m, axis=1), np.delete(alpha, m), noise_variance)
        s[m], q[m] = phi @ np.linalg.solve(C, phi), phi @ np.linalg.solve(C, t)
    return s, q


def weights_posterior(Phi, t, alpha, noise_variance):
    """Mean and covariance of the weights of the columns with finite α, in their order."""
    active = np.isfinite(alpha)
    Phi = Phi[:, active]
    Sigma = np.linalg.inv(Phi.T @ Phi / noise_variance + np.diag(np.asarray(alpha, float)[active]))
    return Sigma @ Phi.T @ t / noise_variance, Sigma


def leave_one_out(Phi, t, alpha, noise_variance):
    """Mean and variance of each t_n given the others, by really leaving it out."""
    mean, variance = np.empty(len(t)), np.empty(len(t))
    for n, phi in enumerate(Phi[:, np.isfinite(alpha)]):
        mu, Sigma = weights_posterior(np.delete(Phi, n, axis=0), np.delete(t, n), alpha, noise_variance)
        mean[n], variance[n] = phi @ mu, noise_variance + phi @ Sigma @ phi
    return mean, variance


def leave_one_out_terms(Phi, t, alpha, noise, intercept=False):
    """log p(t_n | the others), by conditioning the joint normal one at a time; its mean, if unknown, by kriging."""
    C = noise * np.eye(len(t)) + Phi / alpha @ Phi.T
    terms = []
    for n in range(len(t)):
        rest = np.arange(len(t)) != n
        inverse = np.linalg.inv(C[np.ix_(rest, rest)])
        pull = inverse @ C[rest, n]
        mean, variance = pull @ t[rest], C[n, n] - pull @ C[rest, n]
        if intercept:
            missing, known = 1 - pull.sum(), inverse.sum()
            mean += missing * (inverse @ t[rest]).sum() / known
            variance += missing**2 / known
        terms.append(-0.5 * (np.log(2 * np.pi * variance) + (t[n] - mean) ** 2 / variance))
    return np.array(terms)


def component_log_contribution(alpha, s, q2):
    """ℓ(α) = ½[log α - log(α + s) + q²/(α + s)]: what one column adds to the log evidence; 0 at α = inf."""
    alpha = np.asarray(alpha, float)
    return 0.5 * (q2 / (alpha + s) - np.log1p(s / alpha))


def log_prior_unnormalised(kind, alpha, noise_variance, norm2, measure="alpha", *, c=None, a=None, b=None, zeta=None):
    """Log of the table in docs/priors.md, as a density per dα, without its normaliser and without bounds."""
    log_alpha = np.log(alpha)
    if kind == "gamma":
        return (a - 1.0) * log_alpha - b * alpha
    if kind == "power":
        return zeta * log_alpha
    value = {"alpha": 0.0, "log": -1.0}[measure] * log_alpha
    if kind == "smoothness":
        return value - c / (1.0 + noise_variance * alpha / norm2)
    assert kind == "flat", kind
    return value


def log_prior_normaliser(kind, noise_variance, norm2, low, high, measure="alpha", **params):
    """log ∫ over [low, high], by quadrature in v = log α on pieces of at most unit length."""

    def log_integrand(v):
        return log_prior_unnormalised(kind, np.exp(v), noise_variance, norm2, measure, **params) + v

    shift = np.max(log_integrand(np.linspace(np.log(low), np.log(high), 20001)))
    breaks = np.linspace(np.log(low), np.log(high), 2 + int(np.log(high / low)))
    pieces = [
        integrate.quad(lambda v: np.exp(log_integrand(v) - shift), left, right, epsabs=1e-15, epsrel=1e-12)[0]
        for left, right in itertools.pairwise(breaks)
    ]
    return shift + np.log(np.sum(pieces))


def log_prior(kind, alpha, noise_variance, norm2, low, high, measure="alpha", coordinate="alpha", **params):
    """Log density of α on [low, high], normalised there; -inf outside.

    Kinds and parameters: "flat"; "smoothness" (c; κ = 1/(1 + σ²α/norm2)); "gamma" (a, b); "power" (zeta).
    `measure="log"` multiplies flat and smoothness by 1/α (the others ignore it). `coordinate="alpha"` gives
    the density per dα, "log" per d log α. `noise_variance` and `norm2` may be arrays that broadcast with α.
    """
    alpha = np.asarray(alpha, float)
    sigma2, norm2 = np.broadcast_arrays(np.asarray(noise_variance, float), np.asarray(norm2, float))
    log_z = [
        log_prior_normaliser(kind, v, n2, low, high, measure, **params)
        for v, n2 in zip(sigma2.flat, norm2.flat, strict=True)
    ]
    value = log_prior_unnormalised(kind, alpha, sigma2, norm2, measure, **params)
    value = value - np.reshape(log_z, sigma2.shape) + {"alpha": 0.0, "log": 1.0}[coordinate] * np.log(alpha)
    return np.where((alpha >= low) & (alpha <= high), value, -np.inf)


def log_inverse_gamma(x, g, h):
    """Log density of σ² ~ InverseGamma(g, h), per dσ²: h^g / Γ(g) x^(-g-1) e^(-h/x)."""
    return g * np.log(h) - special.gammaln(g) - (g + 1.0) * np.log(x) - h / x


def brute_force_maximiser(log_objective, low, high, num=20001):
    """(α̂, value) of the largest value of `log_objective(alpha)` on [low, high].

    A dense grid in log α, a bounded search between the neighbours of its best point, and the two ends: α̂ is
    `high` itself when nothing inside beats it (the component is out).
    """
    grid = np.linspace(np.log(low), np.log(high), num)
    best = int(np.argmax([log_objective(np.exp(v)) for v in grid]))
    inside = optimize.minimize_scalar(
        lambda v: -log_objective(np.exp(v)),
        bounds=(grid[max(best - 1, 0)], grid[min(best + 1, num - 1)]),
        method="bounded",
        options={"xatol": 1e-12},
    )
    candidates = [float(high), float(low), float(np.exp(inside.x))]
    values = [float(log_objective(candidate)) for candidate in candidates]
    winner = int(np.argmax(values))
    return candidates[winner], values[winner]


def finite_difference(function, x, step=1e-3):
    """Derivative of a scalar or array function of a vector; the last axis is that of x.

    Central differences of fourth order, so errors near step⁴ and 1e-16/step. The step is absolute and the
    same for every coordinate: differentiate in log α, where it suits every scale.
    """
    x = np.asarray(x, float)
    columns = []
    for direction in step * np.eye(len(x)):
        near = np.asarray(function(x + direction)) - np.asarray(function(x - direction))
        far = np.asarray(function(x + 2.0 * direction)) - np.asarray(function(x - 2.0 * direction))
        columns.append((8.0 * near - far) / (12.0 * step))
    return np.stack(columns, axis=-1)


def finite_difference_hessian(function, x, step=5e-3):
    """Matrix of second derivatives: the finite difference of the finite difference."""
    hessian = finite_difference(lambda y: finite_difference(function, y, step), x, step)
    return 0.5 * (hessian + hessian.T)


def wavelet_matrix(name, n, level):
    """Orthonormal (n, n) matrix whose columns are inverse periodised transforms of unit vectors.

    Columns run as PyWavelets' coefficients do: approximation, then details from the coarsest to the finest.
    """
    ends = [n >> depth for depth in range(level, -1, -1)]
    columns = [pywt.waverec(np.split(unit, ends[:-1]), name, mode="periodization") for unit in np.eye(n)]
    return np.stack(columns, axis=1)


DIGITS = 70  # of ExactNormal: those that the widest problem loses, about 40, and those that a double shows
TWO_PI = Decimal("6.283185307179586476925286766559005768394338798750211641949889184615632812572417997256069650684234")


def decimals(values):
    """The same numbers, exactly, as an array of decimals."""
    return np.vectorize(Decimal, otypes=[object])(np.asarray(values, float))


def exact_contrasts(values):
    """UᵀX, where the orthonormal columns of U (N, N - 1) are orthogonal to the constant (Helmert's)."""
    rows = [(k * values[k] - values[:k].sum(axis=0)) / Decimal(k * (k + 1)).sqrt() for k in range(1, len(values))]
    return np.array(rows, dtype=object).reshape(len(values) - 1, *values.shape[1:])


def _solve_lower(L, right):
    solution = np.empty(right.shape, dtype=object)
    for j in range(len(L)):
        solution[j] = (right[j] - (L[j, :j] @ solution[:j] if j else 0)) / L[j, j]
    return solution


class ExactNormal:
    """t ~ N(0, C) as `covariance_matrix` has it, with so many digits that no condition number matters.

    With `intercept` t also has a constant of flat prior: what is left to model are the N - 1 contrasts of t and of the
    columns, and a prediction adds mean(t) with variance σ²/N. Columns of finite α alone enter C; `Phi` may hold others,
    whose S and Q are wanted. N = 60, M = 120: a tenth of a second.
    """

    def __init__(self, Phi, t, alpha, noise_variance, intercept=False):
        with localcontext(prec=DIGITS):
            self.intercept, self.active = intercept, np.isfinite(alpha)
            self.alpha = decimals(np.asarray(alpha)[self.active])
            self.center = [np.sum(values, axis=0) / len(t) for values in (decimals(t), decimals(Phi))]
            self.t, self.Phi = (
                exact_contrasts(decimals(values)) if intercept else decimals(values) for values in (t, Phi)
            )
            self.n, self.noise_variance = len(t), Decimal(float(noise_variance))
            self.kept = self.Phi[:, self.active]
            self._signal = (self.kept / self.alpha) @ self.kept.T if len(self.alpha) and len(self.t) else 0
            self._factor = self._cholesky(self.noise_variance)

    def _cholesky(self, noise_variance):
        C = np.full((len(self.t), len(self.t)), Decimal(0)) + self._signal
        C.flat[:: len(C) + 1] += noise_variance
        L = np.full(C.shape, Decimal(0))
        for j in range(len(C)):
            rest = C[j:, j] - (L[j:, :j] @ L[j, :j] if j else 0)
            L[j:, j] = rest / rest[0].sqrt()
        return L

    def log_evidence(self, noise_variance=None):
        """A decimal: differences of large values keep their digits. Another noise variance is cheap."""
        with localcontext(prec=DIGITS):
            L = self._factor if noise_variance is None else self._cholesky(Decimal(float(noise_variance)))
            white = _solve_lower(L, self.t)
            log_det = 2 * sum(pivot.ln() for pivot in L.diagonal())
            return -(len(self.t) * TWO_PI.ln() + log_det + (white**2).sum()) / 2

    def small_s_q2(self):
        """s and q² of every column, each left out of C in turn: S/(1 - S/α) and (Q/(1 - S/α))²."""
        with localcontext(prec=DIGITS):
            white = _solve_lower(self._factor, self.Phi)
            S, Q = (white**2).sum(axis=0), _solve_lower(self._factor, self.t) @ white
            left = np.full(len(S), Decimal(1))
            left[self.active] -= S[self.active] / self.alpha
            return (S / left).astype(float), ((Q / left) ** 2).astype(float)

    def weights_posterior(self):
        """Mean and covariance of the weights of finite α."""
        with localcontext(prec=DIGITS):
            white = _solve_lower(self._factor, self.kept) / self.alpha
            Sigma = -(white.T @ white)
            Sigma.flat[:: len(Sigma) + 1] += 1 / self.alpha
            return (white.T @ _solve_lower(self._factor, self.t)).astype(float), Sigma.astype(float)

    def predict(self, Phi_new):
        """Mean and variance of the function where all columns, kept or not, have the values `Phi_new` (K, M)."""
        with localcontext(prec=DIGITS):
            new, offset = decimals(Phi_new), Decimal(0)
            if self.intercept:
                new, offset = new - self.center[1], self.center[0]
            new = new[:, self.active]
            gain = _solve_lower(self._factor, (self.kept / self.alpha) @ new.T)
            mean = offset + gain.T @ _solve_lower(self._factor, self.t)
            variance = (new**2 / self.alpha).sum(axis=1) - (gain**2).sum(axis=0)
            return mean.astype(float), (variance + self.intercept * self.noise_variance / self.n).astype(float)
