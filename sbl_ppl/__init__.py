"""Sparse Bayesian learning for NumPyro: fit the type-II MAP in milliseconds, then see what it hid."""

import sys
from importlib import import_module
from types import ModuleType
from typing import Any

from . import datasets
from .arviz_io import read_netcdf, write_netcdf
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
from .maxima import BasinMass, MaximaAtlas, explore_maxima
from .plots import plot_comparison, plot_contributions, plot_fit, plot_shrinkage
from .priors import Flat, Gamma, Jeffreys, Power, Prior, Smoothness

__version__ = "0.1.0"

# These load JAX, so they are imported when asked for: a fit needs none of it.
_LATER = {
    "Comparison": "compare",
    "Evidence": "evidence_sampling",
    "ExchangeGibbs": "gibbs",
    "SamplingWarning": "sampling",
    "TemperedExchange": "tempering",
    "compare": "compare",
    "distributions": "distributions",
    "log_evidence": "evidence_sampling",
    "model": "model",
    "precision": "model",
    "predict_posterior": "sampling",
    "sample": "sampling",
}


class _Package(ModuleType):
    """The import system binds a submodule's name here; where a function is meant by it, as in `model`, that stays."""

    def __getattr__(self, name: str) -> Any:
        if name not in _LATER:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        module = import_module(f".{_LATER[name]}", __name__)
        return getattr(module, name, module)

    def __setattr__(self, name: str, value: Any) -> None:
        super().__setattr__(name, getattr(value, name, value) if isinstance(value, ModuleType) else value)

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *_LATER})


sys.modules[__name__].__class__ = _Package

__all__ = [
    "BasinMass",
    "Bias",
    "Columns",
    "Comparison",
    "ConvergenceWarning",
    "Custom",
    "Denoised",
    "Dictionary",
    "Evidence",
    "ExchangeGibbs",
    "Flat",
    "Gamma",
    "Gaussian",
    "Jeffreys",
    "Linear",
    "LinearSpline",
    "MapFit",
    "MaximaAtlas",
    "Polynomial",
    "Power",
    "Prior",
    "SamplingWarning",
    "Smoothness",
    "TemperedExchange",
    "ThinPlateSpline",
    "Wavelet",
    "compare",
    "datasets",
    "denoise",
    "distributions",
    "explore_maxima",
    "fit_map",
    "log_evidence",
    "model",
    "plot_comparison",
    "plot_contributions",
    "plot_fit",
    "plot_shrinkage",
    "precision",
    "predict_posterior",
    "read_netcdf",
    "sample",
    "write_netcdf",
]
