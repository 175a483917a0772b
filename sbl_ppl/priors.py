"""Priors on a precision, and the maximiser of one component under each of them.

All five are one family. With respect to d alpha, on the bounds [low, high],

    log p(alpha | sigma^2) = e log(alpha) - b alpha - c kappa - log Z,    kappa = 1 / (1 + sigma^2 alpha / |phi|^2),

where `Flat` has e = b = c = 0, `Smoothness` has c > 0 (SE07 eq. 16), `Gamma(a, b)` has e = a - 1, `Power(zeta)` has
e = zeta, and `measure="log"` (so also `Jeffreys`) lowers e by one. A mode depends on the coordinate in which the
density is taken: per d log(alpha) the exponent is e + 1. `space` says which one is maximised; without it each prior is
maximised in its own coordinate, where `Flat` and `Smoothness` give the papers' type-II solution.

One component contributes (SE07 eq. 29, 33)

    l(alpha) = 1/2 [log(alpha) - log(alpha + s) + q^2 / (alpha + s)] + log p(alpha | sigma^2),

and its derivative's numerator is a polynomial of degree at most three in alpha.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields
from functools import cached_property
from typing import Any

import numpy as np
from scipy.special import exp1, gammainc, gammaincc, gammaln, hyperu

from .checks import choice, flag, number, positive

Array = np.ndarray

_LOW, _HIGH = 1e-10, 1e10  # default bounds, relative to the spread of t and the norm of a column (SE07 section 2.1)
_REACH = 5.0  # spreads of t: what a column may at most carry, as a prior sd, to places where the data do not see it
_ABSENT = 1e-6  # nats: a component at alpha = high that contributes less is as good as pruned
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(16)


@dataclass(frozen=True, repr=False)
class Prior:
    """Base of the priors on a precision.

    Parameters
    ----------
    low, high : float, optional
        Bounds of alpha in the user's own units. Default: 1e-10 and 1e10 relative to |column|^2 / spread(t)^2, so that
        nothing depends on units. Of a kernel centred where the data hardly see it, the defaults are such that it cannot
        carry more than five spreads of t to that place. A component whose best alpha is at `high` and contributes
        nothing there is pruned.
    """

    low: float | None = None
    high: float | None = None

    def __post_init__(self) -> None:
        for field in fields(self):  # NumPy scalars would not be saved, nor printed as one writes them
            value = getattr(self, field.name)
            if isinstance(value, np.generic):
                object.__setattr__(self, field.name, value.item())
        for name in ("low", "high"):
            if getattr(self, name) is not None:
                positive(name, getattr(self, name), ": it bounds a precision")
        if self.low is not None and self.high is not None and self.low >= self.high:
            raise ValueError(f"low={self.low!r} must lie below high={self.high!r}: swap them")
        self._validate()

    def _validate(self) -> None:
        pass

    def __repr__(self) -> str:
        changed = [f for f in fields(self) if getattr(self, f.name) != f.default or f.name in ("c", "a", "b", "zeta")]
        return f"{type(self).__name__}({', '.join(f'{f.name}={getattr(self, f.name)!r}' for f in changed)})"

    @property
    def coordinate(self) -> str:
        """The coordinate in which the type-II MAP is taken by default: "alpha" or "log"."""
        return "alpha"

    def _family(self, n: int | None) -> tuple[float, float, float]:
        """(e, b, c) with respect to d alpha, for n observations."""
        raise NotImplementedError

    def config(self) -> dict[str, Any]:
        """Constructor arguments, for saving."""
        return asdict(self)

    def bind(
        self,
        n: int | None = None,
        norm2: Any = 1.0,
        scale2: float = 1.0,
        space: str | None = None,
        unseen: Any = 0.0,
    ) -> BoundPrior:
        """The prior in the units of the search: columns of unit norm and t of unit spread.

        Parameters
        ----------
        n : int, optional
            Number of observations, for "BIC" and "RIC".
        norm2 : float or array of shape (M,)
            Squared norms of the columns in the user's units.
        scale2 : float
            Square of the spread of t in the user's units.
        space : {"alpha", "log"}, optional
            The coordinate whose mode is sought; default the prior's own.
        unseen : float or array of shape (M,)
            Square of what a column of unit norm reaches where there are no data, beyond what it shows to them.
        """
        choice("space", space, (None, "alpha", "log"))
        e, b, c = self._family(n)
        norm2 = np.asarray(norm2, dtype=np.float64)
        # alpha in units of the search is the user's alpha times scale2 / norm2
        bound = BoundPrior(
            exponent=e,
            b=b * norm2 / scale2 if b > 0 else 0.0,
            c=c,
            rho=1.0 if getattr(self, "normalize", True) else 1.0 / norm2,
            low=_LOW + unseen / _REACH**2 if self.low is None else self.low * scale2 / norm2,
            high=_HIGH * (1.0 + unseen) if self.high is None else self.high * scale2 / norm2,
            space=space or self.coordinate,
        )
        if not np.all(bound.low < bound.high):
            given, other = ("low", "high") if self.high is None else ("high", "low")
            raise ValueError(
                f"{given}={getattr(self, given)!r} lies beyond the other bound of alpha, whose default is {_LOW:g} or "
                f"{_HIGH:g} relative to |column|^2 / spread(t)^2: give {other} too"
            )
        return bound

    def natural(self, n: int | None = None, norm2: Any = 1.0, scale2: Any = 1.0) -> BoundPrior:
        """The prior in the user's own units, for `norm2` and `scale2` of any array library; see `bind`."""
        e, b, c = self._family(n)
        return BoundPrior(
            exponent=e,
            b=b,
            c=c,
            rho=norm2 if getattr(self, "normalize", True) else 1.0,
            low=_LOW * norm2 / scale2 if self.low is None else self.low,
            high=_HIGH * norm2 / scale2 if self.high is None else self.high,
            space="log",
        )

    def log_density(
        self,
        alpha: Any,
        noise_variance: float = 1.0,
        norm2: Any = 1.0,
        n: int | None = None,
        coordinate: str = "alpha",
    ) -> Array:
        """Normalised log density of alpha given the noise variance, per d alpha or (coordinate "log") per d log alpha.

        Default bounds are 1e-10 and 1e10 times norm2; outside the bounds the result is -inf.
        """
        choice("coordinate", coordinate, ("alpha", "log"))
        alpha, norm2 = np.asarray(alpha, dtype=np.float64), np.asarray(norm2, dtype=np.float64)
        bound = self.bind(n, norm2, 1.0, coordinate)
        inner = alpha / norm2
        with np.errstate(divide="ignore", invalid="ignore"):  # alpha <= 0 or inf lies outside the bounds
            value = bound.log_prior(inner, 1.0 / noise_variance) - bound.log_normaliser(1.0 / noise_variance)
        value = np.where((inner >= bound.low) & (inner <= bound.high), value, -np.inf)
        return value - np.log(norm2) if coordinate == "alpha" else value

    def maximise(
        self,
        s: Any,
        q2: Any,
        noise_variance: float = 1.0,
        norm2: Any = 1.0,
        n: int | None = None,
        space: str | None = None,
    ) -> tuple[Array, Array]:
        """Best alpha for vectors of s and q^2, and what it gains over a pruned component.

        alpha = inf (gain 0) where pruning is best. Raises ValueError where the mode does not exist, see `reason`.
        """
        norm2 = np.asarray(norm2, dtype=np.float64)
        bound = self.bind(n, norm2, 1.0, space)
        bound.require_mode()
        s, q2 = np.broadcast_arrays(np.asarray(s, np.float64) / norm2, np.asarray(q2, np.float64) / norm2)
        alpha, gain = bound.maximise(np.atleast_1d(s), np.atleast_1d(q2), 1.0 / noise_variance)
        return (alpha * norm2).reshape(s.shape), gain.reshape(s.shape)


