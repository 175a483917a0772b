"""Draw Figures 1, 3, 5, 6, 7 and 8 of Schmolck & Everson (2007), "Smooth relevance vector machine", with sbl_ppl.

    python examples/figures.py                      # all of them, into docs/figures
    python examples/figures.py --only 7 8 --output some/folder
    python examples/figures.py --quick              # small data, to see that everything runs

Every panel states the mean squared error against the noise-free signal (MSE) and the number of columns kept (S), as the
captions of the paper do. The noise is drawn anew, so the numbers are ours and not the paper's; BlocksSinc has N = 1024,
which the paper does not print. x runs over [-10, 10], the scale of the quoted kernel widths; the symmlet goes down to a
single scaling coefficient. "RVM" is the flat prior.
"""

import argparse
import time
import warnings
from dataclasses import replace
from functools import cache
from pathlib import Path

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
import numpy as np

import sbl_ppl as sbl
from sbl_ppl.dictionary import parts_of
from sbl_ppl.plots import plot_contributions, plot_shrinkage

DATA, TRUTH, FIT = "0.7", "black", "#0072B2"
STYLE = {
    "font.size": 10,
    "axes.titlesize": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "figure.constrained_layout.use": True,
}


def symmlet(data):
    return sbl.Wavelet("sym8", level=len(data.t).bit_length() - 1)


