"""Sample the posterior of the hyperparameters, starting from a fit.

`sample` runs a NumPyro kernel on the standardised problem of a fit (unit-norm columns, t of unit spread), in float64,
and gives the draws back in the user's units as an ArviZ object. Chains run side by side in threads: the kernel is
compiled once, for one chain, and compiled code needs no Python lock. So chain k is the same whatever the number of
chains.

Draws come in rounds. With `path=` each round is a file of its own, holding the draws and the kernel's whole state after
them, written beside and moved. A kill loses the round under way, and `resume=` goes on from the last file bit for bit.
The folder is locked meanwhile: one process at a time writes to it.
"""

from __future__ import annotations

import hashlib
import json
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, nullcontext
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpyro import distributions as dist
from numpyro.infer import NUTS
from scipy.special import ndtr

from . import arviz_io
from .augmentation import is_local, own_kernels
from .checks import choice, file_path, flag, instance, seed_number, whole_number
from .dictionary import Wavelet, as_numbers, parts_of
from .gibbs import ExchangeGibbs
from .map_fit import MapFit, as_prediction, draws_from_arviz, draws_to_arviz, prior_of, prior_record
from .model import free_columns, model, precision
from .posterior import describe, model_arguments, predict, workers
from .priors import Prior
from .problem import Problem, overfits
from .storage import Archive, locked, reading, written_beside
from .tempering import LEAST_SHAPE, TemperedExchange, ladder

Array = np.ndarray

_FORMAT = 2
_CHUNK = 64  # columns that are hashed at a time
_ROUND = 50  # draws of a chain between two looks at the clock, and between two files


class SamplingWarning(UserWarning):
    """The draws are not yet a sample of the posterior, or the posterior is not where the MAP is."""


@dataclass(frozen=True)
class _Settings:
    """What determines the draws of a run, but for its length."""

    kernel: str
    kernel_options: dict[str, Any]
    num_warmup: int
    num_chains: int
    thin: int
    seed: int
    start: str
    tempering: int | list[float] | None
    fixed_alpha: list[list[float]]  # pairs of column and precision, in the user's units
    prior: dict[str, Any] = field(default_factory=dict)  # this and the fingerprint of a stored run only
    problem: str = ""
    format: int = _FORMAT


_DEFAULTS: dict[str, Any] = {"kernel": "exchange", "kernel_options": {}, "fixed_alpha": [], "start": "map"}
_DEFAULTS["tempering"] = None
_DEFAULTS |= {"num_chains": 4, "thin": 1, "seed": 0}
_WARMUP = {"exchange": 500, "nuts": 1000}


