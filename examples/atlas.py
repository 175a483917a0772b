"""The local maxima that one fit does not show, and where a sampler spends its time among them.

    python examples/atlas.py                        # pictures into docs/figures, tables on the screen
    python examples/atlas.py --output some/folder
    python examples/atlas.py --quick                # small data, to see that everything runs

1. BlocksSinc over Haar wavelets and thin-plate splines: 100 searches, on two processes.
2. How much the end depends on the order in which columns join, for several dictionaries (SE07 section 4.3).
3. Whether the posterior of BlocksSinc supports the clean separation of SE07 figure 8: steps left, splines right.
4. Two columns that are nearly the same: chains of NUTS stay with one, the exchange kernel visits both.
"""

import argparse
import time
import warnings
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from multiprocessing import get_context
from pathlib import Path

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
import numpy as np

import sbl_ppl as sbl

UNION = sbl.Wavelet("haar") + sbl.ThinPlateSpline(3.0)


def save(ax, folder, name):
    path = folder / f"atlas_{name}.png"
    ax.figure.savefig(path, dpi=110)
    plt.close(ax.figure)
    print(f"wrote {path}")


def blocks_sinc(pool, folder, n, restarts):
    data = sbl.datasets.blocks_sinc(n, snr=7.0)
    for c in ("RIC", "BIC"):
        begin = time.perf_counter()
        atlas = sbl.explore_maxima(data.x, data.t, UNION, sbl.Smoothness(c), restarts=restarts, executor=pool)
        print(f"\nBlocksSinc, N = {n}: {restarts} searches in {time.perf_counter() - begin:.1f} s\n{atlas}")
        for exchange in (True, False):
            heights = atlas.restarts["objective"][1:][atlas.restarts["exchange"][1:] == exchange]
            word = "with" if exchange else "without"
            print(f"  {word} exchange moves: best {heights.max():.2f}, median {np.median(heights):.2f}")
    save(atlas.plot_heights(), folder, "heights")
    save(atlas.plot_supports(), folder, "supports")
    save(atlas.plot_map(), folder, "map")
    save(atlas.plot_curves(3), folder, "curves")


def order_of_inclusion(pool, n, restarts):
    """Searches from the empty model in random order, without exchange moves: only the order differs."""
    sinc, blocks = sbl.datasets.sinc(n, noise_sd=0.1, seed=1), sbl.datasets.blocks_sinc(n, snr=7.0)
    cases = (
        ("BlocksSinc, sym8", blocks, sbl.Wavelet("sym8")),
        ("sinc, Gaussian(3)", sinc, sbl.Gaussian(3.0)),
        ("sinc, ThinPlateSpline(3)", sinc, sbl.ThinPlateSpline(3.0)),
        ("sinc, haar + ThinPlateSpline(3)", sinc, UNION),
        ("BlocksSinc, haar + ThinPlateSpline(3)", blocks, UNION),
    )
    print(f"\nOrder of inclusion, N = {n}, {restarts} searches: ends, and how far they lie below the best of them")
    print(f"{'':<40}{'prior':<7}{'maxima':>7}{'overfits':>9}{'sd':>7}{'median':>8}{'worst':>8}{'columns':>10}")
    options = {"exchange": False, "starts": ["empty"], "restarts": restarts + 1, "executor": pool}
    for name, data, dictionary in cases:
        for c in ("None", "BIC", "RIC"):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", sbl.ConvergenceWarning)  # overfits are counted
                atlas = sbl.explore_maxima(data.x, data.t, dictionary, sbl.Smoothness(c), **options)
            ends = {key: values[1:] for key, values in atlas.restarts.items()}  # without the greedy search
            below = ends["objective"].max() - ends["objective"]
            places, sizes = ends["maximum"][ends["maximum"] >= 0], ends["size"]
            print(
                f"{name:<40}{c:<7}{len(np.unique(places)):>7}{(~ends['converged']).sum():>9}{below.std():>7.2f}"
                f"{np.median(below):>8.2f}{below.max():>8.2f}{f'{sizes.min()}-{sizes.max()}':>10}"
            )