@dataclass(frozen=True, repr=False)
class Flat(Prior):
    """Constant in alpha (`measure="alpha"`) or in log alpha (`measure="log"`): the classical RVM in both cases."""

    measure: str = "alpha"

    def _validate(self) -> None:
        _check_measure(self.measure)

    @property
    def coordinate(self) -> str:
        return self.measure

    def _family(self, n: int | None) -> tuple[float, float, float]:
        return (0.0 if self.measure == "alpha" else -1.0), 0.0, 0.0


@dataclass(frozen=True, repr=False)
class Jeffreys(Flat):
    """1 / alpha: flat in log alpha. The limit of Gamma(a, b) for a, b -> 0 and of Power(zeta) for zeta -> -1."""

    measure: str = "log"

    def _validate(self) -> None:
        if self.measure != "log":
            raise ValueError(f"measure={self.measure!r} contradicts Jeffreys(): use Flat(measure='alpha')")


@dataclass(frozen=True, repr=False)
class Smoothness(Prior):
    """exp(-c kappa), the smoothness prior of the sRVM (SE07 eq. 15, 16).

    Parameters
    ----------
    c : {"None", "AIC", "BIC", "RIC"} or float
        Severity: 0, 1, log(N)/2, log(N), or any number >= 0.
    measure : {"log", "alpha"}
        Density per d log alpha or, as SE07 eq. (16), per d alpha. The type-II MAP is the same, the posterior is not.
    normalize : bool
        Whether kappa uses the column's norm, so that units of a column do not matter. False: the papers' raw form.
    """

    c: str | float = "BIC"
    measure: str = "log"
    normalize: bool = True

    def __init__(
        self,
        c: str | float = "BIC",
        measure: str = "log",
        normalize: bool = True,
        low: float | None = None,
        high: float | None = None,
    ):
        for name, value in (("low", low), ("high", high), ("c", c), ("measure", measure), ("normalize", normalize)):
            object.__setattr__(self, name, value)
        self.__post_init__()

    def _validate(self) -> None:
        _check_measure(self.measure)
        flag("normalize", self.normalize)
        if not (isinstance(self.c, str) and self.c in ("None", "AIC", "BIC", "RIC")):
            wanted = "a finite number >= 0, or 'None', 'AIC', 'BIC', 'RIC'"
            number("c", self.c, lambda c: 0 <= c < np.inf, wanted)

    @property
    def coordinate(self) -> str:
        return self.measure

    def strength(self, n: int | None = None) -> float:
        """The number c for n observations."""
        if not isinstance(self.c, str):
            return float(self.c)
        if self.c in ("None", "AIC"):
            return float(self.c == "AIC")
        if n is None:
            raise ValueError(f"c={self.c!r} depends on the number of observations: pass n=")
        return float(np.log(n)) / (2.0 if self.c == "BIC" else 1.0)

    def _family(self, n: int | None) -> tuple[float, float, float]:
        return (0.0 if self.measure == "alpha" else -1.0), 0.0, self.strength(n)