def sample(
    fit: MapFit,
    kernel: str | None = None,
    num_warmup: int | None = None,
    num_samples: int = 1000,
    num_chains: int | None = None,
    prior: Prior | None = None,
    start: str | None = None,
    seed: int | None = None,
    thin: int | None = None,
    fixed_alpha: Any = None,
    tempering: Any = None,
    kernel_options: dict[str, Any] | None = None,
    path: Any = None,
    resume: Any = None,
    progress: bool = True,
) -> Any:
    """Sample the posterior of precisions and noise, and draw the weights given them.

    Parameters
    ----------
    fit : MapFit
        Data, dictionary, prior and noise prior; and the point around which chains start.
    kernel : {"exchange", "nuts"}
        `ExchangeGibbs` (default), which moves between local maxima, or NumPyro's No-U-Turn sampler.
    num_warmup, num_samples, num_chains : int
        Steps of adaptation (default 500, of NUTS 1000), kept draws of each chain, chains (default 4).
    prior : Prior, optional
        Another prior than the fit's.
    start : {"map", "dispersed"}
        Where chains start: around the MAP, jittered, with pruned precisions drawn from the prior beyond the point where
        they matter (default); or anywhere in the prior's range.
    seed : int
        Default 0. The same seed gives the same draws.
    thin : int
        Keep every thin-th draw. Default 1.
    fixed_alpha : array of shape (M,), optional
        Known precisions in the user's units, NaN where they are sampled: a bias with a small one is never pruned.
    tempering : int or sequence of float, optional
        For modes too far apart for exchanges: a ladder of so many powered likelihoods, or their powers from 1 down,
        whose states are swapped (`TemperedExchange`). Costs as many times more as there are rungs. A number makes a
        ladder down to the prior, or, if the noise prior is as wide as the default, to a power of 0.02.
    kernel_options : dict
        Passed to the kernel, such as ``{"target_accept_prob": 0.95}`` for NUTS.
    path : path, optional
        A new folder in which the run is stored while it runs.
    resume : path, optional
        The folder of a stored run to go on with, up to `num_samples` draws a chain in all. Bit for bit what one longer
        run would have given. Arguments left out are those of the stored run.
    progress : bool
        Show a progress bar on a terminal.

    Returns
    -------
    arviz.InferenceData or xarray.DataTree
        With ArviZ 0.23 and ArviZ 1.x. Groups `posterior` (alpha, log_alpha, weights, noise_variance, gamma,
        degrees_of_freedom), `posterior_predictive` (a new t for each draw; beyond 2e7 numbers left out, as the
        attributes of `posterior` then say), `sample_stats`, `log_likelihood` (exact leave-one-out terms of t),
        `log_prior` (per d log alpha), `observed_data`, `constant_data`.

    Raises
    ------
    ValueError
        For bad input, before any work; the message names the argument and the remedy.

    Warns
    -----
    SamplingWarning
        If R-hat exceeds 1.01, an effective sample size falls below 400, a transition diverged, or the posterior has
        left the components of the MAP.
    """
    instance("fit", fit, MapFit, "a MapFit", "call fit_map first")
    if path is not None and resume is not None:
        raise ValueError("path= starts a stored run and resume= goes on with one: give one of the two")
    if prior is not None:
        instance("prior", prior, Prior, "a Prior such as Smoothness('BIC') or Jeffreys()")
    num_samples = whole_number("num_samples", num_samples, 1)
    flag("progress", progress)
    folder = (
        file_path("path", path) if path is not None else file_path("resume", resume) if resume is not None else None
    )
    store = None if folder is None else _Store(folder, resume is None)
    wanted = {
        "kernel": kernel,
        "kernel_options": _plain_options(kernel_options),
        "num_warmup": num_warmup,
        "num_chains": num_chains,
        "thin": thin,
        "seed": seed,
        "start": start,
        "tempering": _ladder_of(tempering, fit),
        "fixed_alpha": None if fixed_alpha is None else _fixed_pairs(fixed_alpha, fit.n_columns),
        "prior": prior_record(prior or fit.prior) if store and (prior or store.new) else None,
    }
    given = {name: value for name, value in wanted.items() if value is not None}
    with store or nullcontext():
        if store and not store.new:
            settings = store.open(given)
            prior = prior_of(settings.prior)
            if settings.problem != _fingerprint(fit):
                raise ValueError(
                    f"resume={resume}: that run was of other data or another dictionary: give the same fit"
                )
        else:
            settings = _new_settings(given)
            if store:
                settings = replace(settings, problem=_fingerprint(fit))
                store.check(settings)
        prior = prior or fit.prior
        problem = fit.problem(prior)
        _make_kernel(settings, model_arguments(problem)[1])  # raises for bad options before any work
        raw = _run(fit, problem, settings, num_samples, store, progress)
    data = _to_arviz(fit, prior, problem, settings, raw)
    for message in _complaints(fit, problem, settings, data):
        warnings.warn(message, SamplingWarning, stacklevel=2)
    return data


def predict_posterior(
    fit: MapFit,
    post: Any,
    x_new: Any = None,
    noise: bool = True,
    max_draws: int = 1000,
    *,
    augment: bool | None = None,
    quantiles: Any = None,
    draws: int | None = None,
    seed: int = 0,
) -> Any:
    """Posterior predictive mean and standard deviation, averaged over draws of the hyperparameters.

    For each draw the function's mean and variance are exact; the result has the mean of the former, and the mean of the
    latter plus the variance of the former.

    Parameters
    ----------
    fit : MapFit
        The fit that was sampled.
    post : ArviZ object
        What `sample` returned.
    x_new : array, optional
        New inputs; default the training inputs.
    noise : bool
        Whether the sd is that of a new observation or of the function alone.
    max_draws : int
        Draws of the hyperparameters to use at most, evenly spread; each costs O(N M min(N, M)).
    augment : bool, optional
        As in `MapFit.predict`: a kernel of its own for each input, integrated out. Default: with a `Gaussian` in the
        dictionary.
    quantiles : sequence of float, optional
        Return these quantiles instead, shape (len(quantiles), K): those of the mixture over the draws, which has
        heavier tails than a normal.
    draws : int, optional
        Return so many draws of the value at each input instead, shape (draws, K). For draws of whole curves use the
        `weights` in `post`.
    seed : int
        Of these draws.

    Returns
    -------
    mean, sd : arrays of shape (K,)
        Or one array, if quantiles or draws are asked for.

    Raises
    ------
    ValueError
        If `post` was drawn for other data or another dictionary.
    """
    flag("noise", noise)
    augment, levels, draws, seed = as_prediction(augment, quantiles, draws, seed)
    alpha, noise_variance = hyperparameters(fit, post, max_draws)
    problem = fit.problem()
    x_new = fit.inputs(x_new)
    augment = is_local(fit.dictionary) and fit.x is not None if augment is None else augment
    own = own_kernels(fit.dictionary, fit.x, x_new, fit.design.centered) if augment else None
    mean, variance = predict(problem, alpha, noise_variance, x_new, own)
    mean, sd = fit.offset + fit.scale * mean, fit.scale * np.sqrt(variance + noise_variance[:, None] * float(noise))
    if draws is not None:
        rng = np.random.default_rng(seed)
        chosen = rng.integers(len(mean), size=draws)
        return mean[chosen] + sd[chosen] * rng.standard_normal((draws, mean.shape[1]))
    if levels is not None:
        return mixture_quantiles(levels, mean, sd)
    return mean.mean(0), np.sqrt((sd**2).mean(0) + mean.var(0))


