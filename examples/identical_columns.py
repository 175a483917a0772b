"""Two identical columns: the posterior is a ridge that no point describes, and yet the point predicts as well.

T01 section 2.2 argues for the type-II MAP by a thought experiment. If two basis functions are the same, only
1/alpha_1 + 1/alpha_2 is determined. "No delta-function can be considered to reasonably approximate the probability mass
associated with this ridge, yet any point along it implies an identical predictive distribution." Here it is done.
"""

import argparse
import warnings

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
import numpy as np

import sbl_ppl as sbl

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--output", default="identical_columns.png", help="where to save the picture")
parser.add_argument("--quick", action="store_true", help="few draws, to see that everything runs")
options = parser.parse_args()

rng = np.random.default_rng(1)
x = np.linspace(-3, 3, 60)
bump = np.exp(-(x**2))
t = bump + 0.2 * rng.normal(size=len(x))
LOW, HIGH = 1e-2, 1e3

twins = sbl.Columns(np.column_stack([bump, bump]), labels=["bump", "its twin"])
fit = sbl.fit_map(None, t, twins, prior=sbl.Jeffreys(low=LOW, high=HIGH), center=False)
print(f"{fit}\n")
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always", sbl.SamplingWarning)
    warmup, draws = (300, 400) if options.quick else (1000, 4000)
    post = sbl.sample(fit, kernel="nuts", num_warmup=warmup, num_samples=draws, progress=False)
for warning in caught:
    print(f"Warning: {warning.message}\n")

alpha = post["posterior"]["alpha"].values.reshape(-1, 2)
both = 1 / (1 / alpha).sum(1)  # the precision of w_1 + w_2, all that the data know of
one_out = np.mean(alpha.max(1) > 10 * alpha.min(1))
print("                     MAP      5 %     50 %     95 %   of the posterior")
rows = {"alpha_1": alpha[:, 0], "alpha_2": alpha[:, 1], "of w_1 + w_2": both}
points = {"alpha_1": np.inf, "alpha_2": np.inf, "of w_1 + w_2": fit.alpha[0]} | {
    f"alpha_{k + 1}": value for k, value in zip(fit.active, fit.alpha, strict=True)
}
for name, values in rows.items():
    print(f"{name:<14}{points[name]:>10.3g}" + "".join(f"{q:>9.3g}" for q in np.quantile(values, (0.05, 0.5, 0.95))))
print(f"In {one_out:.0%} of the draws one column has ten times the precision of the other, in either order:")
print(f"the first is the weaker one in {np.mean(alpha[:, 0] > alpha[:, 1]):.0%}.\n")
report = sbl.compare(fit, post, truth=bump)
print(f"{report}")


def log_evidence(alpha_1, alpha_2):
    """At the noise variance of the MAP, relative to an empty model: a function of 1/alpha_1 + 1/alpha_2 alone."""
    s, q = bump @ bump / fit.noise_variance, bump @ t / fit.noise_variance
    variance = 1 / alpha_1 + 1 / alpha_2
    return 0.5 * (q**2 * variance / (1 + s * variance) - np.log1p(s * variance))


figure, (left, right) = plt.subplots(1, 2, figsize=(11, 5.2), layout="constrained")
axis = np.logspace(np.log10(LOW), np.log10(HIGH), 200)
nats = log_evidence(axis, axis[:, None]) - log_evidence(fit.alpha[0], np.inf)
levels, greys = [-8, -4, -2, -1, -0.5, -0.1, 0], ["0.99", "0.96", "0.92", "0.87", "0.81", "0.74"]
filled = left.contourf(axis, axis, nats.clip(max=0), levels=levels, colors=greys)
figure.colorbar(filled, ax=left, label="log evidence below the MAP's (nats)", shrink=0.85)
shown = alpha[np.linspace(0, len(alpha) - 1, min(2000, len(alpha))).astype(int)]
left.plot(*shown.T, ".", color="#0072B2", markersize=2.5, alpha=0.5, label="draws of the posterior")
first = np.geomspace(fit.alpha[0] * 1.001, HIGH, 300)
left.plot(first, 1 / (1 / fit.alpha[0] - 1 / first), color="#D55E00", lw=1.5, label="1/α₁ + 1/α₂ as at the MAP")
pruned = np.full(2, 2 * HIGH)
pruned[fit.active] = fit.alpha
left.plot(*pruned, "*", color="#D55E00", markersize=15, mec="black", ls="", label="MAP: one kept, the other ∞")
left.set(xscale="log", yscale="log", xlim=(LOW, 4 * HIGH), ylim=(LOW, 4 * HIGH), xlabel="α₁", ylabel="α₂")
left.set_title("hyperparameters: a ridge with two arms", loc="left")

right.plot(x, t, ".", color="0.6", label="data")
bands = {"posterior": (report.posterior, "#0072B2", "-"), "delta function": (report.delta, "#D55E00", "--")}
for name, (band, colour, style) in bands.items():
    right.plot(x, band.mean, style, color=colour, lw=1.6, label=f"{name}, mean ± 2 sd")
    for sign in (-2, 2):
        right.plot(x, band.mean + sign * band.sd, style, color=colour, lw=1.0)
right.set(xlabel="x", ylabel="a new observation")
right.set_title("predictions: the same", loc="left")
for ax in (left, right):
    ax.legend(loc="upper center", bbox_to_anchor=(0.5, -0.13), frameon=False, fontsize=9, markerscale=1.2)
figure.savefig(options.output, dpi=100)
print(f"\nThe ridge and the predictions are drawn in {options.output}")
