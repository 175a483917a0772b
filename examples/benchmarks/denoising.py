"""Wavelet denoising: ours beside classical thresholding, on the four signals of Donoho and Johnstone.

All methods see the same noisy series and none is told the noise level.
"""

from collections.abc import Callable
from importlib.metadata import version

import numpy as np
import pywt
from skimage.restoration import denoise_wavelet
from tables import markdown, with_error

import sbl_ppl as sbl

WAVELET = "sym8"
SHIFTS = 16
OURS_SHIFTED = f"ours, {SHIFTS} shifts"
SIGNALS = ("Blocks", "Bumps", "HeaviSine", "Doppler")


def ours(t: np.ndarray) -> np.ndarray:
    return sbl.fit_map(None, t, sbl.Wavelet(WAVELET)).predict(noise=False)[0]


def shallow(t: np.ndarray) -> np.ndarray:
    return sbl.fit_map(None, t, sbl.Wavelet(WAVELET, level=4)).predict(noise=False)[0]


def ours_shifted(t: np.ndarray) -> np.ndarray:
    return sbl.denoise(t, WAVELET, shifts=SHIFTS).mean


def universal(t: np.ndarray, mode: str, sigma: float | None = None) -> np.ndarray:
    """Threshold all details at σ √(2 log N); σ from the median of the finest ones unless given."""
    scaling, *details = pywt.wavedec(t, WAVELET, mode="periodization", level=pywt.dwt_max_level(len(t), WAVELET))
    sigma = noise_of(details[-1]) if sigma is None else sigma
    threshold = sigma * np.sqrt(2.0 * np.log(len(t)))
    return pywt.waverec(
        [scaling, *[pywt.threshold(detail, threshold, mode) for detail in details]], WAVELET, mode="periodization"
    )


def noise_of(detail: np.ndarray) -> float:
    return float(np.median(np.abs(detail)) / 0.6745)


def hard_shifted(t: np.ndarray) -> np.ndarray:
    """As `universal`, averaged over cyclic shifts; σ once from the series as it is."""
    sigma = noise_of(pywt.dwt(t, WAVELET, mode="periodization")[1])
    curves = [np.roll(universal(np.roll(t, shift), "hard", sigma), -shift) for shift in range(SHIFTS)]
    return np.mean(curves, axis=0)


def scikit_image(t: np.ndarray, method: str) -> np.ndarray:
    return denoise_wavelet(t, wavelet=WAVELET, mode="soft", method=method)


METHODS = {
    "ours": ours,
    OURS_SHIFTED: ours_shifted,
    "universal, soft": lambda t: universal(t, "soft"),
    "universal, hard": lambda t: universal(t, "hard"),
    f"universal, hard, {SHIFTS} shifts": hard_shifted,
    "scikit-image BayesShrink": lambda t: scikit_image(t, "BayesShrink"),
    "scikit-image VisuShrink": lambda t: scikit_image(t, "VisuShrink"),
}


def error_of(signal: str, n: int, seed: int, method: Callable[[np.ndarray], np.ndarray]) -> float:
    data = getattr(sbl.datasets, signal.lower())(n, snr=7.0, seed=seed)
    return float(np.mean((method(data.t) - data.signal) ** 2) / data.noise_sd**2)


def errors_of(signal: str, n: int, draws: int) -> np.ndarray:
    """MSE / σ² of every method (rows) on every draw (columns)."""
    return np.array([[error_of(signal, n, seed, method) for seed in range(draws)] for method in METHODS.values()])


def row_of(errors: np.ndarray) -> list[str]:
    best = int(errors.mean(axis=1).argmin())
    cells = [with_error(values, 4) for values in errors]
    cells[best] = f"**{cells[best]}**"
    return cells


def ratio(errors: np.ndarray, one: str, other: str) -> str:
    """Ratio of two mean errors, with the standard error of the paired ratio (first order)."""
    names = list(METHODS)
    a, b = errors[names.index(one)], errors[names.index(other)]
    quotient = a.mean() / b.mean()
    deviation = np.std(a - quotient * b, ddof=1) / np.sqrt(len(a)) / b.mean()
    return f"{quotient:.3f} ± {deviation:.3f}"


def beaten(names: list[str], errors: list[np.ndarray], ours_name: str, shifted: bool) -> str:
    """A sentence on where another method with as many shifts has the smaller mean error."""
    rivals = [
        k for k, method in enumerate(METHODS) if ("shifts" in method) == shifted and not method.startswith("ours")
    ]
    losses = []
    for name, values in zip(names, errors, strict=True):
        means = values.mean(axis=1)
        mine, best = means[list(METHODS).index(ours_name)], min(rivals, key=lambda k: means[k])
        if means[best] < mine:
            losses.append(f"{name} ({list(METHODS)[best]}, {100 * (1 - means[best] / mine):.0f} % less)")
    return f"*{ours_name}* is beaten on {'; '.join(losses)}." if losses else f"*{ours_name}* is not beaten on any row."


def run(quick: bool = False) -> str:
    sizes, draws = ((256,), 2) if quick else ((1024, 2048), 20)
    names, errors = [], []
    for n in sizes:
        for signal in SIGNALS:
            names.append(f"{signal}, N = {n}")
            errors.append(errors_of(signal, n, draws))
            print(f"  {names[-1]}", flush=True)
    single, shifted = ("ours", "universal, hard"), (OURS_SHIFTED, f"universal, hard, {SHIFTS} shifts")
    rows = [[name, *row_of(each)] for name, each in zip(names, errors, strict=True)]
    ratios = [[name, ratio(each, *single), ratio(each, *shifted)] for name, each in zip(names, errors, strict=True)]
    return TEXT.format(
        n=sizes[0],
        draws=draws,
        shifts=SHIFTS,
        version=version("scikit-image"),
        table=markdown(["MSE / σ²", *METHODS], rows),
        ratios=markdown(["ours / hard threshold", "one basis", f"{SHIFTS} shifts"], ratios),
        beaten=beaten(names, errors, "ours", False),
        beaten_shifted=beaten(names, errors, OURS_SHIFTED, True),
        shallow=np.mean([error_of("Blocks", sizes[0], seed, shallow) for seed in range(draws)]),
        deep=errors[0][0].mean(),
    )


TEXT = """
## Denoising

MSE / σ² at SNR 7, mean ± standard error over {draws} draws, the best in bold. *Ours* is `fit_map(None, t,
Wavelet("sym8"))`, BIC; *ours, {shifts} shifts* is `denoise(t, "sym8", shifts={shifts})`. *Universal* thresholds all
details of the same periodic transform at σ √(2 log N), with σ from the median of the finest details; scikit-image
{version} runs with `wavelet="sym8", mode="soft"` and its own estimate of σ.

{table}

Ratios of the means, with the standard error of the paired ratio:

{ratios}

Methods with one basis compared with each other: {beaten} Methods with {shifts} shifts: {beaten_shifted}

BayesShrink leaves the three coarsest levels of detail alone, which suits Blocks, whose steps fill the coarse levels;
ours asks every coefficient to pay. With a basis of depth 4, `Wavelet("sym8", level=4)`, the error of *ours* on Blocks,
N = {n}, falls from {deep:.3f} to {shallow:.3f}.
"""
