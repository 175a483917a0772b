"""A larger NumPyro model: a quadratic trend with ordinary priors, plus peaks that a sparse part finds.

    t = intercept + slope x + curvature x^2 + Phi w + noise

The trend's coefficients are sites of the program. The weights w are integrated out by `SparseNormal`, their precisions
have the smoothness prior, and NumPyro's NUTS samples all of it at once. Afterwards the weights are drawn exactly.
"""

import argparse
import warnings

import matplotlib

matplotlib.use("Agg")

import jax
import matplotlib.pyplot as plt
import numpy as np
import numpyro
from numpyro import distributions as dist
from numpyro.infer import MCMC, NUTS

import sbl_ppl as sbl

with warnings.catch_warnings():
    warnings.simplefilter("ignore", FutureWarning)  # ArviZ 0.23 announces 1.x
    import arviz as az

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--output", default="trend_and_sparse.png", help="where to save the picture")
parser.add_argument("--quick", action="store_true", help="small data and few draws, to see that everything runs")
options = parser.parse_args()

n, draws = (48, 200) if options.quick else (96, 1000)
truth = {"intercept": 1.0, "slope": 0.6, "curvature": -0.08, "noise_variance": 0.15**2}
rng = np.random.default_rng(3)
x = np.linspace(0, 10, n)
trend = truth["intercept"] + truth["slope"] * x + truth["curvature"] * x**2
peaks = sum(height * np.exp(-(((x - at) / 0.35) ** 2)) for at, height in [(2.2, 1.5), (4.7, -1.0), (8.1, 0.8)])
t = trend + peaks + np.sqrt(truth["noise_variance"]) * rng.normal(size=n)

centres = np.linspace(0, 10, n // 2)
design = np.exp(-(((x[:, None] - centres) / 0.4) ** 2))
design /= np.linalg.norm(design, axis=0)  # columns of norm 1: one prior, and one normaliser, serves all


def model(x, t, design):
    intercept = numpyro.sample("intercept", dist.Normal(0, 10))
    slope = numpyro.sample("slope", dist.Normal(0, 10))
    curvature = numpyro.sample("curvature", dist.Normal(0, 10))
    noise_variance = numpyro.sample("noise_variance", dist.InverseGamma(1.0, 0.01))
    prior = sbl.Smoothness("BIC", low=1e-6, high=1e6)
    component = sbl.precision(prior, noise_variance, norm2=1.0, num_obs=len(t))
    alpha = numpyro.sample("alpha", component.expand([design.shape[1]]).to_event(1))
    sparse = sbl.distributions.SparseNormal(design, alpha, noise_variance)
    # A shift has the Jacobian one, so what is left of the data may be the observation
    numpyro.sample("t", sparse, obs=t - (intercept + slope * x + curvature * x**2))


with jax.enable_x64(True):
    mcmc = MCMC(
        NUTS(model),
        num_warmup=draws,
        num_samples=draws,
        num_chains=2,
        chain_method="sequential",
        progress_bar=False,
    )
    mcmc.run(jax.random.PRNGKey(0), x, t, design)
    draw = {name: np.asarray(values) for name, values in mcmc.get_samples().items()}
    of_trend = draw["intercept"][:, None] + draw["slope"][:, None] * x + draw["curvature"][:, None] * x**2
    sparse = sbl.distributions.SparseNormal(design, draw["alpha"], draw["noise_variance"])
    weights = np.asarray(sparse.sample_weights(jax.random.PRNGKey(1), t - of_trend))
    gamma = np.asarray(sparse.gamma()).mean(0)
    # Without log_likelihood: that of t jointly is one number, of no use for leave-one-out
    data = az.from_numpyro(mcmc, log_likelihood=False)

table = az.summary(data, var_names=list(truth))
table.insert(0, "truth", list(truth.values()))
print(table.to_string())
inside = {name: np.abs(np.mean(draw[name] < value) - 0.5) < 0.475 for name, value in truth.items()}
print(f"In the central 95 % of their draws: {sum(inside.values())} of {len(inside)} true values.")
print(f"Divergent transitions: {int(mcmc.get_extra_fields()['diverging'].sum())}")

of_peaks = weights @ design.T
error = np.sqrt(np.mean((of_peaks.mean(0) - peaks) ** 2))
print(f"{gamma.sum():.1f} degrees of freedom in {len(centres)} columns; centres of the ones with gamma > 1/2:")
print("  " + ", ".join(f"{centre:.2f}" for centre in centres[gamma > 0.5]) + "   (peaks at 2.2, 4.7 and 8.1)")
print(f"Error of the sparse part: {error:.3f} (root mean square; noise sd {truth['noise_variance'] ** 0.5:.3f})")

figure, (top, bottom) = plt.subplots(2, 1, figsize=(8, 6.4), sharex=True, layout="constrained")


def band(ax, curves, colour, label):
    low, high = np.quantile(curves, (0.025, 0.975), axis=0)
    ax.fill_between(x, low, high, color=colour, alpha=0.25, lw=0, label=f"{label}, 95 %")
    ax.plot(x, curves.mean(0), color=colour, lw=1.5, label=f"{label}, mean")


top.plot(x, t, ".", color="0.5", label="data")
band(top, of_trend, "#D55E00", "trend")
band(top, of_trend + of_peaks, "#0072B2", "trend and sparse part")
top.plot(x, trend, "k--", lw=1, label="truth")
top.set(ylabel="t")
band(bottom, of_peaks, "#0072B2", "sparse part")
bottom.plot(x, peaks, "k--", lw=1, label="truth")
bottom.set(xlabel="x", ylabel="sparse part")
for ax in (top, bottom):
    ax.legend(loc="center left", bbox_to_anchor=(1.0, 0.5), frameon=False, fontsize=9)
figure.savefig(options.output, dpi=100)
print(f"Data, trend and sparse part are drawn in {options.output}")
