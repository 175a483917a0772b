"""The marginal likelihood and its parts: one home for the linear algebra.

Everything here is in the units of the search: columns of unit norm, t of unit spread, beta = 1 / sigma^2. With
C = I / beta + Phi A^-1 Phi' the model keeps, for the S active columns,

    Sigma = (A + beta K)^-1,  K = Phi_S' Phi_S,  mu = beta Sigma Phi_S' t,

and for all M columns S_m = phi_m' C^-1 phi_m and Q_m = phi_m' C^-1 t (TF03 eq. 24, 25). A move changes one column and
updates everything in O(S^2 + M S); a refactorisation recomputes everything in O(S^3 + M S^2) and stops drift. Gram rows
Phi' phi_i are computed once for a column that becomes active, O(N M) or one fast transform, and kept.

Nearly dependent columns (splines on raw inputs) make A + beta K singular to working precision long before the problem
itself is. Such a model is `delicate`: it is factorised by QR of the stacked columns, whose condition is only the square
root of that, O(N S^2), and its moves refactorise instead of updating.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from scipy.linalg.lapack import dpotrf, dpotri, dpotrs, dtrtri, dtrtrs

Array = np.ndarray


class Factored(NamedTuple):
    """A Cholesky factor of A + beta K (lower triangle), and what follows from it."""

    factor: Array
    Sigma: Array
    mu: Array
    residual2: float
    log_evidence: float
    delicate: bool


_DELICATE = 1e-4  # share of a column that the other active columns leave, below which Cholesky loses its digits


class SingularModelError(ArithmeticError):
    """The active columns are linearly dependent to working precision."""


class ActiveModel:
    """The active columns with their precisions, and the evidence as a function of them.

    Parameters
    ----------
    t : array of shape (N,)
    z : array of shape (M,)
        Phi' t.
    columns, gram_rows : callables
        columns(indices) are columns of Phi as rows, shape (k, N), and gram_rows of them are their products with all
        columns, shape (k, M); both with unit-norm columns.
    beta : float
        Noise precision.
    n : int, optional
        Dimensions in which t may lie, N by default, N - 1 if means were taken out.
    norm2 : float or array of shape (M,)
        Squared norms of the columns: one, or zero for a column of zeros.

    Attributes
    ----------
    index, alpha, mu, Sigma
        Active columns, their precisions, and the weights' posterior.
    S, Q : arrays of shape (M,)
    log_evidence : float
    condensed : bool
        Whether Sigma, mu and the evidence come from a factorisation, not from moves.
    moves : int
        Moves made since the last refactorisation.
    """

    def __init__(
        self,
        t: Array,
        z: Array,
        columns: Callable[[Array], Array],
        gram_rows: Callable[[Array], Array],
        beta: float,
        n: int | None = None,
        norm2: Any = 1.0,
    ):
        self.t, self.z, self.beta, self._norm2 = t, z, float(beta), norm2
        self.n, self.m = len(t) if n is None else n, len(z)
        self._fetch, self._multiply = columns, gram_rows
        self._capacity = 0
        self._columns, self._gram, self._kernel = np.empty((0, len(t))), np.empty((0, self.m)), np.empty((0, 0))
        self._has_gram = np.empty(0, dtype=bool)
        self._kept: dict[int, tuple[Array, Array]] = {}  # Gram rows and columns that were active once
        self._reserve(32)
        self.index, self.alpha = np.empty(0, dtype=np.intp), np.empty(0)
        self.condensed = False
        self.refactor()

    @property
    def size(self) -> int:
        """Number of active columns, S."""
        return len(self.index)

    @property
    def gram(self) -> Array:
        """Phi_S' Phi, shape (S, M); complete after `refresh`."""
        return self._gram[: self.size]

    def refactor(self) -> None:
        """Recompute everything from alpha and beta by a Cholesky factorisation."""
        self.condense()
        self.refresh()

    def condense(self) -> None:
        """Recompute Sigma, mu and the evidence, O(S^3 + N S); S and Q wait for `refresh`."""
        self.take(self.alpha, self.beta, self.factorise(self.alpha, self.beta))

    def refresh(self) -> None:
        """Recompute S and Q of all columns after `condense`, O(M S^2), with the Gram rows that are still missing."""
        k = self.size
        missing = np.flatnonzero(~self._has_gram[:k])
        if len(missing):
            self._gram[missing] = self._multiply(self._columns[missing])
            self._has_gram[missing] = True
        if k:
            half, _ = dtrtrs(self._factor, self.gram, lower=1)
            self.S = self.beta * self._norm2 - self.beta**2 * np.einsum("ij,ij->j", half, half)
            self.Q = self.beta * (self.z - self.mu @ self.gram)
        else:
            self.S, self.Q = np.full(self.m, self.beta * self._norm2), self.beta * self.z
        self.moves = 0

    def factorise(self, alpha: Array, beta: float) -> Factored:
        """What the active columns would give with other precisions; nothing of the model changes.

        Raises SingularModelError if A + beta K is not positive definite to working precision.
        """
        k = len(alpha)
        if k == 0:
            square = float(self.t @ self.t)
            evidence = 0.5 * (self.n * np.log(beta / (2 * np.pi)) - beta * square)
            return Factored(np.empty((0, 0)), np.empty((0, 0)), np.empty(0), square, float(evidence), False)
        H = beta * self._kernel[:k, :k]
        H.flat[:: k + 1] += alpha
        diagonal = H.diagonal().copy()
        factor, failure = dpotrf(H.T, lower=1, clean=0, overwrite_a=1)
        delicate = bool(failure) or (factor.diagonal() ** 2 < _DELICATE * diagonal).any()
        if delicate:
            factor, Sigma, mu = self._factorise_by_qr(alpha, beta)
        else:
            if k <= 64:  # fewer calls win while the matrices are small
                Sigma, _ = dpotrs(factor, np.eye(k), lower=1)
            else:
                Sigma, _ = dpotri(factor, lower=1)
                Sigma = np.tril(Sigma)
                Sigma += np.tril(Sigma, -1).T
            mu = beta * (Sigma @ self.z[self.index])
        # beta |r|^2 + mu' A mu is stationary in mu: rounding of mu enters squared, unlike in beta t'r
        residual = self.t - mu @ self._columns[:k]
        residual2 = float(residual @ residual)
        log_ratio = np.log(factor.diagonal() ** 2 / alpha).sum()
        evidence = 0.5 * (self.n * np.log(beta / (2 * np.pi)) - log_ratio - beta * residual2 - mu @ (alpha * mu))
        return Factored(factor, Sigma, mu, residual2, float(evidence), delicate)

    def _factorise_by_qr(self, alpha: Array, beta: float) -> tuple[Array, Array, Array]:
        """Factor, Sigma and mu from the triangle of [sqrt(beta) Phi_S, sqrt(beta) t; sqrt(A), 0]."""
        k, rows = len(alpha), len(self.t)
        stacked = np.zeros((rows + k, k + 1))
        stacked[:rows, :k] = self._columns[:k].T
        stacked[:rows, k] = self.t
        stacked[:rows] *= np.sqrt(beta)
        stacked[rows:].flat[:: k + 2] = np.sqrt(alpha)
        triangle = np.asarray(np.linalg.qr(stacked, mode="r"))
        R = triangle[:k, :k]
        if not (np.abs(R.diagonal()) > 1e-14 * np.linalg.norm(R, axis=0)).all():
            raise SingularModelError("the active columns are linearly dependent to working precision")
        inverse, _ = dtrtri(R)
        sign = np.sign(R.diagonal())
        # mu by substitution: the explicit inverse would lose the evidence where weights are huge
        return (R * sign[:, None]).T, inverse @ inverse.T, dtrtrs(R, triangle[:k, k])[0]

    def take(self, alpha: Array, beta: float, factored: Factored) -> None:
        """Move to precisions whose factorisation is known; S and Q wait for `refresh`."""
        self.alpha, self.beta, self.condensed = alpha, float(beta), True
        self._factor, self.Sigma, self.mu, self.residual2, self.log_evidence, self.delicate = factored

    def statistics(self) -> tuple[Array, Array]:
        """(s, q^2) of the active columns, each left out of C in turn.

        From Sigma rather than S and Q: alpha S / (alpha - S) cancels when alpha << s.
        """
        variance = self.Sigma.diagonal()
        # a column that wholly depends on the others leaves rounding, of either sign
        return np.maximum(1.0 / variance - self.alpha, 1e-14 * self.beta), (self.mu / variance) ** 2

    def scrutinise(self, i: int) -> None:
        """Recompute S and Q of one column outside the model to full precision, O(N S).

        S_i is the minimum over v of beta |phi - Phi v|^2 + v' A v: rounding of v enters squared, where the difference
        beta - beta^2 g' Sigma g loses all digits of a column that nearly depends on the active ones.
        """
        k = self.size
        column = self._fetch(np.array([i]))[0]
        v = self.beta * (self.Sigma @ (self._columns[:k] @ column))
        e = column - v @ self._columns[:k]
        v += self.Sigma @ (self.beta * (self._columns[:k] @ e) - self.alpha * v)  # one step of refinement
        e = column - v @ self._columns[:k]
        self.S[i] = self.beta * (e @ e) + v @ (self.alpha * v)
        self.Q[i] = self.beta * (column @ (self.t - self.mu @ self._columns[:k]))

    def add(self, i: int, alpha: float) -> None:
        """Column i joins with precision alpha (TF03 A.2)."""
        if self._needs_care(alpha + self.S[i], alpha):
            self.include(np.array([i]), np.array([alpha]))
            self.refactor()
            return
        k = self.size
        self._load(np.array([i]))
        gram = self._gram[k]
        v = self.beta * (self.Sigma @ self._kernel[:k, k])
        e = self.beta * (gram - v @ self._gram[:k])
        variance = 1.0 / (alpha + self.S[i])
        mean = variance * self.Q[i]
        self.log_evidence += 0.5 * (np.log(alpha * variance) + self.Q[i] * mean)
        Sigma = np.empty((k + 1, k + 1))
        np.multiply(v[:, None], variance * v, out=Sigma[:k, :k])
        Sigma[:k, :k] += self.Sigma
        Sigma[:k, k] = Sigma[k, :k] = -variance * v
        Sigma[k, k] = variance
        self.Sigma = Sigma
        self.mu = np.append(self.mu - mean * v, mean)
        self.S -= variance * e**2
        self.Q -= mean * e
        self.index, self.alpha = np.append(self.index, i), np.append(self.alpha, alpha)
        self.condensed = False
        self.moves += 1

    def include(self, indices: Array, alpha: Array) -> None:
        """Several columns join at once; everything waits for `condense` and `refresh`."""
        self._load(indices, gram=False)
        self.index, self.alpha = np.append(self.index, indices), np.append(self.alpha, alpha)
        self.condensed = False

    def become(self, index: Array, alpha: Array) -> None:
        """Make exactly these columns active, with these precisions, and refactorise."""
        gone = np.flatnonzero(~np.isin(self.index, index))
        if len(gone):
            self.forget(gone)
        missing = ~np.isin(index, self.index)
        if missing.any():
            self.include(index[missing], alpha[missing])
        precision = dict(zip(index.tolist(), alpha.tolist(), strict=True))
        self.alpha = np.array([precision[i] for i in self.index.tolist()])
        self.refactor()

    def _needs_care(self, pivot: float, alpha: float) -> bool:
        """Whether a move must refactorise, because its column nearly depends on others or some active ones do."""
        return self.delicate or pivot < _DELICATE * (alpha + self.beta)

    def _load(self, indices: Array, gram: bool = True) -> None:
        """Put columns, their Gram rows and their products with the active columns behind the active ones."""
        k, new = self.size, self.size + len(indices)
        self._reserve(new)
        if len(indices) == 1 and int(indices[0]) in self._kept:
            self._gram[k], self._columns[k] = self._kept.pop(int(indices[0]))
        else:
            self._columns[k:new] = self._fetch(indices)
            if gram:
                self._gram[k:new] = self._multiply(self._columns[k:new])
        self._has_gram[k:new] = gram
        self._kernel[k:new, :new] = self._columns[k:new] @ self._columns[:new].T
        self._kernel[:k, k:new] = self._kernel[k:new, :k].T

    def _reserve(self, size: int) -> None:
        if size <= self._capacity:
            return
        old, self._capacity = self._capacity, max(size, 2 * self._capacity)
        columns, gram, kernel, has_gram = self._columns, self._gram, self._kernel, self._has_gram
        self._columns = np.empty((self._capacity, len(self.t)))
        self._gram = np.empty((self._capacity, self.m))
        self._kernel = np.empty((self._capacity, self._capacity))
        self._has_gram = np.zeros(self._capacity, dtype=bool)
        self._columns[:old], self._gram[:old], self._has_gram[:old] = columns, gram, has_gram
        self._kernel[:old, :old] = kernel

    def _shift(self, j: int) -> Array:
        """beta Sigma_j' Phi_S' Phi: how S and Q of all columns feel a change of active column j."""
        return self.beta * (self.Sigma[j] @ self.gram)

    def reestimate(self, j: int, alpha: float) -> None:
        """Active column j (its place in `index`) gets a new precision (TF03 A.3)."""
        if self._needs_care(1.0 / self.Sigma[j, j], self.alpha[j]):
            self.alpha = np.concatenate([self.alpha[:j], [alpha], self.alpha[j + 1 :]])
            self.condensed = False
            self.refactor()
            return
        s, q2 = self._statistics_of(j)
        old, change = self.alpha[j], alpha - self.alpha[j]
        shrink = change / (1.0 + self.Sigma[j, j] * change)
        e = self._shift(j)
        row, mean = self.Sigma[j].copy(), self.mu[j]
        self.log_evidence += _likelihood(alpha, s, q2) - _likelihood(old, s, q2)
        self.Sigma = self.Sigma - shrink * np.outer(row, row)
        self.mu = self.mu - shrink * mean * row
        self.S += shrink * e**2
        self.Q += shrink * mean * e
        self.alpha = np.concatenate([self.alpha[:j], [alpha], self.alpha[j + 1 :]])
        self.condensed = False
        self.moves += 1

    def delete(self, j: int) -> None:
        """Active column j (its place in `index`) leaves (TF03 A.4)."""
        if self._needs_care(1.0 / self.Sigma[j, j], self.alpha[j]):
            self.forget(np.array([j]))
            self.refactor()
            return
        e = self._shift(j)
        variance, mean = self.Sigma[j, j], self.mu[j]
        self.S += e**2 / variance
        self.Q += e * (mean / variance)
        self.drop(j)
        self.moves += 1

    def drop(self, j: int) -> None:
        """As `delete`, but S and Q wait for `refresh`."""
        s, q2 = self._statistics_of(j)
        row, variance, mean = self.Sigma[j], self.Sigma[j, j], self.mu[j]
        self.log_evidence -= _likelihood(self.alpha[j], s, q2)
        mu = self.mu - (mean / variance) * row
        Sigma = self.Sigma - np.outer(row, row / variance)
        stay = self.forget(np.array([j]))
        self.mu, self.Sigma = mu[stay], Sigma[stay][:, stay]

    def forget(self, places: Array) -> Array:
        """Remove active columns from the lists alone; everything else waits for `condense`. Returns who stays."""
        stay = np.delete(np.arange(self.size), places)
        for j in places[self._has_gram[places]]:
            self._kept[int(self.index[j])] = self._gram[j].copy(), self._columns[j].copy()
        first, k = int(places.min()), len(stay)
        moved = stay[first:]  # rows before the first hole stand still
        self._columns[first:k], self._gram[first:k] = self._columns[moved], self._gram[moved]
        self._has_gram[first:k] = self._has_gram[moved]
        self._kernel[:k, :k] = self._kernel[stay][:, stay]
        self.index, self.alpha = self.index[stay], self.alpha[stay]
        self.condensed = False
        return stay

    def _statistics_of(self, j: int) -> tuple[float, float]:
        variance = self.Sigma[j, j]
        return max(1.0 / variance - self.alpha[j], 0.0), (self.mu[j] / variance) ** 2

    def derivatives(self) -> tuple[Array, Array]:
        """Gradient and Hessian of the log evidence in (log alpha of the active columns, log beta).

        The gradient in log alpha_i is 1/2 [1 - alpha_i (mu_i^2 + Sigma_ii)] (T01 eq. 42) and in log beta
        1/2 [N - beta |t - Phi mu|^2 - sum gamma] (T01 eq. 45 times beta). Needs a condensed model.
        """
        k, alpha, mu, Sigma = self.size, self.alpha, self.mu, self.Sigma
        variance = Sigma.diagonal()
        share = alpha * variance
        weighted = alpha * mu
        second_moment = share + weighted * mu
        gradient, hessian = np.empty(k + 1), np.empty((k + 1, k + 1))
        gradient[:k] = 0.5 * (1.0 - second_moment)
        gradient[k] = 0.5 * (self.n - self.beta * self.residual2 - k + share.sum())
        scaled = alpha[:, None] * Sigma * alpha
        block = hessian[:k, :k]
        np.multiply(scaled, 0.5 * Sigma + mu[:, None] * mu, out=block)
        hessian.flat[: k * (k + 2) : k + 2] -= 0.5 * second_moment  # the diagonal of the block
        towards = Sigma @ weighted  # d mu / d log beta
        fall = share - np.einsum("ij,ij->i", scaled, Sigma)  # -alpha d Sigma_ii / d log beta
        hessian[:k, k] = hessian[k, :k] = 0.5 * fall - weighted * towards
        hessian[k, k] = weighted @ towards - 0.5 * (self.beta * self.residual2 + fall.sum())
        return gradient, hessian


