"""SE07 Table 1: sparsity, error and estimated noise under the four priors, ours beside the paper's.

The third set of columns repeats the paper's own procedure, to tell a difference of conventions from an error: its
Algorithm 1 with random visits, and eq. (36) for the noise with the lost power restored but its sign of g as printed.
"""

import warnings
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.optimize import brentq
from tables import markdown, spread

import sbl_ppl as sbl
from sbl_ppl.datasets import Dataset

PRIORS = ("None", "AIC", "BIC", "RIC")
SHAPE = RATE = 1e-4  # SE07's g and h
WAVELAB = 7  # WaveLab places the 16 taps of sym8 seven points later than PyWavelets, on every level


@dataclass(frozen=True)
class Case:
    """A block of the table; the paper's rows are S, MSE and (if estimated) the noise variance, one per prior."""

    name: str
    kernel: str
    draw: Callable[[int], Dataset]
    paper: tuple[tuple[str, ...], ...]
    noise_given: bool = False


CASES = (
    Case(
        "Bumps, SNR 2",
        "symmlet",
        lambda seed: sbl.datasets.bumps(128, snr=2.0, seed=seed),
        (
            ("127.0 ± 0.0", "0.119 ± 0.001", "0.000 ± 0.000"),
            ("36.3 ± 7.8", "0.088 ± 0.008", "0.121 ± 0.037"),
            ("11.9 ± 2.5", "0.153 ± 0.034", "0.262 ± 0.038"),
            ("2.6 ± 1.4", "0.320 ± 0.051", "0.450 ± 0.068"),
        ),
    ),
    Case(
        "Bumps, SNR 7",
        "symmlet",
        lambda seed: sbl.datasets.bumps(128, snr=7.0, seed=seed),
        (
            ("127.0 ± 0.0", "0.010 ± 0.000", "0.000 ± 0.000"),
            ("61.9 ± 6.0", "0.009 ± 0.001", "0.010 ± 0.004"),
            ("19.2 ± 4.9", "0.081 ± 0.024", "0.106 ± 0.029"),
            ("6.4 ± 1.3", "0.203 ± 0.024", "0.238 ± 0.018"),
        ),
    ),
    Case(
        "Sinc, SNR 2",
        "gauss 3.0",
        lambda seed: sbl.datasets.sinc(128, snr=2.0, seed=seed),
        (
            ("5.7 ± 0.7", "0.004 ± 0.001", "0.032 ± 0.001"),
            ("5.4 ± 1.1", "0.004 ± 0.001", "0.034 ± 0.001"),
            ("5.2 ± 0.6", "0.005 ± 0.001", "0.035 ± 0.002"),
            ("4.9 ± 1.0", "0.005 ± 0.001", "0.036 ± 0.002"),
        ),
    ),
    Case(
        "Sinc, SNR 2",
        "symmlet",
        lambda seed: sbl.datasets.sinc(128, snr=2.0, seed=seed),
        (
            ("127.0 ± 0.0", "0.031 ± 0.000", "0.000 ± 0.000"),
            ("28.9 ± 5.9", "0.012 ± 0.003", "0.020 ± 0.004"),
            ("9.1 ± 1.9", "0.006 ± 0.002", "0.032 ± 0.003"),
            ("6.2 ± 0.6", "0.006 ± 0.001", "0.036 ± 0.002"),
        ),
    ),
    Case(
        "Doppler, SNR 7",
        "symmlet",
        lambda seed: sbl.datasets.doppler(1024, snr=7.0, seed=seed),
        (
            ("367.3 ± 10.5", "0.00067 ± 0.00002"),
            ("130.5 ± 6.9", "0.00041 ± 0.00002"),
            ("56.6 ± 2.8", "0.00026 ± 0.00002"),
            ("42.2 ± 1.5", "0.00036 ± 0.00002"),
        ),
        noise_given=True,
    ),
)


def symmlet(n: int) -> sbl.Wavelet:
    return sbl.Wavelet("sym8", level=int(np.log2(n)))


def severity(prior: str, n: int) -> float:
    return {"None": 0.0, "AIC": 1.0, "BIC": 0.5 * np.log(n), "RIC": np.log(n)}[prior]


