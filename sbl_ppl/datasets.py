"""The signals and functions of the papers, with noise of a stated size.

Every function returns a :class:`Dataset`: inputs, noisy targets, and the truth that the noise hides, so that
a fit can be scored against it. The noise level follows from the signal-to-noise ratio

    SNR = sd(signal) / sd(noise),

where sd(signal) is the sample standard deviation (divisor n - 1) of the signal at the n inputs. On the grid
i/n, i = 1..n, this reproduces the noise variances printed in Table 1 of [SE07]_: 0.119 for Bumps at SNR 2 and
n = 128 (the divisor n gives 0.118, midpoints 0.088 and a grid with both ends 0.109). A seed fixes the inputs
and the standardised noise, so one seed at two noise levels gives the same picture, only noisier.

References
----------
.. [SE07] A. Schmolck and R. Everson (2007). Smooth relevance vector machine. Machine Learning 68.
.. [DJ94] D. L. Donoho and I. M. Johnstone (1994). Ideal spatial adaptation by wavelet shrinkage.
   Biometrika 81.
.. [T01] M. E. Tipping (2001). Sparse Bayesian learning and the relevance vector machine. JMLR 1.
.. [TF03] M. E. Tipping and A. C. Faul (2003). Fast marginal likelihood maximisation for sparse Bayesian
   models. AISTATS.
.. [F91] J. H. Friedman (1991). Multivariate adaptive regression splines. Annals of Statistics 19.
.. [R96] B. D. Ripley (1996). Pattern Recognition and Neural Networks. Cambridge University Press.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from .checks import choice, is_number, seed_number, whole_number

__all__ = [
    "Dataset",
    "blocks",
    "blocks_sinc",
    "bumps",
    "doppler",
    "friedman1",
    "friedman2",
    "friedman3",
    "heavisine",
    "ripley",
    "sinc",
    "sinc_2d",
]

Array = NDArray[np.float64]

# Table 1 of DJ94: Blocks and Bumps share their positions.
_POSITIONS = np.array([0.10, 0.13, 0.15, 0.23, 0.25, 0.40, 0.44, 0.65, 0.76, 0.78, 0.81])
_BLOCKS_HEIGHTS = np.array([4.0, -5.0, 3.0, -4.0, 5.0, -4.2, 2.1, 4.3, -3.1, 2.1, -4.2])
_BUMPS_HEIGHTS = np.array([4.0, 5.0, 3.0, 4.0, 5.0, 4.2, 2.1, 4.3, 3.1, 5.1, 4.2])
_BUMPS_WIDTHS = np.array([0.005, 0.005, 0.006, 0.01, 0.01, 0.03, 0.01, 0.01, 0.005, 0.008, 0.005])

_RIPLEY_MEANS = np.array([[[-0.7, 0.3], [0.3, 0.3]], [[-0.3, 0.7], [0.4, 0.7]]])  # class, mode, coordinate
_RIPLEY_VARIANCE = 0.03


@dataclass(frozen=True, eq=False, repr=False)
class Dataset:
    """Noisy targets and the truth behind them.

    Attributes
    ----------
    name : str
        The name of the function that made it.
    x : array
        Inputs: n of them, or n rows when there are several input variables.
    t : array
        The n targets: `signal` plus noise (for `ripley`, the class 0 or 1).
    signal : array
        The n noise-free values (for `ripley`, the probability of class 1).
    noise_sd : float
        Standard deviation of the noise, in the units of `t`; its square is the true noise variance. It is nan
        for `ripley`, whose targets are not a signal plus noise.
    """

    name: str
    x: Array
    t: Array
    signal: Array
    noise_sd: float

    def __repr__(self) -> str:
        return f"Dataset({self.name!r}, x{self.x.shape}, noise_sd={self.noise_sd:.4g})"


def sinc(
    n: int = 100,
    *,
    snr: float | None = None,
    noise_sd: float | None = None,
    noise: str = "gaussian",
    seed: int = 0,
) -> Dataset:
    """y(x) = sin(x) / x at n equally spaced points of [-10, 10] ([T01]_ section 4.1, appendix E.1).

    Parameters
    ----------
    n : int
        Number of points, at least 2.
    snr : float, optional
        sd(signal) / sd(noise); ``np.inf`` for no noise. [SE07]_ uses 2 with n = 128.
    noise_sd : float, optional
        Standard deviation of the noise, instead of `snr`. With neither, the noise is T01's: sd 0.1 when
        Gaussian, the interval [-0.1, 0.1] (sd 0.1/√3) when uniform.
    noise : {"gaussian", "uniform"}
        Uniform noise of a given sd fills [-√3 sd, √3 sd].
    seed : int
        Seed of the noise.

    Raises
    ------
    ValueError
        If n < 2, `snr` <= 0, `noise_sd` < 0, both levels are given, or `noise` is unknown.
    """
    x = np.linspace(-10.0, 10.0, _checked_size(n))
    choice("noise", noise, ("gaussian", "uniform"))
    paper_sd = 0.1 / np.sqrt(3.0) if noise == "uniform" else 0.1
    rng = _generator(seed)
    return _observe("sinc", x, _sinc(x), rng, snr=snr, noise_sd=noise_sd, paper_sd=paper_sd, noise=noise)


def blocks(n: int = 1024, *, snr: float = 7.0, seed: int = 0) -> Dataset:
    """Eleven steps: f(u) = Σ_j h_j (1 + sgn(u - u_j)) / 2 ([DJ94]_ Table 1).

    Parameters
    ----------
    n : int
        Number of points u = i/n, i = 1..n, at least 2. The returned inputs are x = 20u - 10, the scale in
        which [SE07]_ quotes kernel widths. A point that falls on a step has half its height.
    snr : float
        sd(signal) / sd(noise); ``np.inf`` for no noise.
    seed : int
        Seed of the noise.

    Raises
    ------
    ValueError
        If n < 2 or `snr` <= 0.
    """
    u = _unit_grid(n)
    return _observe("blocks", 20.0 * u - 10.0, _blocks(u), _generator(seed), snr=snr)


def bumps(n: int = 1024, *, snr: float = 7.0, seed: int = 0) -> Dataset:
    """Eleven peaks: f(u) = Σ_j h_j (1 + |u - u_j| / w_j)⁻⁴ ([DJ94]_ Table 1).

    Grid, arguments and errors as in `blocks`.
    """
    u = _unit_grid(n)
    signal = np.sum(_BUMPS_HEIGHTS * (1.0 + np.abs(u[:, None] - _POSITIONS) / _BUMPS_WIDTHS) ** -4.0, axis=1)
    return _observe("bumps", 20.0 * u - 10.0, signal, _generator(seed), snr=snr)


def heavisine(n: int = 1024, *, snr: float = 7.0, seed: int = 0) -> Dataset:
    """Sine with two jumps: f(u) = 4 sin 4πu - sgn(u - 0.3) - sgn(0.72 - u) ([DJ94]_ Table 1).

    Grid, arguments and errors as in `blocks`.
    """
    u = _unit_grid(n)
    signal = 4.0 * np.sin(4.0 * np.pi * u) - np.sign(u - 0.3) - np.sign(0.72 - u)
    return _observe("heavisine", 20.0 * u - 10.0, signal, _generator(seed), snr=snr)


def doppler(n: int = 1024, *, snr: float = 7.0, seed: int = 0) -> Dataset:
    """Falling frequency: f(u) = √(u(1 - u)) sin(2π · 1.05 / (u + 0.05)) ([DJ94]_ Table 1).

    Grid, arguments and errors as in `blocks`.
    """
    u = _unit_grid(n)
    signal = np.sqrt(u * (1.0 - u)) * np.sin(2.0 * np.pi * 1.05 / (u + 0.05))
    return _observe("doppler", 20.0 * u - 10.0, signal, _generator(seed), snr=snr)


def blocks_sinc(n: int = 1024, *, snr: float = 7.0, seed: int = 0) -> Dataset:
    """Blocks, then sinc: two characters in one series ([SE07]_ Fig. 7).

    The first n/2 values are those of `blocks`, the others those of `sinc`, each with n/2 points; `snr` refers
    to the whole. As in `blocks`, x = 20 i/n - 10. The paper does not give n.

    Parameters
    ----------
    n : int
        Number of points, even and at least 4.
    snr : float
        sd(signal) / sd(noise); ``np.inf`` for no noise.
    seed : int
        Seed of the noise.

    Raises
    ------
    ValueError
        If n is odd or below 4, or `snr` <= 0.
    """
    x = 20.0 * _unit_grid(n) - 10.0
    if n % 2 or n < 4:
        raise ValueError(f"n={n} must be even and at least 4, for two equal halves: use n={max(4, n + 1)}")
    signal = np.concatenate([_blocks(_unit_grid(n // 2)), _sinc(np.linspace(-10.0, 10.0, n // 2))])
    return _observe("blocks_sinc", x, signal, _generator(seed), snr=snr)


def sinc_2d(n: int = 1000, *, snr: float | None = None, noise_sd: float | None = None, seed: int = 0) -> Dataset:
    """y(x) = sin‖x‖ / ‖x‖ of two inputs, uniform at random in [-10, 10]² ([TF03]_ section 5.1).

    TF03 states the function and the noise, sd 0.1 (the default here), but not the inputs: the square is our
    choice.

    Parameters
    ----------
    n : int
        Number of points, at least 2. TF03 uses 100 to 4000.
    snr, noise_sd : float, optional
        The noise level, by one of the two, as in `sinc`.
    seed : int
        Seed of inputs and noise.

    Raises
    ------
    ValueError
        If n < 2, `snr` <= 0, `noise_sd` < 0, or both levels are given.
    """
    rng = _generator(seed)
    x = rng.uniform(-10.0, 10.0, size=(_checked_size(n), 2))
    radius = np.hypot(x[:, 0], x[:, 1])
    return _observe("sinc_2d", x, _sinc(radius), rng, snr=snr, noise_sd=noise_sd, paper_sd=0.1)


def friedman1(n: int = 240, *, snr: float | None = None, noise_sd: float | None = None, seed: int = 0) -> Dataset:
    """Five of ten inputs: y = 10 sin(π x₁x₂) + 20 (x₃ - ½)² + 10 x₄ + 5 x₅ ([F91]_; [T01]_ eq. 62).

    The ten inputs are uniform in [0, 1]; x₆ to x₁₀ do nothing. The noise is T01's, sd 1, unless a level is
    given.

    Parameters
    ----------
    n : int
        Number of points, at least 2.
    snr, noise_sd : float, optional
        The noise level, by one of the two, as in `sinc`.
    seed : int
        Seed of inputs and noise.

    Raises
    ------
    ValueError
        If n < 2, `snr` <= 0, `noise_sd` < 0, or both levels are given.
    """
    rng = _generator(seed)
    x = rng.uniform(size=(_checked_size(n), 10))
    signal = 10.0 * np.sin(np.pi * x[:, 0] * x[:, 1]) + 20.0 * (x[:, 2] - 0.5) ** 2
    signal += 10.0 * x[:, 3] + 5.0 * x[:, 4]
    return _observe("friedman1", x, signal, rng, snr=snr, noise_sd=noise_sd, paper_sd=1.0)


def friedman2(n: int = 240, *, snr: float = 3.0, seed: int = 0) -> Dataset:
    """Impedance of a circuit: y = √(x₁² + (x₂x₃ - 1/(x₂x₄))²) ([F91]_; [T01]_ eq. 63).

    x₁ (resistance) is uniform in [0, 100], x₂ (angular frequency) in [40π, 560π], x₃ (inductance) in [0, 1]
    and x₄ (capacitance) in [1, 11]. T01 prints 1/x₂x₄ for 1/(x₂x₄).

    Parameters
    ----------
    n : int
        Number of points, at least 2.
    snr : float
        sd(signal) / sd(noise), 3 in T01; ``np.inf`` for no noise.
    seed : int
        Seed of inputs and noise.

    Raises
    ------
    ValueError
        If n < 2 or `snr` <= 0.
    """
    rng = _generator(seed)
    x, reactance = _circuits(n, rng)
    return _observe("friedman2", x, np.hypot(x[:, 0], reactance), rng, snr=snr)


def friedman3(n: int = 240, *, snr: float = 3.0, seed: int = 0) -> Dataset:
    """Phase angle of the circuit, in radians: y = arctan((x₂x₃ - 1/(x₂x₄)) / x₁) ([F91]_; [T01]_ eq. 64).

    Inputs and arguments as in `friedman2`.
    """
    rng = _generator(seed)
    x, reactance = _circuits(n, rng)
    return _observe("friedman3", x, np.arctan2(reactance, x[:, 0]), rng, snr=snr)  # x₁ >= 0, and may be 0


def ripley(n: int = 250, *, seed: int = 0) -> Dataset:
    """Two classes in the plane, each of two Gaussians: Ripley's mixture ([R96]_; [T01]_ section 4.2).

    The classes are equally likely, the two modes of a class too, and every mode has covariance 0.03 I.
    Class 0 has its modes at (-0.7, 0.3) and (0.3, 0.3), class 1 at (-0.3, 0.7) and (0.4, 0.7). The Bayes
    error of this mixture is 8.93 % by quadrature; T01 says "around 8 %".

    Parameters
    ----------
    n : int
        Number of points, at least 2. Ripley's training set has 250, his test set 1000.
    seed : int
        Seed of classes and inputs.

    Returns
    -------
    Dataset
        `t` holds the classes 0. and 1., `signal` the probability of class 1 given x, and `noise_sd` is nan:
        the scatter of t about the signal is Bernoulli, of variance signal (1 - signal).

    Raises
    ------
    ValueError
        If n < 2.
    """
    rng = _generator(seed)
    label = rng.integers(2, size=_checked_size(n))
    mode = rng.integers(2, size=n)
    x = _RIPLEY_MEANS[label, mode] + np.sqrt(_RIPLEY_VARIANCE) * rng.standard_normal((n, 2))
    squares = np.sum((x[:, None, None, :] - _RIPLEY_MEANS) ** 2, axis=-1)
    # Far from every mode both densities underflow: only differences of the exponents count.
    exponents = -0.5 * (squares - squares.min(axis=(1, 2), keepdims=True)) / _RIPLEY_VARIANCE
    density = np.exp(exponents).sum(axis=2)
    return Dataset("ripley", x, label.astype(np.float64), density[:, 1] / density.sum(axis=1), float("nan"))


def _observe(
    name: str,
    x: Array,
    signal: Array,
    rng: np.random.Generator,
    *,
    snr: float | None = None,
    noise_sd: float | None = None,
    paper_sd: float | None = None,
    noise: str = "gaussian",
) -> Dataset:
    """Add noise to a signal, at the level of `snr` or `noise_sd`, or else at the paper's own `paper_sd`."""
    if snr is not None and noise_sd is not None:
        raise ValueError(f"snr={snr} and noise_sd={noise_sd} both set the noise level: give only one of them")
    sd = paper_sd if snr is None and noise_sd is None else noise_sd
    if sd is None:
        sd = _noise_sd_from_snr(name, signal, snr)
    if not (is_number(sd) and 0.0 <= sd < np.inf):
        raise ValueError(f"noise_sd={noise_sd!r} must be finite and at least 0: use noise_sd=0 for no noise")
    if noise == "gaussian":
        standardised = rng.standard_normal(signal.shape)
    else:
        standardised = rng.uniform(-np.sqrt(3.0), np.sqrt(3.0), signal.shape)
    return Dataset(name, x, signal + sd * standardised, signal, float(sd))