def fit_quietly(data, dictionary, prior, **options):
    """Fit, and expect to overfit: a flat prior over wavelets does, which is what these figures show."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", sbl.ConvergenceWarning)
        return sbl.fit_map(data.x, data.t, dictionary, prior=prior, **options)


def score(fit, data):
    error = np.mean((fit.predict()[0] - data.signal) ** 2)
    return f"MSE {error:.2g}, S {len(fit.active)}"


def draw(ax, data, fit, title=None):
    """Data, truth and posterior mean in one panel."""
    ax.plot(data.x, data.t, ".", color=DATA, markersize=3, label="data")
    ax.plot(data.x, fit.predict()[0], color=FIT, lw=1.4, label="fit")
    ax.plot(data.x, data.signal, "--", color=TRUTH, lw=0.8, label="truth")
    if title:
        ax.set_title(f"{title}: {score(fit, data)}", loc="left")


def add_legend(figure, ax):
    """One legend for all panels, below them."""
    figure.legend(*ax.get_legend_handles_labels(), loc="outside lower center", ncols=3, frameon=False)


def figure1(quick=False, prior=None, name="RVM"):
    """Without a prior on alpha the kernel alone decides how smooth the fit is: symmlets overfit, splines oversmooth."""
    n = 64 if quick else 128
    prior = sbl.Flat() if prior is None else prior
    figure, axes = plt.subplots(2, 2, figsize=(9, 5), sharex=True, sharey="col")
    for column, data in enumerate([sbl.datasets.sinc(n, snr=2.0), sbl.datasets.bumps(n, snr=7.0)]):
        for row, (kernel, basis) in enumerate([("symmlet", symmlet(data)), ("lspline", sbl.LinearSpline(width=3.0))]):
            fit = fit_quietly(data, basis, prior)
            draw(axes[row, column], data, fit, f"{name}, {kernel}")
        axes[1, column].set_xlabel(f"x ({data.name.capitalize()}, N = {n}, SNR = {[2, 7][column]})")
    add_legend(figure, axes[0, 0])
    return figure


def figure3(quick=False):
    """The same data with the smoothness prior: the symmlet no longer overfits, and the spline loses nothing."""
    return figure1(quick, sbl.Smoothness("BIC"), "sRVM")


@cache
def doppler_fits(quick):
    data = sbl.datasets.doppler(128 if quick else 1024, snr=7.0)
    return data, {
        "RVM, gauss 0.5": fit_quietly(data, sbl.Gaussian(width=0.5), sbl.Flat()),
        "RVM, gauss 0.05": fit_quietly(data, sbl.Gaussian(width=0.05), sbl.Flat()),
        "RVM, symmlet": fit_quietly(data, symmlet(data), sbl.Flat()),
        "sRVM, symmlet": sbl.fit_map(data.x, data.t, symmlet(data), prior=sbl.Smoothness("BIC")),
    }


def figure5(quick=False):
    """A signal of many scales: one kernel width is too wide on the left or too narrow on the right, the sRVM adapts."""
    data, fits = doppler_fits(quick)
    figure, axes = plt.subplot_mosaic(
        [["RVM, gauss 0.5"] * 2, ["RVM, gauss 0.05", "RVM, symmlet"], ["sRVM, symmlet"] * 2],
        figsize=(9, 6.6),
        sharex=True,
        sharey=True,
    )
    for name, fit in fits.items():
        draw(axes[name], data, fit, name)
        axes[name].tick_params(labelbottom=True)
    axes["sRVM, symmlet"].set_xlabel(f"x (Doppler, N = {len(data.t)}, SNR = 7)")
    add_legend(figure, axes["sRVM, symmlet"])
    return figure


def figure6(quick=False):
    """How the weights of Figure 5 shrank: the flat prior leaves them as they are, the smoothness prior prunes."""
    data, fits = doppler_fits(quick)
    figure, axes = plt.subplots(1, 2, figsize=(9, 4.4), sharey=True)
    for ax, name, prior in zip(axes, ["RVM, symmlet", "sRVM, symmlet"], ["no prior", "BIC"], strict=True):
        plot_shrinkage(fits[name], ax=ax, limit=0.5)
        ax.set_title(f"{name}, {prior}: {score(fits[name], data)}")
        ax.set_aspect("equal")
    axes[1].set_ylabel("")
    return figure


def offer_parts(fit, data):
    """The best of a fit and those that are found when each part of its dictionary is offered each half of the data.

    Greedy search adds one column at a time. Five splines together beat a staircase of Haar functions, but no single one
    does. So let one part alone explain one half, add the columns that it takes to those of the fit, and search on.
    """
    best = fit
    for part, span in zip(fit.dictionary.parts, parts_of(fit.dictionary, fit.design), strict=True):
        for half in (data.x <= 0, data.x > 0):
            target = replace(data, t=np.where(half, data.t - fit.offset, 0.0))
            alone = fit_quietly(target, part, sbl.Flat(), noise_variance=fit.noise_variance, center=False)
            new = ~np.isin(span.start + alone.active, fit.active)
            active = np.concatenate([fit.active, span.start + alone.active[new]])
            order = np.argsort(active)
            start = replace(fit, active=active[order], alpha=np.concatenate([fit.alpha, alone.alpha[new]])[order])
            found = sbl.fit_map(data.x, data.t, fit.dictionary, prior=fit.prior, start=start)
            best = max(best, found, key=lambda fit: fit.log_posterior)
    return best


@cache
def union_fits(quick):
    """BlocksSinc over both kinds of functions: the greedy fit, and the better one that it misses."""
    data = sbl.datasets.blocks_sinc(128 if quick else 1024, snr=7.0)
    dictionary = sbl.Wavelet("haar") + sbl.ThinPlateSpline(width=3.0)
    greedy = sbl.fit_map(data.x, data.t, dictionary, prior=sbl.Smoothness("RIC"))
    return data, greedy, offer_parts(greedy, data)


def figure7(quick=False):
    """A signal of two kinds: splines round its steps, Haar functions turn its waves into stairs, both do both."""
    data, _, both = union_fits(quick)
    haar, spline = both.dictionary.parts
    fits = {
        "thin-plate splines only": sbl.fit_map(data.x, data.t, spline, prior=both.prior),
        "Haar wavelets only": sbl.fit_map(data.x, data.t, haar, prior=both.prior),
        "Haar wavelets and thin-plate splines": both,
    }
    figure, axes = plt.subplots(3, 2, figsize=(10, 6.6), sharex="col", sharey="col", width_ratios=[5, 3])
    for row, (name, fit) in zip(axes, fits.items(), strict=True):
        draw(row[0], data, fit, name)
        draw(row[1], data, fit)
    axes[0, 1].set_title("the right half, enlarged", loc="left")
    axes[0, 1].set(xlim=(0, 10), ylim=(-0.9, 1.7))
    axes[2, 0].set_xlabel(f"x (BlocksSinc, N = {len(data.t)}, SNR = 7; sRVM with RIC)")
    axes[2, 1].set_xlabel("x")
    add_legend(figure, axes[0, 0])
    return figure


def figure8(quick=False):
    """What each part contributes: of the maxima found, only the highest separates Blocks from Sinc."""
    data, greedy, best = union_fits(quick)
    order = [
        sbl.fit_map(data.x, data.t, greedy.dictionary, prior=greedy.prior, selection="random", seed=seed)
        for seed in range(10)
    ]
    fits = {
        "RVM": fit_quietly(data, greedy.dictionary, sbl.Flat()),
        "sRVM, best of 10 random orders": max(order, key=lambda fit: fit.log_posterior),
        "sRVM, greedy": greedy,
        "sRVM, best maximum found": best,
    }
    figure, axes = plt.subplots(2, 4, figsize=(12, 5.4), sharex=True, sharey="row")
    blocks = np.where(data.x <= 0, data.signal, 0.0) - greedy.offset
    sinc = np.where(data.x > 0, data.signal, 0.0)
    for column, (name, fit) in zip(axes.T, fits.items(), strict=True):
        plot_contributions(fit, truth=[blocks, sinc], axes=column)
        counts = np.bincount(fit.active >= len(data.t), minlength=2)
        # Log posteriors under different priors do not compare.
        height = f"log posterior {fit.log_posterior:.1f}" if fit.prior == best.prior else ""
        column[0].set_title(f"{name}\n{score(fit, data)}\n{height}\n\n{counts[0]} Haar wavelets")
        column[1].set_title(f"{counts[1]} thin-plate splines")
        for ax in column:
            ax.get_legend().remove()
            ax.set_ylabel("contribution" if ax in axes[:, 0] else "")
    lines = [axes[0, 0].lines[0], axes[1, 0].lines[0], axes[0, 0].lines[1]]
    names = ["contribution of Haar wavelets, ±2 sd", "contribution of thin-plate splines, ±2 sd", "truth"]
    figure.legend(lines, names, loc="outside lower center", ncols=3, frameon=False)
    return figure


FIGURES = {1: figure1, 3: figure3, 5: figure5, 6: figure6, 7: figure7, 8: figure8}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--only", type=int, nargs="+", choices=FIGURES, default=list(FIGURES), help="numbers of figures"
    )
    parser.add_argument("--output", type=Path, default=Path(__file__).parents[1] / "docs" / "figures", help="folder")
    parser.add_argument("--quick", action="store_true", help="small data")
    options = parser.parse_args()
    options.output.mkdir(parents=True, exist_ok=True)
    for number in options.only:
        begin = time.perf_counter()
        with plt.rc_context(STYLE):
            figure = FIGURES[number](options.quick)
            path = options.output / f"fig{number}.png"
            figure.savefig(path, dpi=100, metadata={"Software": None})
            plt.close(figure)
        print(f"{path}  ({time.perf_counter() - begin:.1f} s)")


if __name__ == "__main__":
    main()