@dataclass(frozen=True, repr=False)
class Gamma(Prior):
    """alpha^(a-1) exp(-b alpha): T01's hyperprior, maximised in log alpha (T01 eq. 35).

    With b > 0 no component is ever exactly absent; one whose best alpha reaches `high` is pruned. b is in the user's
    units of alpha.
    """

    a: float = 1e-4
    b: float = 1e-4

    def __init__(self, a: float = 1e-4, b: float = 1e-4, low: float | None = None, high: float | None = None):
        for name, value in (("low", low), ("high", high), ("a", a), ("b", b)):
            object.__setattr__(self, name, value)
        self.__post_init__()

    def _validate(self) -> None:
        for name, value in (("a", self.a), ("b", self.b)):
            number(name, value, lambda x: 0 <= x < np.inf, "a finite number >= 0")

    @property
    def coordinate(self) -> str:
        return "log"

    def _family(self, n: int | None) -> tuple[float, float, float]:
        return self.a - 1.0, self.b, 0.0


@dataclass(frozen=True, repr=False)
class Power(Prior):
    """alpha^zeta with zeta <= 0 (SE07 section 6.5), maximised in alpha; zeta = -1 is `Jeffreys`."""

    zeta: float = 0.0

    def __init__(self, zeta: float = 0.0, low: float | None = None, high: float | None = None):
        for name, value in (("low", low), ("high", high), ("zeta", zeta)):
            object.__setattr__(self, name, value)
        self.__post_init__()

    def _validate(self) -> None:
        wanted = "finite and <= 0: a positive power prunes every component"
        number("zeta", self.zeta, lambda zeta: -np.inf < zeta <= 0, wanted)

    def _family(self, n: int | None) -> tuple[float, float, float]:
        return float(self.zeta), 0.0, 0.0