def ours(case: Case, prior: str, seed: int) -> tuple[float, float, float]:
    """S, MSE and noise variance of the package's own fit."""
    data = case.draw(seed)
    dictionary = symmlet(len(data.t)) if case.kernel == "symmlet" else sbl.Gaussian(3.0)
    given = data.noise_sd**2 if case.noise_given else None
    fit = sbl.fit_map(data.x, data.t, dictionary, sbl.Smoothness(prior), noise_variance=given)
    return len(fit.active), error(fit, data.signal), fit.noise_variance


def error(fit: sbl.MapFit, signal: np.ndarray) -> float:
    return float(np.mean((fit.predict(noise=False)[0] - signal) ** 2))


def as_printed(case: Case, prior: str, seed: int) -> tuple[float, float, float]:
    """The same by the paper's procedure: noise of exactly the stated variance, random order, its own conventions."""
    data = case.draw(seed)
    noise = data.t - data.signal
    t = data.signal + (noise - noise.mean()) * data.noise_sd / noise.std()
    if case.kernel != "symmlet":
        raw = sbl.Smoothness(prior, normalize=False)
        fit = sbl.fit_map(data.x, t, sbl.Gaussian(3.0), raw, selection="random", seed=seed)
        return len(fit.active), error(fit, data.signal), fit.noise_variance
    design, mean = symmlet(len(t)).bind(data.x), t.mean()
    z = design.project(np.roll(t - mean, WAVELAB))
    alpha, variance = algorithm_1(
        z**2, severity(prior, len(t)), data.noise_sd**2 if case.noise_given else None, np.random.default_rng(seed)
    )
    curve = np.roll(design.combine(z / (1.0 + alpha * variance)), -WAVELAB) + mean
    return np.isfinite(alpha).sum(), float(np.mean((curve - data.signal) ** 2)), variance


def algorithm_1(z2: np.ndarray, c: float, given: float | None, rng: np.random.Generator) -> tuple[np.ndarray, float]:
    """SE07 Algorithm 1 for orthonormal columns with squared projections z2; 100 random visits per column."""
    n = len(z2)
    variance = given or 0.1 * z2.mean()
    alpha, step = np.full(n, np.inf), 0
    for i in (int(z2.argmax()), *rng.integers(n, size=100 * n)):
        if z2[i] > (1.0 + 2.0 * c) * variance:
            alpha[i] = 1.0 / (z2[i] - (1.0 + 2.0 * c) * variance)
        elif np.isfinite(alpha[i]):
            alpha[i] = np.inf
        else:
            continue
        step += 1
        if given is None and step % 10 == 0:
            kept = np.isfinite(alpha)
            args = (alpha[kept], z2[kept], z2.sum(), n, c)
            variance = brentq(noise_slope, 1e-12 * z2.mean(), 4.0 * z2.mean(), args=args)
    return alpha, float(variance)


def noise_slope(variance: float, alpha: np.ndarray, z2: np.ndarray, total: float, n: int, c: float) -> float:
    """SE07 eq. (36), whose zero is the new noise variance."""
    kappa = 1.0 / (1.0 + alpha * variance)
    residual2 = total - z2 @ (kappa * (2.0 - kappa))
    prior = c * alpha @ (variance * kappa) ** 2
    return 0.5 * (n * variance - residual2 - variance * kappa.sum()) - prior + (SHAPE - 1.0) * variance - RATE


def heights(data: Dataset, prior: str, variances: np.ndarray) -> np.ndarray:
    """Log posterior of the symmlet fit with the noise variance held, up to a constant."""
    density = sbl.Smoothness(prior, measure="alpha")  # eq. (16), whose normaliser does not depend on the noise here
    fits = [sbl.fit_map(data.x, data.t, symmlet(128), density, noise_variance=v) for v in variances]
    noise_prior = -(SHAPE + 1.0) * np.log(variances) - RATE * np.var(data.t) / variances
    return np.array([fit.log_posterior for fit in fits]) + noise_prior


def profile(case: Case, prior: str, seed: int) -> tuple[float, float]:
    """Nats lost at the paper's noise variance, and how far below its best the second maximum lies (inf: none)."""
    data = case.draw(seed)
    best = sbl.fit_map(data.x, data.t, symmlet(128), sbl.Smoothness(prior)).noise_variance
    paper = float(case.paper[PRIORS.index(prior)][2].split()[0])
    top, held = heights(data, prior, np.array([best, paper]))
    curve = heights(data, prior, np.geomspace(0.02, 1.2, 300) * np.var(data.t))
    peaks = np.sort(curve[1:-1][(curve[1:-1] > curve[:-2]) & (curve[1:-1] > curve[2:])])
    return top - held, peaks[-1] - peaks[-2] if len(peaks) > 1 else np.inf


