"""Denoising a series: the wavelet fit averaged over cyclic shifts of the grid.

A wavelet basis treats neighbouring positions differently, so an edge that falls badly on the grid leaves ripples.
Fitting shifted copies of the series and averaging the curves shifted back removes most of them (Coifman & Donoho 1995),
and with the closed form every shift costs O(N).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from .checks import instance, whole_number
from .dictionary import Wavelet
from .map_fit import fit_map
from .priors import Prior

Array = np.ndarray


class Denoised(NamedTuple):
    """A denoised series: the curve, its standard deviation, the noise variance, and columns kept on average."""

    mean: Array
    sd: Array
    noise_variance: float
    n_kept: float


def denoise(
    t: Any,
    wavelet: str | Wavelet = "sym8",
    prior: Prior | None = None,
    noise_variance: float | None = None,
    shifts: int = 16,
) -> Denoised:
    """Denoise an equally spaced series with a wavelet basis, averaged over cyclic shifts.

    Parameters
    ----------
    t : array of shape (N,)
        N must be even, best a power of two.
    wavelet : str or Wavelet
    prior : Prior, optional
        Default ``Smoothness("BIC")``.
    noise_variance : float, optional
        Default: estimated once, without a shift.
    shifts : int
        Number of shifts, 0 to shifts - 1 points; 1 is the plain fit.

    Returns
    -------
    Denoised
        `sd` is the root of the mean posterior variance of the function: an upper bound of that of the averaged curve.

    Raises
    ------
    ValueError
        If shifts is below 1, and as `fit_map`.
    """
    whole_number("shifts", shifts, 1, ": 1 means no averaging")
    instance("wavelet", wavelet, (str, Wavelet), "a Wavelet or its name", "fit another dictionary with fit_map")
    basis = Wavelet(wavelet) if isinstance(wavelet, str) else wavelet
    first = fit_map(None, t, basis, prior, noise_variance)
    mean, variance, kept = np.zeros(len(first.t)), np.zeros(len(first.t)), 0
    for shift in range(shifts):
        fit = first if shift == 0 else fit_map(None, np.roll(first.t, shift), basis, prior, first.noise_variance)
        curve, sd = fit.predict(noise=False)
        mean += np.roll(curve, -shift)
        variance += np.roll(sd, -shift) ** 2
        kept += len(fit.active)
    return Denoised(mean / shifts, np.sqrt(variance / shifts), first.noise_variance, kept / shifts)
