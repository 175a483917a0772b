"""How much the upper bound of a precision decides: the type-II MAP does not know it, the posterior does.

    python examples/bounds.py     # two minutes on two cores
    python examples/bounds.py                       # with NUTS, ten minutes, and the chains mix less
    python examples/bounds.py --quick               # small data, one bound

First one coefficient of an orthonormal basis, by exact quadrature: how large must it be, in noise standard deviations,
until the posterior counts it in, under a flat and a smoothness prior whose density is taken per d alpha or per
d log(alpha)? Then BlocksSinc over Haar wavelets and splines, sampled by chains that start at the MAP.
"""

import argparse
import time
import warnings

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
import numpy as np

import sbl_ppl as sbl

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--output", default="bounds.png", help="where to save the picture")
parser.add_argument("--quick", action="store_true", help="small data and one bound, to see that everything runs")
parser.add_argument("--kernel", default="exchange", help="of sbl.sample: nuts or exchange")
options = parser.parse_args()

n, bounds = (32, (1e6,)) if options.quick else (128, (1e2, 1e4, 1e6, 1e10))
draws = 100 if options.quick else 200 if options.kernel == "nuts" else 500
COLOURS = {"alpha": "#D55E00", "log": "#0072B2"}
MEASURES = {"alpha": "per dα (SE07 eq. 16)", "log": "per d log α"}


def expected_gamma(z, high, c, measure, low=1e-10):
    """E[gamma] of one coefficient z of an orthonormal basis with noise variance 1, by the rectangle rule in log(alpha).

    The integrand is smooth on the scale of one nat. There are 500 nodes to the decade, and axes (z, node).
    """
    v = np.linspace(np.log(low), np.log(high), int(500 * np.log10(high / low)))
    kappa = 1 / (1 + np.exp(v))  # also gamma = 1 - alpha Sigma, as s = 1
    log_density = 0.5 * (np.log1p(-kappa) + np.asarray(z)[:, None] ** 2 * kappa) - c * kappa + (measure == "alpha") * v
    weight = np.exp(log_density - log_density.max(1, keepdims=True))
    return weight @ kappa / weight.sum(1)


def counted_in(high, c, measure):
    """The size of a coefficient, in noise sds, from which on E[gamma] exceeds one half."""
    z = np.linspace(0.0, 10.0, 1001)
    return z[np.argmax(expected_gamma(z, high, c, measure) > 0.5)]


severities = {"flat": 0.0, "BIC, N = 128": np.log(128) / 2}
print("One orthonormal coefficient z, noise sd 1. Smallest |z| of which the posterior keeps more than half,")
print("and in brackets what is left, E[gamma], of a coefficient of 3:")
highs = (1e2, 1e4, 1e6, 1e10)
print(f"{'prior':<14}{'MAP keeps':>11}  {'measure':<8}" + "".join(f"       high {high:.0e}" for high in highs))
for name, c in severities.items():
    for measure in MEASURES:
        cells = [
            f"{counted_in(high, c, measure):.2f} ({expected_gamma([3.0], high, c, measure)[0]:.2g})" for high in highs
        ]
        above = f"|z| > {np.sqrt(1 + 2 * c):.2f}"
        print(f"{name:<14}{above:>11}  {measure:<8}" + "".join(f"{cell:>17}" for cell in cells))

data = sbl.datasets.blocks_sinc(n, snr=7.0)
design = sbl.fit_map(data.x, data.t, sbl.Wavelet("haar") + sbl.ThinPlateSpline(width=3.0)).design
# `high` is in units of the columns. Splines have norms of some hundred: what prunes a wavelet would not prune a spline.
norms = np.where(design.norms() > 0, design.norms(), 1.0)  # the intercept leaves nothing of a constant
columns = sbl.Columns(design.matrix() / norms, design.labels)