def mixture_quantiles(levels: Array, mean: Array, sd: Array) -> Array:
    """Quantiles of equal mixtures of normals over the first axis, by bisection to 2^-50 of their range."""
    reach = 40.0 * sd
    low, high = (np.tile(end, (len(levels), 1)) for end in ((mean - reach).min(0), (mean + reach).max(0)))
    for _ in range(50):
        middle = 0.5 * (low + high)
        below = np.stack([ndtr((row - mean) / sd).mean(0) for row in middle]) < levels[:, None]
        low, high = np.where(below, middle, low), np.where(below, high, middle)
    return 0.5 * (low + high)


def hyperparameters(fit: MapFit, post: Any, max_draws: int | None = None) -> tuple[Array, Array]:
    """Draws of alpha (draws, M) and of the noise variance (draws,) in units of the search, all chains in a row."""
    instance("fit", fit, MapFit, "a MapFit", "call fit_map first")
    if max_draws is not None:
        whole_number("max_draws", max_draws, 1)
    alpha, noise_variance = draws_from_arviz(fit, post)
    unit = fit.problem().norms / fit.scale
    alpha = alpha.reshape(-1, fit.n_columns) / unit**2
    noise_variance = noise_variance.reshape(-1) / fit.scale**2
    if max_draws is not None and len(alpha) > max_draws:
        chosen = np.linspace(0, len(alpha) - 1, max_draws).round().astype(int)
        return alpha[chosen], noise_variance[chosen]
    return alpha, noise_variance


def _plain_options(options: Any) -> dict[str, Any] | None:
    """Options of a kernel with plain numbers, so that those of a stored run compare equal to them."""

    def plain(value: Any) -> Any:
        if isinstance(value, np.generic | np.ndarray):
            return value.tolist()
        return type(value)(plain(each) for each in value) if isinstance(value, list | tuple) else value

    if options is None:
        return None
    if not isinstance(options, dict) or not all(isinstance(name, str) for name in options):
        raise ValueError(f"kernel_options={options!r} must be a dictionary of the kernel's arguments by name")
    return {name: plain(value) for name, value in options.items()}


def _new_settings(given: dict[str, Any]) -> _Settings:
    chosen = {**_DEFAULTS, **given}
    choice("kernel", chosen["kernel"], tuple(_WARMUP))
    chosen.setdefault("num_warmup", _WARMUP[chosen["kernel"]])
    choice("start", chosen["start"], ("map", "dispersed"))
    for name, least in (("num_warmup", 0), ("num_chains", 1), ("thin", 1)):
        chosen[name] = whole_number(name, chosen[name], least)
    chosen["seed"] = seed_number(chosen["seed"])
    if chosen["tempering"] is not None and chosen["kernel"] != "exchange":
        raise ValueError(f"tempering= is a ladder of exchange kernels: leave out kernel={chosen['kernel']!r}")
    return _Settings(**chosen)


def _ladder_of(tempering: Any, fit: MapFit) -> int | list[float] | None:
    """What is asked for, checked; down to the prior only if one can draw from it."""
    if tempering is None:
        return None
    try:
        powers = ladder(tempering)
    except (TypeError, ValueError) as error:
        raise ValueError(f"tempering={tempering!r} must be a number of rungs, or powers that fall from 1") from error
    if np.ndim(tempering):
        return [float(power) for power in powers]
    g, h = fit.settings["noise_prior"]
    wide = not fit.settings["noise_given"] and (g < LEAST_SHAPE or h == 0)
    return list(np.geomspace(1.0, 0.02, len(powers))) if wide else int(tempering)