def _check_measure(measure: str) -> None:
    choice("measure", measure, ("alpha", "log"))  # density per d alpha, or per d log(alpha)


@dataclass(frozen=True)
class BoundPrior:
    """A prior in definite units, those of the search if `bind` made it, with the numerics of the family.

    `b`, `rho`, `low` and `high` are numbers or arrays of shape (M,); `at` picks components out of the arrays.
    beta = 1 / sigma^2; kappa = B / (B + alpha) with B = rho beta.
    """

    exponent: float
    b: Any
    c: float
    rho: Any
    low: Any
    high: Any
    space: str

    @cached_property
    def uniform(self) -> bool:
        """Whether all components have the same prior, so that there is nothing to pick."""
        return not any(np.ndim(value) for value in (self.b, self.rho, self.low, self.high))

    def at(self, index: Any) -> BoundPrior:
        """The prior of the chosen components."""
        if self.uniform:
            return self
        b, rho, low, high = (v[index] if np.ndim(v) else v for v in (self.b, self.rho, self.low, self.high))
        return BoundPrior(self.exponent, b, self.c, rho, low, high, self.space)

    @cached_property
    def e(self) -> float:
        """The exponent in the coordinate that is maximised."""
        return self.exponent + (self.space == "log")

    @cached_property
    def smooth(self) -> bool:
        """Whether only the smoothness term (or nothing) is left: then a pruned component costs nothing."""
        return self.e == 0.0 and np.ndim(self.b) == 0 and self.b == 0.0

    def require_mode(self) -> None:
        """Raise ValueError if the mode in this coordinate is a degenerate one."""
        if self.e <= -0.5:
            raise ValueError(
                f"space={self.space!r}: the density of this prior behaves like alpha^{self.e:g}, and below -1/2 every "
                "component's maximum is at alpha = 0, whatever the data (SE07 section 6.5): use space='log', a larger "
                "exponent, or sample the posterior instead"
            )
        if self.e > 0 and not np.all(self.b > 0):
            raise ValueError(
                f"space={self.space!r}: the density of this prior grows like alpha^{self.e:g} without end, so that "
                "every component is pruned, whatever the data: use space='alpha' or a prior with b > 0"
            )

    def log_prior(self, alpha: Any, beta: float) -> Array:
        """Log density without its normaliser, in the coordinate of `space`."""
        value = np.zeros(np.shape(alpha))
        if self.c:
            value -= self.c / (1.0 + alpha / (self.rho * beta))
        if self.e:
            value += self.e * np.log(alpha)
        if np.ndim(self.b) or self.b:
            value -= self.b * alpha
        return value

    def derivatives(self, alpha: Array, beta: float) -> tuple[Array, Array, Array]:
        """First and second derivative of `log_prior` in log alpha, and the first in log beta.

        The smoothness term depends on log alpha - log beta alone, so that its other second derivatives follow: mixed
        -w and in log beta w, where w is its second derivative in log alpha (returned within the second).
        """
        first, second = np.full(len(alpha), self.e), np.zeros(len(alpha))
        noise = np.zeros(len(alpha))
        if self.c:
            kappa = 1.0 / (1.0 + alpha / (self.rho * beta))
            slope = self.c * kappa * (1.0 - kappa)
            first, noise = first + slope, -slope
            second = slope * (2.0 * kappa - 1.0)
        if np.ndim(self.b) or self.b:
            first, second = first - self.b * alpha, second - self.b * alpha
        return first, second, noise

    def log_pruned(self) -> Any:
        """What a pruned component contributes: the value at alpha = high, which the smooth priors take at infinity."""
        return 0.0 if self.smooth else self.e * np.log(self.high) - self.b * self.high

    def total(self, index: Array, alpha: Array, beta: float, m: int) -> float:
        """Sum of `log_prior` over m components, of which those in `index` have precisions and the others are pruned."""
        value = float(np.sum(self.at(index).log_prior(alpha, beta)))
        if not self.smooth:
            value += float(np.delete(np.broadcast_to(self.log_pruned(), (m,)), index).sum())
        return value

    def log_normaliser(self, beta: float) -> Any:
        """log Z on [low, high]; no difference of exponential integrals is taken, as it would cancel (SE07 eq. 17)."""
        low, high = np.log(self.low), np.log(self.high)
        power = self.exponent + 1.0  # of the density per d log alpha
        if self.c:
            return self._log_normaliser_smooth(beta, low, high, power)
        if np.ndim(self.b) or self.b:
            return self._log_normaliser_gamma(power) - power * np.log(self.b)
        if power == 0:
            return np.log(high - low)
        # log |high^power - low^power| / |power| without overflow
        ends = (high, low) if power > 0 else (low, high)
        return power * ends[0] + np.log(-np.expm1(-abs(power) * (high - low))) - np.log(abs(power))

    def _log_normaliser_gamma(self, power: float) -> Any:
        """log [Gamma(power, x) - Gamma(power, y)] from the tail that neither cancels nor leaves the float range."""
        x, y = self.b * self.low, self.b * self.high
        left, right = np.maximum(x, 100.0), np.maximum(y, 100.0)  # far out, Gamma(p, x) = e^-x U(1-p, 1-p, x)
        far = hyperu(1 - power, 1 - power, left) - np.exp(left - right) * hyperu(1 - power, 1 - power, right)
        with np.errstate(divide="ignore"):  # log 0 in the branch that is not taken
            if power == 0:
                near = np.log(exp1(x) - exp1(y))
            else:
                upper = gammaincc(power, x) - gammaincc(power, y)
                lower = gammainc(power, y) - gammainc(power, x)
                near = gammaln(power) + np.log(np.where(gammainc(power, x) > 0.5, upper, lower))
            return np.where(x > 100.0, np.log(far) - x, near)

    def _log_normaliser_smooth(self, beta: float, low: Any, high: Any, power: float) -> Any:
        # Composite Gauss-Legendre in log alpha: panels of at most two nats, in which the exponent, of slope c/4 at
        # most, changes by 20 at most; taken relative to the end, where the integrand is largest, against underflow.
        low, high, centre = np.broadcast_arrays(low, high, np.log(self.rho * beta))
        panels = max(1, int(np.ceil(np.max(high - low) * max(0.5, self.c / 80.0))))
        edges = np.linspace(0.0, 1.0, panels + 1)
        nodes = (edges[:-1, None] + (edges[1:, None] - edges[:-1, None]) * (_NODES + 1) / 2).ravel()
        width = (high - low)[..., None]
        log_alpha = low[..., None] + width * nodes
        kappa, kappa_end = 1.0 / (1.0 + np.exp(log_alpha - centre[..., None])), 1.0 / (1.0 + np.exp(high - centre))
        log_value = power * (log_alpha - high[..., None]) - self.c * (kappa - kappa_end[..., None])
        total = (np.exp(log_value) * np.tile(_WEIGHTS, panels)).sum(-1) * width[..., 0] / (2 * panels)
        return power * high - self.c * kappa_end + np.log(total)

    def gains(self, s: Array, q2: Array, beta: float) -> Array:
        """What the best alpha of each component gains over pruning it; 0 where pruning is best."""
        if self.smooth and not self.c:
            ratio = np.maximum(q2 / s, 1.0)
            excess = ratio - 1.0  # the best alpha is s / excess
            if (s >= self.low * excess).all() and not ((s > self.high * excess) & (excess > 0)).any():
                return 0.5 * (excess - np.log(ratio))
        return self.maximise(s, q2, beta)[1]

    def maximise(self, s: Array, q2: Array, beta: float) -> tuple[Array, Array]:
        """Best alpha (inf if pruned) and gain over pruning, for vectors of s > 0 and q^2 aligned with this prior."""
        if not self.smooth:
            return self._maximise_cubic(s, q2, beta)
        # A root needs q^2/s > 1 + 2c where B >= s: kappa is then at least s/(s + alpha) and the gain at most that of
        # the orthonormal case, 1/2 (v - 1 - log v) with v = q^2/s - 2c.
        centre = self.rho * beta
        threshold = 1.0 + 2.0 * self.c if np.all(centre >= s * (1 - 1e-12)) else 1.0
        alpha, gain = np.full(s.shape, np.inf), np.zeros(s.shape)
        found = np.flatnonzero(q2 > threshold * s)
        if not len(found):
            return alpha, gain
        chosen = self.at(found)
        s, q2 = s[found], q2[found]
        if self.c == 0:
            best = s / (q2 / s - 1.0)
        elif threshold > 1.0:
            best = _smooth_root(s, q2, chosen.rho * beta, self.c)
        else:
            return self._scatter(found, alpha, gain, *chosen._maximise_cubic(s, q2, beta))
        best = np.minimum(np.maximum(best, chosen.low), chosen.high)
        value = chosen._objective(best, s, q2, beta)
        keep = value > np.where(best < chosen.high, 0.0, _ABSENT)
        return self._scatter(found, alpha, gain, np.where(keep, best, np.inf), np.where(keep, value, 0.0))

    @staticmethod
    def _scatter(found: Array, alpha: Array, gain: Array, best: Array, value: Array) -> tuple[Array, Array]:
        alpha[found], gain[found] = best, value
        return alpha, gain

    def _objective(self, alpha: Array, s: Array, q2: Array, beta: float) -> Array:
        with np.errstate(invalid="ignore"):
            return component(alpha, s, q2) + self.log_prior(alpha, beta)

    def contribution(self, alpha: Array, s: Array, q2: Array, beta: float) -> Array:
        """What a component at this alpha contributes to the objective over pruning it."""
        return self._objective(alpha, s, q2, beta) - self.log_pruned()

    def _maximise_cubic(self, s: Array, q2: Array, beta: float) -> tuple[Array, Array]:
        """All stationary points of l as roots of its cubic, compared with each other and with the bounds.

        In x = alpha / s the numerator of 2 dl/d(alpha) is, with r = B/s,
        (k (1+x)^2 - x (1+x) - (q^2/s) x - 2 b s x (1+x)^2), k = 1 + 2e, and with the smoothness term (where e = b = 0)
        (1 + (1 - q^2/s) x) (r + x)^2 + 2 c r x (1 + x)^2.
        """
        ratio, one = q2 / s, np.ones_like(s)
        if self.c:
            r = np.broadcast_to(self.rho * beta / s, s.shape)
            coefficients = np.stack(
                [
                    1 - ratio + 2 * self.c * r,
                    1 + 2 * r * (1 - ratio) + 4 * self.c * r,
                    2 * r + r**2 * (1 - ratio) + 2 * self.c * r,
                    r**2,
                ]
            )
        else:
            k, d = 1 + 2 * self.e, 2 * self.b * s
            coefficients = np.stack([-d, (k - 1) - 2 * d, (2 * k - 1) - ratio - d, k * one])
        roots = _positive_roots(coefficients) * s
        high = np.broadcast_to(self.high, s.shape)
        candidates = np.vstack([np.clip(roots, self.low, high), np.broadcast_to(self.low, s.shape)])
        value = self._objective(candidates, s, q2, beta)
        pick = np.where(np.isfinite(value), value, -np.inf).argmax(axis=0), np.arange(len(s))
        best, gain = candidates[pick], value[pick] - self.log_pruned()
        keep = gain > np.where(best < high, 0.0, _ABSENT)
        return np.where(keep, best, np.inf), np.where(keep, gain, 0.0)


