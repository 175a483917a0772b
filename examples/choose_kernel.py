"""Which kernel, and how wide? The evidence tells, without a validation set.

    python examples/choose_kernel.py                # a few minutes on two cores
    python examples/choose_kernel.py --quick        # few widths and short runs

Noisy sinc over twenty centres, with Gaussian kernels and thin-plate splines of several widths, and linear splines,
which have none. For each dictionary all precisions and the noise variance are integrated out by tempered sampling,
which gives log p(t | dictionary) with a standard error. Beside it stands what a user cannot know: the error against the
true curve.
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
parser.add_argument("--output", default="choose_kernel.png", help="where to save the picture")
parser.add_argument("--quick", action="store_true", help="few widths and short runs, to see that everything runs")
options = parser.parse_args()

widths = (1.0, 3.0) if options.quick else (1.0, 2.0, 3.0, 4.0, 6.0)
warmup, samples, rungs = (50, 40, 8) if options.quick else (200, 500, 12)
run = {"num_warmup": warmup, "num_samples": samples, "num_rungs": rungs, "num_chains": 2}
COLOURS = {"Gaussian": "#0072B2", "thin-plate spline": "#D55E00", "linear spline": "#009E73"}

x = np.linspace(-10.0, 10.0, 60)
truth = np.sinc(x / np.pi)
t = truth + 0.1 * np.random.default_rng(0).standard_normal(len(x))
centers = np.linspace(-10.0, 10.0, 20)
# One prior for all, in units of unit-norm columns: a precision between that of a weight a thousand times as large as
# all of t, since splines cancel each other, and that of one far below the noise
low, high = 1e-6 / (t @ t), 1e4 / (t @ t)


def measure(dictionary):
    """Evidence, root mean square error of the fit against the truth, and how many columns it keeps."""
    design = sbl.fit_map(x, t, dictionary, progress=False).design
    columns = sbl.Columns(design.matrix() / design.norms(), design.labels)
    prior = sbl.Smoothness("BIC", low=low, high=high)
    # The noise variance is thought to be near 0.02, give or take a factor of three
    fit = sbl.fit_map(None, t, columns, prior=prior, noise_prior=(2.0, 0.03), progress=False)
    with warnings.catch_warnings():
        if options.quick:  # too short for its own diagnostics
            warnings.simplefilter("ignore", sbl.SamplingWarning)
        evidence = sbl.log_evidence(fit, **run)
    return evidence, np.sqrt(np.mean((fit.curve() - truth) ** 2)), len(fit.active)


begin = time.perf_counter()
print(f"{'kernel':<20}{'width':>6}{'log evidence':>20}{'error':>9}{'kept':>6}")
results = {}
for name, kernel in {"Gaussian": sbl.Gaussian, "thin-plate spline": sbl.ThinPlateSpline, "linear spline": None}.items():
    results[name] = []
    for width in widths if kernel else (None,):
        dictionary = kernel(width, centers=centers) if kernel else sbl.LinearSpline(centers=centers)
        evidence, error, kept = measure(dictionary)
        results[name].append((width, evidence, error, kept))
        said = f"{evidence.value:.2f} ± {evidence.standard_error:.2f}"
        print(f"{name:<20}{'' if width is None else width:>6}{said:>20}{error:>9.4f}{kept:>6}", flush=True)
best, row = max(((name, row) for name, rows in results.items() for row in rows), key=lambda pair: pair[1][1].value)
print(f"Most evidence: {best}" + ("" if row[0] is None else f" of width {row[0]}") + f", error {row[2]:.4f}")
print(f"{time.perf_counter() - begin:.0f} s")

figure, (left, right) = plt.subplots(1, 2, figsize=(10, 4), layout="constrained")
for name, rows in results.items():
    values = np.array([evidence.value for _, evidence, _, _ in rows])
    errors = np.array([evidence.standard_error for _, evidence, _, _ in rows])
    misfits = np.array([misfit for _, _, misfit, _ in rows])
    if rows[0][0] is None:
        left.axhline(values[0], color=COLOURS[name], label=name)
        left.axhspan(values[0] - 2 * errors[0], values[0] + 2 * errors[0], color=COLOURS[name], alpha=0.2, lw=0)
        right.axhline(misfits[0], color=COLOURS[name])
        continue
    left.errorbar(widths, values, 2 * errors, color=COLOURS[name], marker="o", capsize=3, label=name)
    right.plot(widths, misfits, color=COLOURS[name], marker="o")
for axes, label in (
    (left, "log p(t | dictionary), ± 2 standard errors"),
    (right, "error of the MAP against the truth"),
):
    axes.set(xscale="log", xlabel="width", ylabel=label)
    axes.set_xticks(widths, [f"{width:g}" for width in widths])
    axes.minorticks_off()
    axes.spines[["top", "right"]].set_visible(False)
left.legend(frameon=False)
figure.savefig(options.output, dpi=110)
print(f"Saved {options.output}")