def _fixed_pairs(fixed_alpha: Any, num_columns: int) -> list[list[float]]:
    free = free_columns(fixed_alpha, num_columns)
    if not len(free):
        raise ValueError("fixed_alpha leaves no precision to be sampled: put NaN where one is wanted")
    known = as_numbers(fixed_alpha, "fixed_alpha")  # by place: a series would look for a label
    return [[int(m), float(known[m])] for m in np.setdiff1d(np.arange(num_columns), free)]


def _fixed_in_search_units(problem: Problem, pairs: list[list[float]]) -> Array | None:
    """Precisions of all columns, NaN where they are sampled; None if all are."""
    if not pairs:
        return None
    fixed, columns = np.full(problem.design.n_columns, np.nan), np.array([m for m, _ in pairs], dtype=int)
    fixed[columns] = np.array([alpha for _, alpha in pairs]) * (problem.scale / problem.norms[columns]) ** 2
    return fixed


def _fingerprint(fit: MapFit) -> str:
    """Of the data, the dictionary and the noise; equal for a fit that was saved and loaded."""
    digest = hashlib.sha256(fit.t.tobytes())
    digest.update(b"" if fit.x is None else fit.x.tobytes())
    for part, span in zip(fit.dictionary.parts, parts_of(fit.dictionary, fit.design), strict=True):
        if isinstance(part, Wavelet):  # its name, its level and x determine the columns, which are not formed
            digest.update(repr(part).encode())
            continue
        for start in range(span.start, span.stop, _CHUNK):
            chosen = np.arange(start, min(start + _CHUNK, span.stop))
            digest.update(np.ascontiguousarray(fit.design.columns(chosen).T).data)
    digest.update(repr((fit.n_columns, fit.design.n_rows)).encode())
    digest.update(repr((fit.settings["noise_given"], fit.settings["noise_prior"], fit.settings["center"])).encode())
    if fit.settings["noise_given"]:
        digest.update(np.float64(fit.noise_variance).tobytes())
    return digest.hexdigest()


class _Chains:
    """A kernel compiled for one chain: states in, states and draws out."""

    def __init__(self, problem: Problem, settings: _Settings):
        arguments, options = model_arguments(problem, _fixed_in_search_units(problem, settings.fixed_alpha))
        self.arguments = jax.tree.map(jnp.asarray, arguments)
        self.kernel, self.fields = _make_kernel(settings, options)
        self.options = options if settings.kernel == "nuts" else {}
        self.num_warmup, self.thin = settings.num_warmup, settings.thin
        self._compiled: Callable[..., Any] | None = None

    def first_states(self, keys: Array, positions: list[dict[str, Array]]) -> list[Any]:
        # NUTS prepares itself in its first `init`; afterwards `init` may be traced
        states = [self._init(keys[0], positions[0], self.arguments)]
        later = jax.jit(self._init)
        return states + [later(*each, self.arguments) for each in zip(keys[1:], positions[1:], strict=True)]

    def _init(self, key: Any, position: dict[str, Any], arguments: Any) -> Any:
        return self.kernel.init(key, self.num_warmup, position, arguments, self.options)

    def compile(self, state: Any) -> None:
        def collect(state: Any, arguments: Any) -> dict[str, Any]:
            transform = self.kernel.postprocess_fn(arguments, self.options)
            found = {name: getattr(state, name) for name in self.fields}
            return {**found, **transform(getattr(state, self.kernel.sample_field))}

        def advance(state: Any, arguments: Any, count: Any, thin: Any) -> Any:
            def step(_: Any, state: Any) -> Any:
                return self.kernel.sample(state, arguments, self.options)

            def one(i: Any, carried: Any) -> Any:
                state, kept = carried
                state = jax.lax.fori_loop(0, thin, step, state)
                new = collect(state, arguments)
                return state, jax.tree.map(lambda all_, each: all_.at[i].set(each), kept, new)

            # The length is an argument and the buffer always as long, so that one compiled function makes every draw:
            # how a run was cut into rounds cannot be seen in its last bit
            kept = jax.tree.map(lambda leaf: jnp.zeros((_ROUND, *leaf.shape), leaf.dtype), self.draw)
            return jax.lax.fori_loop(0, count, one, (state, kept))

        self.draw = jax.eval_shape(collect, state, self.arguments)  # shapes and types
        # The data are arguments too: XLA would spend seconds on products of constants
        self._compiled = jax.jit(advance).lower(state, self.arguments, jnp.int64(0), jnp.int64(0)).compile()

    def advance(self, states: list[Any], count: int, thin: int, pool: ThreadPoolExecutor) -> tuple[list[Any], Any]:
        """`count` draws of every chain, `thin` steps apart, with the chains on a leading axis."""
        compiled, others = self._compiled, (self.arguments, jnp.int64(count), jnp.int64(thin))
        assert compiled is not None
        done = list(pool.map(lambda state: jax.block_until_ready(compiled(state, *others)), states))
        kept = [jax.tree.map(lambda leaf: np.asarray(leaf)[:count], kept) for _, kept in done]
        return [state for state, _ in done], jax.tree.map(lambda *parts: np.stack(parts), *kept)