def separated(data, prior, like):
    """A start in which each half of the signal has its own part of the dictionary, found by fitting it alone."""
    right, options = data.x > 0, {"prior": prior, "center": False}
    steps = sbl.fit_map(data.x, np.where(right, 0.0, data.t), sbl.Wavelet("haar"), **options)
    wave = sbl.fit_map(data.x, np.where(right, data.t, 0.0), sbl.ThinPlateSpline(3.0), **options)
    active = np.concatenate([steps.active, len(data.t) + wave.active])
    alpha, mean = np.concatenate([steps.alpha, wave.alpha]), np.concatenate([steps.mean, wave.mean])
    return replace(like, active=active, alpha=alpha, mean=mean)


def separation(pool, n, sweeps):
    """How much of each half the splines explain: at the maxima, and in the posterior."""
    data, prior = sbl.datasets.blocks_sinc(n, snr=7.0), sbl.Smoothness("BIC")
    right = data.x > 0
    greedy = sbl.fit_map(data.x, data.t, UNION, prior=prior)
    start = separated(data, prior, greedy)
    given = sbl.fit_map(data.x, data.t, UNION, prior=prior, start=start)
    atlas = sbl.explore_maxima(data.x, data.t, UNION, prior, exchange=True, given=[given], executor=pool)
    print(f"\nBlocksSinc, N = {n}, BIC: share of each half's variance that splines explain, and mean squared error")

    def row(name, spline, total):
        halves = [np.median(spline[..., half].var(-1) / total[..., half].var(-1)) for half in (~right, right)]
        error = np.mean((total.reshape(-1, n).mean(0) - data.signal) ** 2)
        print(f"  {name:<52} left {halves[0]:>4.0%}   right {halves[1]:>4.0%}   error {error:.4f}")

    for name, fit in (("greedy", greedy), ("best of the restarts", atlas.best.fit), ("separated by hand", given)):
        spline = fit.contributions()["ThinPlateSpline(3.0)"]
        row(f"{name}: log posterior {fit.log_posterior:.1f}", spline, fit.curve())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", sbl.SamplingWarning)  # single precisions of splines mix slowly
        post = sbl.sample(greedy, num_warmup=sweeps // 5, num_samples=sweeps // 5, thin=4)
    weights = post["posterior"]["weights"].values
    spline = weights[..., n:] @ greedy.design.columns(np.arange(n, 2 * n)).T
    row("posterior, chains from the greedy fit", spline, weights @ greedy.design.matrix().T + greedy.offset)
    for method in ("ascend", "nearest"):
        print(atlas.mass(post, method, executor=pool))


def twins(draws):
    """Two columns of correlation 0.97, of which one is enough."""
    rng = np.random.default_rng(0)
    q = np.linalg.qr(rng.standard_normal((20, 2)))[0] * np.sqrt(20)
    half = np.arccos(0.97) / 2
    Phi = np.column_stack([np.cos(half) * q[:, 0] + sign * np.sin(half) * q[:, 1] for sign in (1, -1)])
    t = 2.0 * q[:, 0] + 0.1 * rng.standard_normal(20)
    prior = sbl.Smoothness(8.0, high=1e6)
    atlas = sbl.explore_maxima(None, t, sbl.Columns(Phi), prior, noise_variance=0.09, center=False)
    print(f"\nTwo columns, nearly the same\n{atlas}")
    print(f"  the straight line between the two dips by {atlas.line(0, 1, absent=0.01).barrier:.1f} nats")
    for kernel in ("nuts", "exchange"):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", sbl.SamplingWarning)  # that NUTS sticks is the point
            post = sbl.sample(atlas.best.fit, kernel, num_warmup=300, num_samples=draws, num_chains=4)
        print(f"{kernel}: {atlas.mass(post)}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, default=Path(__file__).resolve().parents[1] / "docs" / "figures")
    parser.add_argument("--quick", action="store_true")
    chosen = parser.parse_args()
    chosen.output.mkdir(parents=True, exist_ok=True)
    with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as pool:
        blocks_sinc(pool, chosen.output, *((64, 20) if chosen.quick else (256, 100)))
        order_of_inclusion(pool, *((32, 6) if chosen.quick else (128, 60)))
        separation(pool, *((32, 250) if chosen.quick else (128, 10_000)))
    twins(20 if chosen.quick else 500)


if __name__ == "__main__":
    main()