def _likelihood(alpha: float, s: float, q2: float) -> float:
    """Likelihood part of one component (SE07 eq. 29)."""
    return 0.5 * (q2 / (alpha + s) - np.log1p(s / alpha))


def diagonal_of_inverse(X: Array, t: Array, beta: float) -> tuple[Array, Array]:
    """Diagonal of C^-1 and C^-1 t for C = I / beta + X X', from the smaller of the two factorisations.

    With as many columns as rows or more, C = R'R by QR of [X, I / sqrt(beta)]'; with fewer, by QR of the stacked
    columns. Both lose the root of the condition of C only; beta - beta^2 X Sigma X' from an explicit Sigma would lose
    all digits where a column explains a point.
    """
    n, k = X.shape
    if k >= n:
        R = np.linalg.qr(np.vstack([X.T, np.eye(n) / np.sqrt(beta)]), mode="r")
        half, _ = dtrtri(np.asarray(R))
        return np.einsum("ij,ij->i", half, half), half @ (half.T @ t)
    Q = np.linalg.qr(np.vstack([np.sqrt(beta) * X, np.eye(k)]))[0][:n]
    leverage = np.minimum(np.einsum("ij,ij->i", Q, Q), 1.0)
    return beta * (1.0 - leverage), beta * (t - Q @ (Q.T @ t))