def sample(measure, high):
    """Fit, sample from the fit on, and return both with what the sampler complained about."""
    prior = sbl.Smoothness("BIC", measure=measure, high=high)
    fit = sbl.fit_map(None, data.t, columns, prior=prior)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", sbl.SamplingWarning)
        post = sbl.sample(fit, options.kernel, num_warmup=150, num_samples=draws, num_chains=2, progress=False)
    return fit, post["posterior"], [str(warning.message) for warning in caught]


print(f"\nBlocksSinc, N = {n}, {2 * n} columns of norm 1, BIC, noise sd {data.noise_sd:.3f}; kernel {options.kernel}")
print(
    "measure     high   MAP keeps   degrees of freedom: MAP   posterior (90 %)         gamma > 1/2   noise sd  seconds"
)
found = {measure: [] for measure in MEASURES}
said = {}
for high in bounds:
    for measure in MEASURES:
        start = time.perf_counter()
        fit, posterior, messages = sample(measure, high)
        dof = posterior["degrees_of_freedom"].values
        low, mean, top = np.quantile(dof, 0.05), dof.mean(), np.quantile(dof, 0.95)
        found[measure].append((mean, low, top))
        said |= {(measure, high, i): message for i, message in enumerate(messages)}
        kept = int((posterior["gamma"].mean(("chain", "draw")) > 0.5).sum())
        sd = np.sqrt(posterior["noise_variance"].values.mean())
        interval = f"{mean:.1f} ({low:.1f} .. {top:.1f})"
        print(
            f"{measure:<8}{high:>8.0e}{len(fit.active):>12}{fit.degrees_of_freedom:>26.1f}{interval:>25}"
            f"{kept:>14}{sd:>13.3f}{time.perf_counter() - start:>9.0f}",
            flush=True,
        )
print("\nWhat sample said:")
for (measure, high, _), message in said.items():
    print(f"- {measure}, high = {high:.0e}: {message}")

figure, axes = plt.subplots(1, 3, figsize=(12, 4.2), layout="constrained")
grid, sizes = np.logspace(0, 12, 97), [1.0, 3.0, 6.0]
for ax, (name, c) in zip(axes, severities.items(), strict=False):
    for measure, colour in COLOURS.items():
        gamma = np.array([expected_gamma(sizes, high, c, measure) for high in grid])
        for k, size in enumerate(sizes):
            ax.plot(grid, gamma[:, k], color=colour, lw=1.0 + 0.6 * k)
            # Labels stand at the end of a curve that lasts, and half-way down one that falls
            at = -1 if measure == "log" else np.argmax(gamma[:, k] < (0.55 if k == 2 else 0.4))
            side = "left" if measure == "alpha" and k == 0 else "right"
            place = {"xytext": (-3 if side == "left" else 4, 0), "ha": "right" if side == "left" else "left"}
            text = f"|z| = {size:.0f}" if measure == "log" or k == 2 else f"{size:.0f}"
            ax.annotate(text, (grid[at], gamma[at, k]), textcoords="offset points", va="center", color=colour, **place)
    ax.set(xscale="log", xlim=(0.2, 1e12), ylim=(-0.03, 1.03), xlabel="high, in units of 1/σ²")
    ax.set_title(f"one coefficient z, {name}", loc="left", fontsize=11)
axes[0].set_ylabel("E[γ], the share of z that is kept")
for measure, rows in found.items():
    mean, low, top = np.array(rows).T
    axes[2].plot(bounds, mean, "o-", color=COLOURS[measure], label=MEASURES[measure])
    axes[2].vlines(bounds, low, top, color=COLOURS[measure], lw=4, alpha=0.4)
axes[2].axhline(fit.degrees_of_freedom, color="black", ls="--", lw=1, label="type-II MAP")
axes[2].set(xscale="log", xlabel="high, in units of 1/t²", ylabel="degrees of freedom")
axes[2].set_title(f"BlocksSinc, N = {n}, BIC", loc="left", fontsize=11)
figure.legend(*axes[2].get_legend_handles_labels(), loc="outside lower center", ncols=3, frameon=False)
figure.savefig(options.output, dpi=100)
print(f"\nThe share that is kept and the degrees of freedom are drawn in {options.output}")
