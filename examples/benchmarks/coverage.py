"""Bands where there are no data: coverage of held-out observations in a gap and beyond the ends, six series.

Every series is standardised to inputs in [0, 1]. Training data are the inputs between 0.15 and 0.85 without a gap of
0.12 at a random place; what is predicted are the observations in the gap, and those beyond the ends. The width of the
Gaussian kernels, one a training input, is the one of five with the highest log posterior; scikit-learn's Gaussian
process has the same kernel and noise with all three parameters optimised.
"""

import time
import warnings

import numpy as np
import pywt
from tables import markdown

import sbl_ppl as sbl

WIDTHS = (0.03, 0.06, 0.12, 0.24, 0.48)
WAYS = ("MAP", "MAP, augmented", "posterior", "posterior, augmented", "Gaussian process")
PLACES = ("gap", "beyond the ends")


def noisy(signal, snr, rng):
    return signal + np.std(signal) / snr * rng.standard_normal(len(signal))


def series(name, draw):
    """Inputs in [0, 1] and targets; draws of real series are other windows of them."""
    rng, x = np.random.default_rng(draw), np.linspace(0.0, 1.0, 140)
    if name == "Sinc":
        return x, noisy(np.sinc(20 * (x - 0.5) / np.pi), 5.0, rng)
    if name == "two sines":
        return x, noisy(np.sin(12 * x) + 0.5 * np.sin(31 * x), 5.0, rng)
    if name == "years: line and cycle":
        return x, noisy(1.5 * x + 0.2 * np.sin(40 * x), 5.0, rng)
    if name == "HeaviSine":
        return x, noisy(sbl.datasets.heavisine(140).signal, 5.0, rng)
    values = pywt.data.nino()[1] if name == "El Niño" else pywt.data.ecg().astype(float)
    start = int(rng.integers(len(values) - 140))
    return x, np.asarray(values[start : start + 140], dtype=float)


SERIES = ("Sinc", "two sines", "years: line and cycle", "HeaviSine", "El Niño", "ECG")


def split(x, draw):
    """Which inputs are seen, which are in the gap, and which are beyond the ends."""
    left = np.random.default_rng([draw, 1]).uniform(0.2, 0.68)
    gap, ends = (x > left) & (x < left + 0.12), (x < 0.15) | (x > 0.85)
    return ~gap & ~ends, gap, ends


def process(x, t):
    """A Gaussian process with the same kernel."""
    from sklearn.gaussian_process import GaussianProcessRegressor
    from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel

    kernel = ConstantKernel(1.0, (1e-3, 1e3)) * RBF(0.1, (1e-3, 10.0)) + WhiteKernel(0.1, (1e-6, 10.0))
    model = GaussianProcessRegressor(kernel, normalize_y=True, n_restarts_optimizer=3, random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a length at its bound
        return model.fit(x[:, None], t)


def bands(x, t, new, draws):
    """95 % intervals of new observations by each way, and the seconds that each took."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # short chains
        fits = [sbl.fit_map(x, t, sbl.Gaussian(width)) for width in WIDTHS]
        fit = max(fits, key=lambda fit: fit.log_posterior)
        post = sbl.sample(fit, num_warmup=draws, num_samples=draws, num_chains=2, progress=False)
    levels = (0.025, 0.975)
    mean, sd = process(x, t).predict(new[:, None], return_std=True)
    return {
        "MAP": fit.predict(new, augment=False, quantiles=levels),
        "MAP, augmented": fit.predict(new, quantiles=levels),
        "posterior": sbl.predict_posterior(fit, post, new, augment=False, quantiles=levels),
        "posterior, augmented": sbl.predict_posterior(fit, post, new, quantiles=levels),
        "Gaussian process": np.stack([mean - 1.96 * sd, mean + 1.96 * sd]),
    }


def score(band, t):
    """Coverage, and the interval score (Gneiting & Raftery 2007): width, and 40 times what it misses by."""
    low, high = band
    missed = np.maximum(low - t, 0.0) + np.maximum(t - high, 0.0)
    return np.mean(missed == 0), np.mean(high - low + 40.0 * missed)


def run(quick: bool) -> str:
    names, repeats, draws = (SERIES[:1], 1, 30) if quick else (SERIES, 5, 300)
    found = {(place, name, way): [] for place in PLACES for name in names for way in WAYS}
    begin = time.perf_counter()
    for name in names:
        for draw in range(repeats):
            x, t = series(name, draw)
            seen, gap, ends = split(x, draw)
            unit = np.std(t[seen])
            known = bands(x[seen], t[seen], x[~seen], draws)
            for place, here in zip(PLACES, (gap, ends), strict=True):
                inside = here[~seen]
                for way, band in known.items():
                    coverage, width = score(band[:, inside], t[here])
                    found[place, name, way].append((coverage, width / unit))
    sections = []
    for place in PLACES:
        rows = [[name, *(cell(found[place, name, way]) for way in WAYS)] for name in names]
        everything = [[pair for name in names for pair in found[place, name, way]] for way in WAYS]
        rows.append(["all", *map(cell, everything)])
        sections.append(f"**{place[0].upper()}{place[1:]}**\n\n" + markdown(["", *WAYS], rows))
    minutes = (time.perf_counter() - begin) / 60
    return TEXT.format(repeats=repeats, tables="\n\n".join(sections), minutes=minutes)


def cell(pairs):
    coverage, width = np.mean(pairs, axis=0)
    return f"{coverage:.2f}, {width:.1f}"


TEXT = """## Bands where there are no data

Observations in a gap of 12 % of the range, and up to 15 % of the range (21 % of the training range) beyond the ends:
how many lie in the 95 % interval, and the mean interval score in units of the training data's sd (width plus 40 times
what is missed; small is good). Means over {repeats} draws of the noise and of the gap's place, or windows of a real
series. Gaussian kernels at the training inputs, width chosen by the log posterior, `Smoothness("BIC")`; 2 chains of 300
sweeps.

{tables}

*Augmented* is the default of `predict` with Gaussian kernels, the other is `augment=False`. {minutes:.0f} minutes
on one core.
"""