def block(case: Case, seeds: range) -> list[list[str]]:
    rows = []
    for prior, paper in zip(PRIORS, case.paper, strict=True):
        mine = np.array([ours(case, prior, seed) for seed in seeds]).T
        repeated = np.array([as_printed(case, prior, seed) for seed in seeds]).T
        row = [f"{case.name}, {case.kernel}, {prior}"]
        for k, digits in enumerate((1, 5 if case.noise_given else 3, 3)[: len(paper)]):
            row += [paper[k], spread(mine[k], digits), spread(repeated[k], digits)]
        rows.append(row + [""] * (10 - len(row)))
    return rows


def run(quick: bool = False) -> str:
    seeds = range(2 if quick else 10)
    rows = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", sbl.ConvergenceWarning)  # the None rows overfit, and the text says so
        for case in CASES:
            rows += block(case, seeds)
            print(f"  {case.name}, {case.kernel}", flush=True)
    header = [""] + [f"{value} {who}" for value in ("S", "MSE", "σ²") for who in ("paper", "ours", "Alg. 1")]
    profiles = {
        (k, prior): np.array([profile(CASES[k], prior, seed) for seed in seeds])
        for k in (0, 1)
        for prior in ("BIC", "RIC")
    }
    lost = {key: values[:, 0].mean() for key, values in profiles.items()}
    second = np.concatenate([values[:, 1] for values in profiles.values()])
    return TEXT.format(
        draws=len(seeds),
        table=markdown(header, rows),
        bic2=lost[0, "BIC"],
        ric2=lost[0, "RIC"],
        bic7=lost[1, "BIC"],
        ric7=lost[1, "RIC"],
        total=len(second),
        several=int(np.isfinite(second).sum()),
        depth=max((value for value in second if np.isfinite(value)), default=0.0),
    )


TEXT = """
## SE07 Table 1

Mean ± standard deviation over {draws} draws of the noise. *Ours* is `fit_map` with `Smoothness(prior)`, on
`Wavelet("sym8", level=log2 N)` for the symmlet (the paper keeps 127 of 128 columns of centred data, so its transform
goes down to one scaling coefficient) and on `Gaussian(3.0)` for gauss 3.0, N = 128. Doppler has N = 1024, SNR 7 and σ²
given: the header of the paper's block (SNR 2, σ² = 0.031) cannot be meant, because its errors lie far below what that
noise allows. *Alg. 1* repeats the paper's procedure.

{table}

Why ours differs from the paper, where it does:

- **Where the wavelet grid lies.** Libraries place the filter differently: WaveLab, the usual code of the time, puts the
  taps of the symmlet seven points from where PyWavelets puts them. Bumps at N = 128 has peaks one or two points wide,
  and is a different vector of coefficients on either grid. *Alg. 1* uses WaveLab's grid, and comes close to the paper's
  RIC rows where ours, on PyWavelets' grid, does not. Which library the paper used we do not know.
- **What density of the noise is maximised.** Eq. (36) has (g - 1)σ², the mode of a density per dσ⁻²; ours is the mode
  per dσ², with (g + 1)σ². Two counts out of 128 look harmless, but the profile over σ² is flat: holding σ² at the
  paper's mean costs our fits of Bumps {bic2:.1f} (BIC) and {ric2:.1f} (RIC) nats at SNR 2, and {bic7:.1f} and
  {ric7:.1f} at SNR 7. The paper's values are not a lower maximum of the same profile: of these {total} profiles
  {several} have a second maximum, at most {depth:.2f} nats below the first.
- **Bumps, SNR 7, BIC is a miss** that the two reasons do not explain in full: the paper keeps fewer columns than either
  of ours, with a larger error.
- **gauss 3.0**: the paper's κ uses the raw precision, ours the precision relative to the column's norm, which is
  stricter for columns as long as these, and keeps fewer columns for the same error. *Alg. 1* stands here for
  `Smoothness(prior, normalize=False)` with random selection.
- **None on the symmlet** is overfitting, in the paper and here: the noise estimate collapses onto its prior, and
  `fit_map` says `converged=False`.
- **± of the paper.** The error of None equals the variance of the noise, and varies in the paper by 0.001 at most: its
  noise was scaled to the stated variance on every draw. Ours is not (*Alg. 1* is), hence our larger ±.
"""
