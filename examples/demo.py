"""Fit, sample, compare: what a point estimate of the hyperparameters finds, and what it hides.

First a signal of two kinds is taken apart: steps (Blocks) on the left, a wave (Sinc) on the right. Then, on the wave
alone, the posterior of all precisions and of the noise is sampled and put beside the point estimate.
"""

import argparse
from pathlib import Path

import matplotlib

matplotlib.use("Agg")  # draw into a file, without a window

import matplotlib.pyplot as plt
import numpy as np

import sbl_ppl as sbl
from sbl_ppl.plots import plot_contributions, plot_fit

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--output", type=Path, default=Path("demo.png"), help="the first picture; the second is beside it")
parser.add_argument("--draws", type=int, default=1500, help="draws of each of four chains")
options = parser.parse_args()
beside = options.output.with_stem(options.output.stem + "_posterior")

data = sbl.datasets.blocks_sinc(512, snr=7.0)  # x, t = signal + noise, and the signal to compare with
n, right = len(data.t), data.x > 0
steps, splines = sbl.Wavelet("haar"), sbl.ThinPlateSpline(width=3.0)  # n columns each
prior = sbl.Smoothness("RIC")  # how dear a column is; "BIC" and "AIC" keep more of them

print(f"1. Explaining {n} noisy points by as few steps (Haar wavelets) and splines as it takes.\n")
fit = sbl.fit_map(data.x, data.t, steps + splines, prior=prior)
print(f"{fit}\n")

mean, sd = fit.predict(noise=False)  # of the function; with noise=True of a new observation
print(f"Mean squared error against the noise-free signal: {np.mean((mean - data.signal) ** 2):.4f}")
print(f"Noise variance: {data.noise_sd**2:.4f}, estimated as {fit.noise_variance:.4f}")

figure, (top, *below) = plt.subplots(3, 1, figsize=(8, 8), sharex=True, layout="constrained")
plot_fit(fit, truth=data.signal, ax=top).set(xlabel="")
blocks, sinc = np.where(right, 0.0, data.signal), np.where(right, data.signal, 0.0)
truth = [blocks - blocks.mean(), sinc - sinc.mean()]  # the intercept takes the means of all parts
plot_contributions(fit, truth=truth, axes=below)
figure.savefig(options.output, dpi=100)
print(f"Data, fit and the share of each part are drawn in {options.output}\n")

print("2. Sampling the posterior of 128 precisions and the noise of sinc, from the fit on. It takes half a minute.\n")
data = sbl.datasets.sinc(128, snr=5.0)
fit = sbl.fit_map(data.x, data.t, sbl.Gaussian(width=3.0))
post = sbl.sample(fit, num_samples=options.draws)  # an ArviZ object
report = sbl.compare(fit, post, truth=data.signal)
print(report)

sbl.plot_comparison(report)[0].figure.savefig(beside, dpi=100)
print(f"The two are drawn side by side in {beside}")