def _make_kernel(settings: _Settings, options: dict[str, Any]) -> tuple[Any, tuple[str, ...]]:
    """A kernel, and which fields of its state are kept beside the draws."""
    given = settings.kernel_options
    try:
        if settings.kernel == "nuts":
            return NUTS(model, **given), ("diverging", "accept_prob", "num_steps", "energy")
        fields = ("accept_prob", "exchange_accept_prob", "noise_accept_prob", "drift")
        if settings.tempering is None:
            return ExchangeGibbs(**options, **given), fields
        kernel = TemperedExchange(**options, **given, powers=settings.tempering)
        return kernel, (*fields, "swap_accept_prob")
    except TypeError as error:
        raise ValueError(f"kernel_options={settings.kernel_options}: {error}") from error


def _run(
    fit: MapFit, problem: Problem, settings: _Settings, num_samples: int, store: _Store | None, progress: bool
) -> dict[str, Array]:
    """Draws and statistics of shape (chain, draw, ...), in units of the search."""
    chains, warmed, count = settings.num_chains, 0, 0
    kept: list[dict[str, Array]] = []
    with jax.enable_x64(True):
        runner = _Chains(problem, settings)
        keys = np.asarray(jax.random.split(jax.random.PRNGKey(settings.seed), (chains, 2)))
        free = free_columns(_fixed_in_search_units(problem, settings.fixed_alpha), problem.design.n_columns)
        positions = [_start(fit, problem, settings.start, key) for key in keys[:, 0]]
        positions = [{**position, "alpha": position["alpha"][free]} for position in positions]
        states = runner.first_states(keys[:, 1], positions)
        with ThreadPoolExecutor(min(chains, workers())) as pool, _Bar(progress, settings, num_samples) as bar:
            runner.compile(states[0])
            if store and store.new:
                store.create(settings)  # not sooner: what a kernel refuses it refuses when it is compiled
            elif store:
                kept, leaves, warmed, count = store.rounds(runner.draw, _leaves(states))
                states = [_with_leaves(state, [leaf[k] for leaf in leaves]) for k, state in enumerate(states)]
            bar.skip(warmed + count)
            while warmed < settings.num_warmup or count < num_samples:
                warming = warmed < settings.num_warmup
                rest = settings.num_warmup - warmed if warming else num_samples - count
                length = min(_ROUND, rest)
                states, new = runner.advance(states, length, 1 if warming else settings.thin, pool)
                warmed, count = (warmed + length, count) if warming else (warmed, count + length)
                kept += [] if warming else [new]
                if store:
                    store.append({} if warming else new, _leaves(states), warmed, count)
                bar.update(length, new)
    return {name: np.concatenate([part[name] for part in kept], axis=1)[:, :num_samples] for name in kept[0]}


def _own(state: Any) -> Any:
    """A state without the data that kernels only carry along, and which a first state holds as well."""
    return state._replace(problem=None) if hasattr(state, "problem") else state


def _leaves(states: list[Any]) -> list[Array]:
    """All arrays of the states of a kernel but for the data, with the chains on a leading axis."""
    return [np.stack(parts) for parts in zip(*(jax.tree.leaves(_own(state)) for state in states), strict=True)]


def _with_leaves(state: Any, leaves: list[Array]) -> Any:
    """The state that has these leaves, and the data of the given one."""
    restored = jax.tree.unflatten(jax.tree.structure(_own(state)), [jnp.asarray(leaf) for leaf in leaves])
    return restored._replace(problem=state.problem) if hasattr(state, "problem") else restored


