"""Take a noisy signal of two kinds apart: steps (Blocks) on the left, a wave (Sinc) on the right."""

import argparse

import matplotlib

matplotlib.use("Agg")  # draw into a file, without a window

import matplotlib.pyplot as plt
import numpy as np

import sbl_ppl as sbl
from sbl_ppl.plots import plot_contributions, plot_fit

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--output", default="demo.png", help="where to save the picture")
options = parser.parse_args()

data = sbl.datasets.blocks_sinc(512, snr=7.0)  # x, t = signal + noise, and the signal to compare with
n, right = len(data.t), data.x > 0
steps, splines = sbl.Wavelet("haar"), sbl.ThinPlateSpline(width=3.0)  # n columns each
prior = sbl.Smoothness("RIC")  # how dear a column is; "BIC" and "AIC" keep more of them

print(f"Explaining {n} noisy points by as few steps (Haar wavelets) and splines as it takes.")
fit = sbl.fit_map(data.x, data.t, steps + splines, prior=prior)
print(f"{fit}\n")

mean, sd = fit.predict(noise=False)  # of the function; with noise=True of a new observation
print(f"Mean squared error against the noise-free signal: {np.mean((mean - data.signal) ** 2):.4f}")
print(f"Noise variance: {data.noise_sd**2:.4f}, estimated as {fit.noise_variance:.4f}")
inside = np.mean(np.abs(mean - data.signal) < 2 * sd)
print(
    f"The band of 2 sd holds the truth at {inside:.0%} of the points: one point of the posterior is too sure of itself."
)

figure, (top, *below) = plt.subplots(3, 1, figsize=(8, 8), sharex=True, layout="constrained")
plot_fit(fit, truth=data.signal, ax=top).set(xlabel="")
blocks, sinc = np.where(right, 0.0, data.signal), np.where(right, data.signal, 0.0)
plot_contributions(fit, truth=[blocks - fit.offset, sinc], axes=below)  # contributions leave out the mean of t
figure.savefig(options.output, dpi=100)
print(f"Data, fit and the share of each part are drawn in {options.output}")
