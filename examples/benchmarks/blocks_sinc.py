"""SE07 section 4.3, Figs. 7 and 8: Haar wavelets and thin-plate splines together on Blocks followed by Sinc.

The dictionary is overcomplete, so the posterior has many maxima, and the paper's clean separation of the two signals is
one of them. Is it a high or a low one? A separated start answers: thin out the splines and the Haar columns of the left
half alone, then free all columns and search on. Its end is compared with those of the three orders of selection.
"""

import warnings
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from tables import markdown, spread

import sbl_ppl as sbl

ORDERS = ("greedy", "cyclic", "random")
SPLINE = sbl.ThinPlateSpline(width=3.0)
PAPER_S = 419  # columns that the plain RVM keeps in Fig. 8


@dataclass(frozen=True)
class Series:
    """A noisy series of two halves, the second one Sinc times `scale`."""

    x: np.ndarray
    t: np.ndarray
    signal: np.ndarray
    noise_sd: float

    @property
    def haar(self) -> sbl.Wavelet:
        return sbl.Wavelet("haar", level=int(np.log2(len(self.t))))

    @property
    def union(self) -> sbl.Dictionary:
        return self.haar + SPLINE


def draw(n: int, scale: float = 1.0, seed: int = 0) -> Series:
    clean = sbl.datasets.blocks_sinc(n, snr=np.inf)
    signal = np.concatenate([clean.signal[: n // 2], scale * clean.signal[n // 2 :]])
    noise_sd = float(np.std(signal, ddof=1)) / 7.0
    return Series(clean.x, signal + noise_sd * np.random.default_rng(seed).standard_normal(n), signal, noise_sd)


def ric(normalize: bool = True) -> sbl.Smoothness:
    return sbl.Smoothness("RIC", measure="alpha", normalize=normalize)


def squared_error(fit: sbl.MapFit, series: Series) -> np.ndarray:
    return (fit.predict(noise=False)[0] - series.signal) ** 2


def of_columns(fit: sbl.MapFit, series: Series) -> str:
    """MSE and S, as the captions of the paper give them."""
    return f"{squared_error(fit, series).mean():.3f}, {len(fit.active)}"


def plain_haar(series: Series) -> tuple[float, float]:
    """Noise variance (relative to the truth) at which the plain RVM on Haar keeps 419 columns, and its MSE there."""
    z2 = series.haar.bind(series.x).project(series.t - series.t.mean()) ** 2
    variance = 0.999 * float(np.sort(z2)[-PAPER_S])  # Flat keeps what lies above it
    fit = sbl.fit_map(series.x, series.t, series.haar, sbl.Flat(), noise_variance=variance)
    return variance / series.noise_sd**2, float(squared_error(fit, series).mean())


def size_table(sizes: Iterable[int], seeds: range) -> str:
    """What Haar alone gives at every N: a closed form, so nothing here depends on a search."""
    rows = []
    for n in sizes:
        row: list[object] = [n]
        for scale in (1.0, 3.0):
            drawn = [draw(n, scale, seed) for seed in seeds]
            fits = [(series, sbl.fit_map(series.x, series.t, series.haar, ric())) for series in drawn]
            row.append(spread([len(fit.active) for _, fit in fits], 1))
            row.append(spread([squared_error(fit, series).mean() for series, fit in fits], 4))
            row.append("-" if n <= PAPER_S else spread([plain_haar(series)[1] for series in drawn], 4))
        rows.append(row)
    header = ["N", "S", "MSE", "MSE of Flat with S = 419"]
    rows.append(["paper", "75", "0.020", "0.024", "", "", ""])
    return markdown([*header, *[f"{name}, Sinc × 3" for name in header[1:]]], rows)


def raised(series: Series, dictionary: sbl.Dictionary) -> sbl.MapFit:
    """RIC reached by raising the severity: AIC, BIC, RIC, each fit the start of the next."""
    fit = None
    for c in ("AIC", "BIC", "RIC"):
        fit = sbl.fit_map(series.x, series.t, dictionary, sbl.Smoothness(c, measure="alpha"), start=fit)
    return fit


def separated(series: Series, normalize: bool) -> sbl.MapFit:
    """The best end of two searches from a start without a Haar column that reaches into the right half."""
    n = len(series.t)
    matrix = series.union.bind(series.x).matrix()
    matrix[:, np.flatnonzero(np.abs(matrix[n // 2 :, :n]).max(axis=0) > 0)] = 0.0
    ends = []
    for order in ("greedy", "cyclic"):
        start = sbl.fit_map(None, series.t, sbl.Columns(matrix), ric(normalize), selection=order)
        ends.append(sbl.fit_map(series.x, series.t, series.union, ric(normalize), start=start))
    return max(ends, key=lambda fit: fit.log_posterior)


def separation(fit: sbl.MapFit, series: Series) -> tuple[float, float]:
    """What Haar misses of the Blocks half and the splines of the Sinc half, as shares of its variance.

    Up to a constant: which part carries the level of a half says nothing about separation.
    """
    half = len(series.t) // 2
    shares = []
    for curve, part in zip(fit.contributions().values(), (slice(None, half), slice(half, None)), strict=True):
        shares.append(np.var(curve[part] - series.signal[part]) / np.var(series.signal[part]))
    return shares[0], shares[1]


def ends(series: Series, normalize: bool, seed: int) -> dict[str, sbl.MapFit]:
    """Where the three orders end, and the separated start."""
    prior = ric(normalize)
    fits = {order: sbl.fit_map(series.x, series.t, series.union, prior, selection=order, seed=seed) for order in ORDERS}
    return {**fits, "separated start": separated(series, normalize)}


def numbers(fit: sbl.MapFit, series: Series, best: float) -> np.ndarray:
    """Nats below the best, Haar and spline columns, MSE in all and in either half, and the two misses."""
    n, error = len(series.t), squared_error(fit, series)
    haar = int((fit.active < n).sum())
    errors = error.mean(), error[: n // 2].mean(), error[n // 2 :].mean()
    return np.array([best - fit.log_posterior, haar, len(fit.active) - haar, *errors, *separation(fit, series)])


def survey(n: int, scale: float, normalize: bool, seeds: range) -> dict[str, np.ndarray]:
    """The numbers of every order, shape (draws, 8)."""
    collected: dict[str, list[np.ndarray]] = {}
    for seed in seeds:
        series = draw(n, scale, seed)
        fits = ends(series, normalize, seed)
        best = max(fit.log_posterior for fit in fits.values())
        for order, fit in fits.items():
            collected.setdefault(order, []).append(numbers(fit, series, best))
    return {order: np.array(values) for order, values in collected.items()}


def maxima_table(surveys: dict[tuple[float, bool], dict[str, np.ndarray]]) -> str:
    rows = []
    for (scale, normalize), survey_ in surveys.items():
        for order, values in survey_.items():
            mean, highest = values.mean(axis=0), int((values[:, 0] == 0).sum())
            rows.append(
                [
                    f"Sinc × {scale:g}, {'normalised' if normalize else 'raw'} κ, {order}",
                    f"{mean[0]:.1f} ({values[:, 0].min():.0f} to {values[:, 0].max():.0f})",
                    f"{highest} of {len(values)}",
                    f"{mean[1]:.1f} + {mean[2]:.1f}",
                    *[f"{value:.4f}" for value in mean[3:6]],
                    *[f"{value:.3f}" for value in mean[6:]],
                ]
            )
    header = ["", "nats below the best", "highest", "S, Haar + spline", "MSE", "left half", "right half"]
    return markdown([*header, "Haar misses of Blocks", "splines miss of Sinc"], rows)


def verdict(surveys: dict[tuple[float, bool], dict[str, np.ndarray]]) -> dict[str, float]:
    """How high the fits lie that separate cleanly, and the others."""
    values = np.concatenate([each for survey_ in surveys.values() for each in survey_.values()])
    clean = values[:, 6:].max(axis=1) < 0.1
    best = values[:, 0] == 0
    return {
        "fits": len(values),
        "clean": int(clean.sum()),
        "clean_below": values[clean, 0].mean(),
        "other_below": values[~clean, 0].mean(),
        "clean_error": values[clean, 3].mean(),
        "other_error": values[~clean, 3].mean(),
        "series": int(best.sum()),
        "clean_best": int((best & clean).sum()),
    }


def caption_column(series: Series) -> list[str]:
    """MSE and S of the paper's four fits, in its order."""
    x, t = series.x, series.t
    flat = sbl.fit_map(x, t, series.union, sbl.Flat())
    held = sbl.fit_map(x, t, series.haar, sbl.Flat(), noise_variance=plain_haar(series)[0] * series.noise_sd**2)
    return [
        of_columns(sbl.fit_map(x, t, SPLINE, ric()), series),
        of_columns(raised(series, SPLINE), series),
        of_columns(sbl.fit_map(x, t, series.haar, ric()), series),
        of_columns(sbl.fit_map(x, t, series.union, ric()), series),
        of_columns(separated(series, True), series),
        of_columns(flat, series) + ("" if flat.converged else " (overfit)"),
        of_columns(held, series),
    ]


CAPTIONS = (
    ("spline alone, RIC", "0.379, 72"),
    ("spline alone, severity raised to RIC", ""),
    ("Haar alone, RIC", "0.020, 75"),
    ("Haar + spline, RIC, greedy", "0.009, 88"),
    ("Haar + spline, RIC, separated start", ""),
    ("Haar + spline, Flat, greedy", "0.024, 419"),
    ("Haar, Flat, σ² held so that S = 419", ""),
)


def run(quick: bool = False) -> str:
    n, sizes = (512, (256, 512)) if quick else (1024, (256, 512, 1024, 2048))
    draws = {True: range(2), False: range(0)} if quick else {True: range(5), False: range(3)}
    surveys, columns = {}, []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", sbl.ConvergenceWarning)  # Flat overfits, and the table says so
        by_size = size_table(sizes, draws[True])
        print("  sizes", flush=True)
        for scale in (1.0, 3.0):
            columns.append(caption_column(draw(n, scale)))
            for normalize, seeds in draws.items():
                surveys[scale, normalize] = survey(n, scale, normalize, seeds)
                print(f"  maxima, Sinc × {scale:g}, normalize={normalize}", flush=True)
    captions = [[*caption, *values] for caption, *values in zip(CAPTIONS, *columns, strict=True)]
    return TEXT.format(
        n=n,
        draws=len(draws[True]),
        raw_draws=len(draws[False]),
        sizes=by_size,
        captions=markdown(["MSE, S", "paper", "Sinc × 1", "Sinc × 3"], captions),
        maxima=maxima_table(surveys),
        **verdict(surveys),
    )


TEXT = """
## SE07 Figs. 7 and 8: BlocksSinc over Haar wavelets and thin-plate splines

SNR 7, RIC, thin-plate splines of width 3.0, `Wavelet("haar", level=log2 N)`.

**Which N?** The paper does not say. Haar alone has a closed form, so its row depends on no search; and the plain RVM on
Haar keeps 419 columns at one noise level, where its error tells N. Mean ± standard deviation over {draws} draws:

{sizes}

The plain RVM's 419 columns and 0.024 ask for N = 1024. Haar alone then keeps fewer columns than the paper's 75, with
half its error. No N gives both of the paper's numbers, so its series is not the plain concatenation that we draw.
With a Sinc half three times as high N = 1024 comes closer in all columns. We report both series.

**The paper's fits**, N = {n}, noise seed 0, MSE and S:

{captions}

*Separated start* is a fit of the splines and of those Haar columns that live in the left half, continued with all
columns free. Flat, with the noise estimated, overfits here; the paper's 419 columns belong to a noise level near the
true one, which its search kept and ours does not, because the evidence rises all the way to the collapse.

**The maxima**, N = {n}, means over {draws} draws with the normalised κ (ours) and {raw_draws} with the raw one (the
paper's), each with its own random order. *Nats below the best* is the distance of the log posterior from the best of
the four fits of that draw, with its range, and *highest* counts the draws on which it is zero. The last two columns
measure separation, as shares of the variance of a half: what the Haar part misses of Blocks, and the spline part of
Sinc.

{maxima}

**Is the clean separation a high maximum or a low one?** A high one. Call a fit clean if each part misses less than
0.1 of its half: {clean} of the {fits} fits are. They lie {clean_below:.0f} nats below the best of their draw on
average, the others {other_below:.0f}; their mean error is {clean_error:.4f}, that of the others {other_error:.4f}; and
on {clean_best} of {series} series the best fit is a clean one. But separation is not what most searches find: random
orders put splines into Blocks, and a search in order of the columns lets Haar explain Sinc as a staircase, which no
single move leaves. The clean fits keep fewer columns than the paper's 88.
"""