def _start(fit: MapFit, problem: Problem, start: str, key: Array) -> dict[str, Any]:
    """A starting point on the unconstrained scale.

    Above its own knee, where it stops to matter, a pruned precision feels the prior alone, and is drawn from it.
    """
    known = problem.noise.fixed
    m = problem.design.n_columns
    for_noise, for_alpha, for_jitter = jax.random.split(jnp.asarray(key), 3)
    if start == "dispersed":
        log_noise = np.log(known) if known else jax.random.uniform(for_noise, minval=np.log(0.01), maxval=0.0)
    else:
        sd = np.sqrt(2.0 / len(fit.t))  # the posterior's, if all else were known
        map_noise = np.log(fit.noise_variance / problem.scale**2)
        log_noise = np.log(known) if known else map_noise + sd * jax.random.normal(for_noise)
    prior = precision(problem.prior, jnp.exp(log_noise))
    share = jax.random.uniform(for_alpha, (m,))
    if start == "map":
        knee = jnp.clip(10.0 * jnp.exp(-log_noise), problem.prior.low, problem.prior.high)
        below = jnp.minimum(prior.cdf(knee), 0.99)
        share = below + (1 - below) * share
    alpha = jnp.broadcast_to(prior.icdf(share), (m,))
    if start == "map":
        unit = problem.norms[fit.active] / problem.scale
        jittered = jnp.log(fit.alpha / unit**2) + jax.random.normal(for_jitter, (len(fit.active),))
        alpha = alpha.at[fit.active].set(jnp.exp(jittered))
    # Off the ends of the range, where the unconstrained scale runs to infinity
    low, high = jnp.log(problem.prior.low), jnp.log(problem.prior.high)
    margin = 0.01 * (high - low)
    alpha = jnp.exp(jnp.clip(jnp.log(alpha), low + margin, high - margin))
    position = {"alpha": dist.biject_to(prior.support).inv(alpha)}
    if not known:
        position["noise_variance"] = jnp.asarray(log_noise)
    return position


class _Bar:
    """A tqdm bar over all steps of all chains, on a terminal."""

    def __init__(self, wanted: bool, settings: _Settings, num_samples: int):
        self._chains, self._divergences, self._bar = settings.num_chains, 0, None
        self._name, self._warmup = settings.kernel, settings.num_warmup
        if wanted:
            from tqdm import tqdm

            total = self._chains * (settings.num_warmup + num_samples)
            self._bar = tqdm(total=total, desc=f"{settings.kernel}, compiling", unit=" draws", disable=None)

    def __enter__(self) -> _Bar:
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.close()

    def skip(self, steps: int) -> None:
        """Steps of each chain that were stored already."""
        if self._bar is not None:
            self._bar.update(self._chains * steps)

    def update(self, length: int, new: dict[str, Array]) -> None:
        if self._bar is None:
            return
        self._bar.update(self._chains * length)
        warming = self._bar.n <= self._chains * self._warmup
        self._bar.set_description(f"{self._name}, {'warming up' if warming else 'sampling'}", refresh=False)
        said = []
        if "num_steps" in new:
            said.append(f"{new['num_steps'].mean():.0f} gradients a draw")
        if "exchange_accept_prob" in new:
            said.append(f"exchanges accepted {np.nanmean(new['exchange_accept_prob']):.0%}")
        if "diverging" in new and not warming:
            self._divergences += int(new["diverging"].sum())
            said.append(f"{self._divergences} divergences")
        self._bar.set_postfix_str(", ".join(said))


