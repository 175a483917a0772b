"""Towards Jeffreys' prior: the posterior converges, the type-II MAP depends on the path and on the coordinate.

Gamma(eps, eps) for eps -> 0 and Power(zeta) for zeta -> -1 both end in Jeffreys' prior 1/alpha (SE07 section 6.5). On
bounds, which make them proper, all of them are sampled on the same small regression problem; beside it stands what
`fit_map` finds on the same path, as the mode per d alpha and as the mode per d log(alpha), or why it refuses.
"""

import argparse
import warnings

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
import numpy as np

import sbl_ppl as sbl

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--output", default="jeffreys_limit.png", help="where to save the picture")
parser.add_argument("--quick", action="store_true", help="few steps and draws, to see that everything runs")
options = parser.parse_args()

BOUNDS = {"low": 1e-4, "high": 1e4}
data = sbl.datasets.sinc(40, snr=5.0)
centres = np.linspace(-10, 10, 12)
columns = sbl.Columns(np.exp(-(((data.x[:, None] - centres) / 1.8) ** 2)), [f"kernel at {c:.1f}" for c in centres])
jeffreys = sbl.fit_map(None, data.t, columns, prior=sbl.Jeffreys(**BOUNDS), center=False)  # and the start of all chains

epsilons, zetas = (1.0, 0.6, 0.3, 0.1, 1e-2, 1e-3, 1e-4, 1e-6), (0.0, -0.25, -0.45, -0.75, -0.9, -0.99, -0.999)
if options.quick:
    epsilons, zetas = (1e-6,), (-0.25, -0.999)
paths = {
    "Gamma(ε, ε)": {eps: sbl.Gamma(eps, eps, **BOUNDS) for eps in epsilons},
    "Power(ζ)": {1 + zeta: sbl.Power(zeta, **BOUNDS) for zeta in zetas},
}
complaints, refusals = [], {}


def mode(prior, space):
    """Degrees of freedom and number of columns kept by the type-II MAP; None where there is no such mode."""
    try:
        fit = sbl.fit_map(None, data.t, columns, prior=prior, space=space, center=False)
    except ValueError as refused:
        refusals.setdefault((type(prior).__name__, space), f"{prior}: {refused}")
        return None
    return fit.degrees_of_freedom, len(fit.active)


def posterior(prior, seed=0):
    """Draws of the degrees of freedom and of the noise sd, and the mean prediction at the inputs."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", sbl.SamplingWarning)
        post = sbl.sample(
            jeffreys,
            kernel="nuts",
            prior=prior,
            num_warmup=300 if options.quick else 500,
            num_samples=300 if options.quick else 1500,
            num_chains=2,
            seed=seed,
            progress=False,
        )
    if caught:
        complaints.append(f"{prior}: " + "; ".join(str(warning.message) for warning in caught))
    draws = post["posterior"]
    mean, _ = sbl.predict_posterior(jeffreys, post)
    return draws["degrees_of_freedom"].values.ravel(), np.sqrt(draws["noise_variance"].values.ravel()), mean


def cell(found):
    return "refused" if found is None else f"{found[0]:.2f} ({found[1]})"


limit = posterior(jeffreys.prior)
again = posterior(jeffreys.prior, seed=1)  # another run of the same: what Monte Carlo alone makes differ
noise_sd = np.sqrt(jeffreys.noise_variance)


def distance(mean):
    """Largest difference from the mean prediction under Jeffreys' prior, in noise sds."""
    return np.abs(mean - limit[2]).max() / noise_sd


print(f"{len(data.t)} points of Sinc, {len(centres)} Gaussian kernels, alpha between 1e-4 and 1e4.")
print("'off' is the largest distance of the mean prediction from that under Jeffreys' prior, in noise sds;")
print("the type-II MAP has its degrees of freedom and, in brackets, the number of columns kept.\n")
print("prior                posterior: dof    noise sd      off   MAP per dα   MAP per d log α")
rows = {}
for path, priors in paths.items():
    rows[path] = []
    for step, prior in priors.items():
        dof, sd, mean = posterior(prior)
        modes = mode(prior, "alpha"), mode(prior, "log")
        rows[path].append((step, dof.mean(), *np.quantile(dof, (0.05, 0.95)), distance(mean), *modes))
        label = f"Gamma({step:g}, {step:g})" if path.startswith("Gamma") else f"Power({step - 1:g})"
        cells = f"{cell(modes[0]):>13}{cell(modes[1]):>18}"
        print(f"{label:<20}{dof.mean():>16.2f}{sd.mean():>12.4f}{distance(mean):>9.3f}{cells}", flush=True)
