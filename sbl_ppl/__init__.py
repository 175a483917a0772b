"""Sparse Bayesian learning for NumPyro: fit the type-II MAP in milliseconds, then see what it hid."""

from . import datasets
from .denoise import Denoised, denoise
from .dictionary import (
    Bias,
    Columns,
    Custom,
    Dictionary,
    Gaussian,
    Linear,
    LinearSpline,
    Polynomial,
    ThinPlateSpline,
    Wavelet,
)
from .map_fit import ConvergenceWarning, MapFit, fit_map
from .plots import plot_contributions, plot_fit, plot_shrinkage
from .priors import Flat, Gamma, Jeffreys, Power, Prior, Smoothness

__version__ = "0.1.0"

__all__ = [
    "Bias",
    "Columns",
    "ConvergenceWarning",
    "Custom",
    "Denoised",
    "Dictionary",
    "Flat",
    "Gamma",
    "Gaussian",
    "Jeffreys",
    "Linear",
    "LinearSpline",
    "MapFit",
    "Polynomial",
    "Power",
    "Prior",
    "Smoothness",
    "ThinPlateSpline",
    "Wavelet",
    "datasets",
    "denoise",
    "fit_map",
    "plot_contributions",
    "plot_fit",
    "plot_shrinkage",
]