def _noise_sd_from_snr(name: str, signal: Array, snr: float | None) -> float:
    if not (is_number(snr) and snr > 0.0):
        raise ValueError(f"snr={snr!r} must be positive, as sd(signal)/sd(noise): use snr=np.inf for no noise")
    spread = float(np.std(signal, ddof=1))
    if spread == 0.0 and np.isfinite(snr):
        raise ValueError(f"snr={snr} needs a signal that varies, and {name} at n={signal.size} does not: raise n")
    return spread / snr


def _generator(seed: int) -> np.random.Generator:
    return np.random.default_rng(seed_number(seed))


def _checked_size(n: int) -> int:
    return whole_number("n", n, 2, ": ask for more points")


def _unit_grid(n: int) -> Array:
    """i/n for i = 1..n, the grid of DJ94."""
    return np.arange(1, _checked_size(n) + 1) / n


def _sinc(x: Array) -> Array:
    value: Array = np.sinc(x / np.pi)  # NumPy's is sin(πx)/(πx), with its limit 1 at 0
    return value


def _blocks(u: Array) -> Array:
    value: Array = np.sum(_BLOCKS_HEIGHTS * (1.0 + np.sign(u[:, None] - _POSITIONS)) / 2.0, axis=1)
    return value


def _circuits(n: int, rng: np.random.Generator) -> tuple[Array, Array]:
    """Draw the inputs of Friedman 2 and 3, with the reactance x₂x₃ - 1/(x₂x₄) that both use."""
    low = [0.0, 40.0 * np.pi, 0.0, 1.0]
    high = [100.0, 560.0 * np.pi, 1.0, 11.0]
    x = rng.uniform(low, high, size=(_checked_size(n), 4))
    return x, x[:, 1] * x[:, 2] - 1.0 / (x[:, 1] * x[:, 3])