class _Store:
    """A folder with the settings of a run and one file for each round; files are added, never changed.

    Used in a `with` block, at whose end the folder is free for others.
    """

    def __init__(self, folder: Any, new: bool):
        self.folder, self.new = Path(folder), new
        self._paths, self._held = list[Path](), ExitStack()

    def __enter__(self) -> _Store:
        return self

    def __exit__(self, *_: object) -> None:
        self._held.close()

    def check(self, settings: _Settings) -> None:
        """Raise ValueError if a run with these settings cannot be stored here."""
        _as_json(asdict(settings))
        if self.folder.exists() and (not self.folder.is_dir() or any(self.folder.iterdir())):
            raise self._taken()

    def _taken(self) -> ValueError:
        return ValueError(f"path={self.folder} exists already: resume= goes on with a stored run, or give a new name")

    def create(self, settings: _Settings) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        try:
            with written_beside(self.folder / "run.json", new=True) as part:
                part.write_text(json.dumps(_as_json(asdict(settings))), encoding="utf-8")
        except FileExistsError:
            raise self._taken() from None
        self._held.enter_context(locked(self.folder / "run.json"))

    def open(self, given: dict[str, Any]) -> _Settings:
        """The stored settings; what is given again must agree with them."""
        path = self.folder / "run.json"
        if not path.is_file():
            raise ValueError(f"resume={self.folder} holds no stored run: start one with path=")
        self._held.enter_context(locked(path))
        with reading(path, "the settings of a stored run") as file:
            record = json.load(file, object_hook=_from_json)
            if record["format"] != _FORMAT:
                raise ValueError(f"it has format {record['format']}, this version reads {_FORMAT}: start a new run")
            if missing := {each.name for each in fields(_Settings)} - set(record):
                raise ValueError(f"it has no {', '.join(sorted(missing))}")
            settings = _new_settings(record)
            prior_of(record["prior"])
        for name, value in given.items():
            if _as_json(value) != _as_json(record[name]):
                raise ValueError(f"{name}={value!r} differs from the stored run's {record[name]!r}: leave it out")
        self._find_rounds()
        return settings

    def _find_rounds(self) -> None:
        for left in self.folder.glob("round-*.part"):  # by a process that was killed
            left.unlink(missing_ok=True)
        self._paths = sorted(self.folder.glob("round-*.npz"), key=lambda path: (len(path.name), path.name))
        for number, path in enumerate(self._paths):
            if path.name != (expected := _round_name(number)):
                raise ValueError(
                    f"resume={self.folder} has {path.name} and no {expected}: put that back, or delete all later ones "
                    "to go on from there"
                )

    def rounds(self, draw: dict[str, Any], first: list[Array]) -> tuple[list[dict[str, Array]], list[Array], int, int]:
        """Draws of all stored rounds, the states after the last, and the steps of warm-up and of sampling done.

        `draw` has the shapes and types of one draw of a chain, `first` the states before the first round.
        """
        kept, leaves, warmed, count = [], first, 0, 0
        for number, path in enumerate(self._paths):
            with reading(path, f"round {number} of a stored run") as file:
                stored, before = Archive(file), (warmed, count)
                warmed, count = (int(stored.array(name, np.int64, ())) for name in ("warmed", "count"))
                warming, drawn = warmed - before[0], count - before[1]
                if min(warming, drawn) != 0 or warming == drawn:
                    raise ValueError(f"{warmed} steps of warm-up and {count} draws cannot follow {before}")
                if drawn:
                    size = len(first[0]), drawn
                    kept.append({name: _draws(stored, name, size, like) for name, like in draw.items()})
                if path == self._paths[-1]:
                    if f"state.{len(first)}" in stored:
                        raise ValueError("its state is of another version of the kernel: start a new run")
                    leaves = [
                        stored.array(f"state.{i}", leaf.dtype, leaf.shape, finite=False) for i, leaf in enumerate(first)
                    ]
        return kept, leaves, warmed, count

    def append(self, draws: dict[str, Array], leaves: list[Array], warmed: int, count: int) -> None:
        arrays = {f"draws.{name}": value for name, value in draws.items()}
        arrays |= {f"state.{i}": leaf for i, leaf in enumerate(leaves)}
        arrays |= {"warmed": np.array(warmed), "count": np.array(count)}
        path = self.folder / _round_name(len(self._paths))
        with written_beside(path, new=True) as part, open(part, "wb") as file:
            np.savez(file, **arrays)  # type: ignore[arg-type]
        self._paths.append(path)


def _round_name(number: int) -> str:
    return f"round-{number:06d}.npz"


def _draws(stored: Archive, name: str, size: tuple[int, int], like: Any) -> Array:
    """Statistics may be NaN where there is nothing to tell."""
    finite = name in ("alpha", "noise_variance")
    return stored.array(f"draws.{name}", like.dtype, (*size, *like.shape), finite=finite)


def _as_json(value: Any) -> Any:
    """Options as JSON has them, with a mark on tuples, which NUTS tells from lists."""
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, tuple):
        return {"tuple": [_as_json(each) for each in value]}
    if isinstance(value, list):
        return [_as_json(each) for each in value]
    if isinstance(value, dict) and all(isinstance(key, str) for key in value):
        return {key: _as_json(each) for key, each in value.items()}
    if not isinstance(value, str | int | float | None):
        raise ValueError(
            f"kernel_options: {value!r} cannot be stored, only numbers, strings, lists and tuples: leave out path="
        )
    return value


def _from_json(record: dict[str, Any]) -> Any:
    return tuple(record["tuple"]) if record.keys() == {"tuple"} else record