modes = mode(jeffreys.prior, "alpha"), mode(jeffreys.prior, "log")
for label, (dof, sd, mean) in {"Jeffreys()": limit, "Jeffreys(), again": again}.items():
    cells = f"{cell(modes[0]):>13}{cell(modes[1]):>18}"
    print(f"{label:<20}{dof.mean():>16.2f}{sd.mean():>12.4f}{distance(mean):>9.3f}{cells}")
further = {eps: cell(mode(sbl.Gamma(eps, eps, **BOUNDS), "log")) for eps in (1e-8, 1e-10, 1e-12)}
print("further on, the MAP per d log α: " + ", ".join(f"{eps:.0e} {found}" for eps, found in further.items()))

print("\nWhy fit_map refuses, the first time on each path:")
for reason in refusals.values():
    print(f"- {reason}")
runs = 2 + len(epsilons) + len(zetas)
print(f"\nsample warned in {len(complaints)} of {runs} runs" + ("; the first time:" if complaints else "."))
print("".join(f"- {complaint}\n" for complaint in complaints[:1]))

figure, axes = plt.subplots(2, 2, figsize=(11, 7), sharex="col", sharey="row", height_ratios=[3, 2])
figure.set_layout_engine("constrained")
MODES = {"dα": {"color": "#D55E00", "marker": "s"}, "d log α": {"color": "#009E73", "marker": "D"}}
for (top, bottom), (path, found) in zip(axes.T, rows.items(), strict=True):
    step, mean, low, high, off, *modes = zip(*found, strict=True)
    top.axhspan(*np.quantile(limit[0], (0.05, 0.95)), color="0.9", label="Jeffreys' prior, posterior, 90 %")
    top.axhline(limit[0].mean(), color="0.5", lw=1, label="Jeffreys' prior, posterior mean")
    span = [np.subtract(mean, low), np.subtract(high, mean)]
    top.errorbar(step, mean, span, fmt="o-", color="#0072B2", capsize=3, label="posterior, mean and 90 %")
    for (coordinate, style), answers in zip(MODES.items(), modes, strict=True):
        height = [np.nan if answer is None else answer[0] for answer in answers]
        top.plot(
            step, height, ls="--", ms=8, mfc="none", mew=1.6, zorder=3, label=f"type-II MAP per {coordinate}", **style
        )
    top.set_title(path, loc="left")
    bottom.plot(step, off, "o-", color="#0072B2")
    bottom.axhline(distance(again[2]), color="0.5", lw=1, ls=":", label="Jeffreys' prior, a second run")
    bottom.set(xscale="log", yscale="log", xlabel=f"{'ε' if path.startswith('Gamma') else '1 + ζ'}, towards 0")
    bottom.invert_xaxis()
    # On both paths a mode per dα exists only where the exponent exceeds -1/2
    for ax in (top, bottom):
        ax.axvspan(0.5, step[-1] / 2, color="#D55E00", alpha=0.09, lw=0, label="no mode per dα: every α runs to 0")
        ax.set_xlim(2, step[-1] / 2)
top, bottom = axes[:, 0]
top.set(ylabel="degrees of freedom", ylim=(4, len(centres) + 0.6))
top.axhline(jeffreys.degrees_of_freedom, color="#009E73", lw=1, ls=":", label="the classical RVM")
axes[0, 1].axhline(jeffreys.degrees_of_freedom, color="#009E73", lw=1, ls=":")
bottom.set_ylabel("distance of the mean prediction\nfrom Jeffreys' (noise sd)")
bottom.legend(frameon=False, fontsize=9, loc="lower left", handles=[bottom.lines[1]])
figure.legend(*top.get_legend_handles_labels(), loc="outside lower center", ncols=3, frameon=False, fontsize=9)
figure.savefig(options.output, dpi=100)
print(f"Degrees of freedom and distances are drawn in {options.output}")