def component(alpha: Array, s: Array, q2: Array) -> Array:
    """Likelihood part of one component, 1/2 [log(alpha) - log(alpha+s) + q^2/(alpha+s)] (SE07 eq. 29)."""
    return 0.5 * (q2 / (alpha + s) - np.log1p(s / alpha))


def _smooth_root(s: Array, q2: Array, centre: Any, c: float) -> Array:
    """The finite maximum under the smoothness prior where B >= s; inf where there is none.

    In y = s/alpha the stationarity condition is h(y) = y + 1 - q^2/s + 2 c r ((1+y)/(1+r y))^2 = 0 with r = B/s >= 1.
    h is convex, and the maximum is its largest root: Newton from the right, y = q^2/s - 1, falls monotonically onto it,
    and passes a point of negative slope or below zero exactly if there is no root.
    """
    r = np.maximum(centre / s, 1.0)
    top = q2 / s - 1.0
    y, alive = top.copy(), np.ones(top.shape, dtype=bool)
    for _ in range(60):
        denominator = 1.0 + r * y
        u = (1.0 + y) / denominator
        pull = 2.0 * c * r * u
        slope = 1.0 - 2.0 * pull * (r - 1.0) / denominator**2
        alive &= slope > 0
        step = np.where(alive, (y - top + pull * u) / np.where(alive, slope, 1.0), 0.0)
        y = y - step
        alive &= y > 0
        y = np.where(alive, y, top)
        if (np.abs(step) <= 1e-8 * y).all():  # quadratic convergence: the error left is far below rounding
            break
    return np.where(alive, s / y, np.inf)