def _to_arviz(fit: MapFit, prior: Prior, problem: Problem, settings: _Settings, raw: dict[str, Array]) -> Any:
    """Draws with all that follows from them, as an ArviZ object."""
    sampled, m = raw.pop("alpha"), problem.design.n_columns
    chains, draws, _ = sampled.shape
    fixed = _fixed_in_search_units(problem, settings.fixed_alpha)
    alpha = np.empty((chains, draws, m)) if fixed is None else np.tile(fixed, (chains, draws, 1))
    free = free_columns(fixed, m)
    alpha[..., free] = sampled
    noise = raw.pop("noise_variance", np.full((chains, draws), problem.noise.fixed))
    known = describe(problem, alpha.reshape(-1, m), noise.reshape(-1), _weight_keys(settings.seed, chains, draws))
    known = {name: value.reshape(chains, draws, *value.shape[1:]) for name, value in known.items()}
    names = {"accept_prob": "acceptance_rate", "num_steps": "n_steps"}  # ArviZ's for NumPyro's
    stats = {names.get(name, name): value for name, value in raw.items()}
    stats["log_likelihood"] = known.pop("log_likelihood")
    # Per d log(alpha) d log(sigma^2), the coordinates that are sampled
    known["log_prior"] = np.where(np.isin(np.arange(m), free), known["log_prior"], 0.0)
    stats["lp"] = stats["log_likelihood"] + known["log_prior"].sum(-1) + problem.noise.log_density(noise)
    attrs = {
        "kernel": settings.kernel,
        "num_warmup": settings.num_warmup,
        "thin": settings.thin,
        "seed": settings.seed,
        "start": settings.start,
        "tempering": str(settings.tempering),
        "prior": repr(prior),
    }
    return draws_to_arviz(fit, {"alpha": alpha, "noise_variance": noise, **known}, stats, attrs, settings.seed)


def _weight_keys(seed: int, chains: int, draws: int) -> Array:
    """One key for each draw of the weights, the same however long the run is."""
    base = jax.random.fold_in(jax.random.PRNGKey(seed), 2**31)
    by_chain = jax.vmap(jax.random.fold_in, (None, 0))(base, jnp.arange(chains))
    keys = jax.vmap(lambda key: jax.vmap(jax.random.fold_in, (None, 0))(key, jnp.arange(draws)))(by_chain)
    return np.asarray(keys).reshape(chains * draws, -1)


def _complaints(fit: MapFit, problem: Problem, settings: _Settings, data: Any) -> Iterator[str]:
    """What is wrong with a run, and what to try."""
    posterior = arviz_io.group(data, "posterior")
    stats = arviz_io.group(data, "sample_stats")
    gamma = posterior["gamma"].mean(("chain", "draw")).values
    watched = np.argsort(-gamma)[:1000]  # the rest of a large dictionary hardly matters, and would take minutes
    values = [np.log(posterior["alpha"].values[..., watched]), posterior["degrees_of_freedom"].values[..., None]]
    if not problem.noise.fixed:
        values.append(np.log(posterior["noise_variance"].values)[..., None])
    labels = [f"alpha of {name}" for name in posterior["basis"].values[watched]]
    labels += ["degrees_of_freedom", "noise_variance"]
    rhat, ess = arviz_io.rhat_and_ess(np.concatenate(values, -1))
    worst, least = int(np.argmax(rhat)), int(np.argmin(ess))
    remedy = 'try kernel="exchange", which moves between local maxima, or more draws'
    if settings.kernel == "exchange":
        remedy = "take more draws, or a ladder such as tempering=8"
    if rhat[worst] > 1.01 or ess[least] < 400:
        yield (
            f"sample: the chains have not mixed: R-hat {rhat[worst]:.3f} for {labels[worst]} (should be below 1.01), "
            f"smallest effective sample size {ess[least]:.0f} ({labels[least]}; should exceed 400): {remedy}"
        )
    divergences = int(stats["diverging"].values.sum()) if "diverging" in stats else 0
    if divergences:
        yield (
            f"sample: {divergences} divergent transitions, where the posterior is too steep for NUTS: {remedy}, or "
            'kernel_options={"target_accept_prob": 0.95}'
        )
    mean = float(posterior["degrees_of_freedom"].mean())
    if not problem.noise.fixed and overfits(mean, len(fit.t)):
        yield (
            f"sample: the posterior overfits: {mean:.3g} degrees of freedom on average for {len(fit.t)} observations. "
            "No column can be pruned if `high` is too small: raise it, give noise_variance, or take fewer columns"
        )
    if fit.degrees_of_freedom >= 1 and mean < 0.5 * fit.degrees_of_freedom:
        high = np.max(problem.prior.high)
        yield (
            f"sample: the posterior has left the components of the MAP: {mean:.3g} degrees of freedom on average where "
            f"the MAP has {fit.degrees_of_freedom:.3g}. The prior's mass near `high` (here {high:.1g} relative to "
            "|column|^2 / spread(t)^2) outweighs the likelihood: try a smaller `high`, or measure='log'"
        )
