"""One short run of the sampler that several files look at from different sides."""

import os
import sys
import warnings

import numpy as np
import pytest
from hypothesis import HealthCheck, settings

import sbl_ppl as sbl

# Examples differ in cost by a hundred, so that neither their time nor that of drawing them says anything.
_fuzz = settings(deadline=None, suppress_health_check=list(HealthCheck))
settings.register_profile("short", _fuzz, max_examples=25, derandomize=True, database=None)
settings.register_profile("long", _fuzz, max_examples=250, print_blob=True)
settings.load_profile(os.environ.get("FUZZ", "short"))


@pytest.fixture(scope="module", autouse=True)
def _forget_compiled_programs():
    """Otherwise a worker keeps gigabytes of them by the end."""
    yield
    if "jax" in sys.modules:
        sys.modules["jax"].clear_caches()


@pytest.fixture(scope="session")
def sampled():
    """Data, a fit of a bump and a bias, and a short NUTS run: too short for its own diagnostics, which warn."""
    x = np.linspace(-3.0, 3.0, 24)
    signal = 2.0 * np.exp(-(x**2)) + 5.0
    t = signal + 0.2 * np.random.default_rng(5).standard_normal(24)
    fit = sbl.fit_map(x, t, sbl.Gaussian(1.0, centers=np.linspace(-3, 3, 7)) + sbl.Bias())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", sbl.SamplingWarning)
        post = sbl.sample(fit, "nuts", num_warmup=200, num_samples=150, num_chains=2, progress=False)
    return fit, post, signal