def _positive_roots(coefficients: Array) -> Array:
    """Real positive roots of cubics given highest power first, shape (3, K); inf where a root is not such."""
    degree_scale = np.abs(coefficients).max(axis=0)
    a, b, c, d = coefficients / degree_scale
    # The reciprocal polynomial has leading coefficient d, which is never zero here: k > 0 or r^2 > 0.
    companion = np.zeros((a.shape[0], 3, 3))
    companion[:, 0, 0], companion[:, 0, 1], companion[:, 0, 2] = -c / d, -b / d, -a / d
    companion[:, 1, 0] = companion[:, 2, 1] = 1.0
    inverse = np.linalg.eigvals(companion).T
    real = (np.abs(inverse.imag) <= 1e-6 * np.abs(inverse.real)) & (inverse.real > 0)
    x = np.where(real, 1.0 / np.where(real, inverse.real, 1.0), np.inf)
    finite = np.where(real, x, 1.0)
    for _ in range(3):  # Newton on the polynomial: eigenvalues of a badly scaled companion lose digits
        value = ((a * finite + b) * finite + c) * finite + d
        slope = (3 * a * finite + 2 * b) * finite + c
        step = np.where(np.abs(slope) > 0, value / np.where(np.abs(slope) > 0, slope, 1.0), 0.0)
        finite = np.where(np.abs(step) < 0.5 * finite, finite - step, finite)
    return np.where(real, finite, np.inf)
