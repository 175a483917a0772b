"""The local maxima of the type-II posterior: where searches from many starts end, and how much mass each end holds.

An overcomplete dictionary has many of them, and `fit_map` returns one. `explore_maxima` runs plain local searches from
the empty model, random columns, random subsets, the full model and perturbed solutions, in random order, with and
without exchange moves. It tests every end by its gradient, its Hessian and all single changes, merges equal ends, and
returns a `MaximaAtlas`: how high, how often found, how far apart, how deep the valley between two, and
(`MaximaAtlas.mass`) which basin each draw of a sampler belongs to.

Heights are values of the *objective*, the function that the search climbs and whose maxima these are,

    log p(t | alpha, sigma^2) + sum_m log p(alpha_m | sigma^2) + log p(sigma^2),

without the normalisers of the priors (SE07 drops them too). `log_posterior` has them; under ``measure="log"`` they
depend on sigma^2, so that it can order the maxima differently.

Two ends are one maximum if they give t the same covariance C: columns that are identical up to sign and length count as
one, with prior variance sum 1 / alpha, because the ridge 1/alpha_i + 1/alpha_j = constant of T01 section 2.2 is one
solution.
"""

from __future__ import annotations

import json
import pickle
import warnings
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import BrokenExecutor, Executor, Future, ProcessPoolExecutor, as_completed
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from .canvas import DATA, ORANGE, SERIES, add_legend, new_axes
from .checks import choice, file_path, flag, instance, number, positive, seed_number, whole_number
from .dictionary import Dictionary, parts_of
from .map_fit import (
    ConvergenceWarning,
    MapFit,
    draws_from_arviz,
    draws_to_arviz,
    fit_arrays,
    fit_of_arrays,
    fit_silently,
    solution_fields,
    standardise,
    to_user_units,
)
from .priors import Prior
from .problem import Problem, Progress, Solution, Start
from .search import Search
from .storage import Archive, reading, written_beside

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Array = np.ndarray

KINDS = ("empty", "column", "subset", "full", "perturbed")

_IDENTICAL = 1e-10  # 1 - |correlation| below which two columns are one
_SLOPE, _CURVATURE, _PROMISE = 1e-3, 1e-6, 1e-5  # what a maximum may show of gradient, curvature and gain: rounding
_ATTEMPTS = 5  # how often a task may lose its worker
_LOST = {"BrokenExecutor", "CancelledError", "KilledWorker", "CommClosedError"}  # by name: Dask may not be there
_FORMAT = 1


class Ascent(Search):
    """A plain local search from one start, which counts the saddles it leaves and can judge the point it stands on."""

    def __init__(
        self,
        problem: Problem,
        selection: str = "greedy",
        exchange: bool = False,
        seed: int = 0,
        max_steps: int | None = None,
    ):
        super().__init__(problem, selection, exchange, seed, max_steps, Progress(False), 10.0)
        self.saddles = 0

    def stand(self, start: Start) -> Ascent:
        """Move to a point without a step from there."""
        index, alpha, beta = start
        self.noise_free = not self.noise.fixed
        self.model.beta = float(beta)
        self.model.include(index, alpha)
        self.model.refactor()
        return self

    def value(self, alpha: Array, beta: float) -> float:
        """The objective at other precisions of the columns that are active."""
        return self._value(alpha, beta, self.model.factorise(alpha, beta).log_evidence)

    def judge(self) -> tuple[float, float, float]:
        """Largest slope and curvature in (log alpha, log noise), and the most that a single change would gain."""
        gradient, hessian = self._free_derivatives()
        slope = float(np.abs(gradient).max(initial=0.0))
        curvature = float(np.linalg.eigvalsh(hessian)[-1]) if len(hessian) else -np.inf
        changes = self._changes()[1] if self.model.size else np.zeros(1)
        return slope, curvature, max(0.0, float(changes.max()), self._best_addition())

    def _best_addition(self) -> float:
        gains = self._addition_gains()
        for i in np.flatnonzero((gains > _PROMISE) & (1e-4 * self.model.beta > self.model.S)):
            self.model.scrutinise(int(i))  # what a nearly dependent column promises may be rounding
        return float(self._addition_gains().max(initial=0.0))

    def _free_derivatives(self) -> tuple[Array, Array]:
        """Gradient and Hessian over the coordinates that no bound and no known noise holds."""
        if not self.model.condensed:
            self.model.condense()
        gradient, hessian = self._gradient()
        free = self._free()
        return gradient[free], hessian[np.ix_(free, free)]

    def _free(self) -> Array:
        alpha, prior = self.model.alpha, self.prior.at(self.model.index)
        inside = (alpha > prior.low * (1 + 1e-9)) & (alpha < prior.high * (1 - 1e-9))
        return np.flatnonzero(np.append(inside, self.noise_free))

    def _leave_saddle(self) -> bool:
        """Step along the direction of largest positive curvature, either way; the climb that follows does the rest."""
        free = self._free()
        _, hessian = self._free_derivatives()
        if not len(free):
            return False
        values, vectors = np.linalg.eigh(hessian)
        before = self._objective()
        for sign in (1.0, -1.0) if values[-1] > _CURVATURE else ():
            step = np.zeros(self.model.size + 1)
            step[free] = sign * vectors[:, -1]
            if self._line_search(step) > 0 and self._objective() > before + _PROMISE:
                self.model.refresh()
                self.saddles += 1
                return True
        return False


@dataclass(frozen=True)
class End:
    """Where one search ended, in units of the search, and how it was started."""

    solution: Solution
    kind: str
    exchange: bool
    saddles: int
    slope: float
    curvature: float
    gain: float

    @property
    def start(self) -> Start:
        """The point itself, as a start for another search."""
        return self.solution.index, self.solution.alpha, self.solution.beta

    @property
    def is_maximum(self) -> bool:
        """Whether it converged, is stationary, has no direction of positive curvature, and no single change gains."""
        still = self.slope <= _SLOPE and self.curvature <= _CURVATURE and self.gain <= _PROMISE
        return self.solution.converged and still


def _climb_from(problem: Problem, start: Start | None, kind: str, ascent: Ascent) -> End:
    solution = ascent.run(start)
    return _judged(problem, solution, kind, ascent.exchange, ascent.saddles)


def _judged(problem: Problem, solution: Solution, kind: str, exchange: bool, saddles: int) -> End:
    found = Ascent(problem).stand((solution.index, solution.alpha, solution.beta)).judge()
    return End(solution, kind, exchange, saddles, *found)


@dataclass(frozen=True)
class Setup:
    """All that a worker needs to know, and can be sent: data and choices, but nothing that is computed from them."""

    x: Array | None
    t: Array
    dictionary: Dictionary
    prior: Prior
    noise_variance: float | None
    noise_prior: tuple[float, float]
    center: bool
    space: str
    seed: int
    starts: tuple[str, ...]
    selection: str
    exchange: bool | None
    max_steps: int | None
    reference: Start

    def problem(self) -> Problem:
        """The standardised problem."""
        design = self.dictionary.bind(self.x)
        return standardise(design, self.t, self.prior, self.noise_variance, self.noise_prior, self.center, self.space)


def _restart(setup: Setup, problem: Problem, k: int) -> End:
    """Restart k: its random numbers depend on (seed, k) alone."""
    rng = np.random.default_rng([setup.seed, k])
    kind = setup.starts[k % len(setup.starts)]
    exchange = k // len(setup.starts) % 2 == 0 if setup.exchange is None else setup.exchange
    ascent = Ascent(problem, setup.selection, exchange, int(rng.integers(2**31)), setup.max_steps)
    return _climb_from(problem, _random_start(problem, kind, setup.reference, rng), kind, ascent)


def _ascend(setup: Setup, problem: Problem, start: Start) -> End:
    """A deterministic ascent, without exchange moves unless they are asked for: into whose basin a point falls."""
    return _climb_from(
        problem, start, "given", Ascent(problem, exchange=bool(setup.exchange), max_steps=setup.max_steps)
    )


def _restart_or_ascend(setup: Setup, problem: Problem, item: int | Start) -> End:
    return _ascend(setup, problem, item) if isinstance(item, tuple) else _restart(setup, problem, item)


def _random_start(problem: Problem, kind: str, reference: Start, rng: np.random.Generator) -> Start | None:
    """Columns, precisions around those that would share the variance of t equally, and a noise of 0.5 to 50 %.

    None is the empty model, from which the search holds the noise at 10 % until no more columns join (SE07).
    """
    if kind == "empty":
        return None
    usable = np.flatnonzero(problem.z)
    beta = 1.0 / problem.noise.fixed if problem.noise.fixed else float(np.exp(rng.uniform(np.log(2), np.log(200))))
    if kind == "perturbed":
        return _perturbed(problem, usable, reference, rng)
    most = max(2, min(len(problem.t), len(usable)) // 4)
    size = {"column": 1, "subset": int(rng.integers(2, most + 1)), "full": len(usable)}[kind]
    index = np.sort(rng.choice(usable, min(size, len(usable)), replace=False))
    return index, len(index) / len(problem.t) * np.exp(rng.standard_normal(len(index))), beta


def _perturbed(problem: Problem, usable: Array, reference: Start, rng: np.random.Generator) -> Start:
    """The reference with some columns lost, as many others at random in place of half of them, and all shaken."""
    index, alpha, beta = reference
    stay = rng.random(len(index)) >= rng.uniform(0.02, 0.5)
    others = np.setdiff1d(usable, index)
    new = rng.choice(others, min(len(others), int((~stay).sum() + 1) // 2), replace=False)
    index = np.concatenate([index[stay], new])
    typical = np.exp(np.log(alpha).mean()) if len(alpha) else 1.0
    alpha = np.concatenate([alpha[stay], np.full(len(new), typical)]) * np.exp(rng.standard_normal(len(index)))
    if not problem.noise.fixed:
        beta = min(beta, 1e4) * float(np.exp(0.5 * rng.standard_normal()))
    order = np.argsort(index)
    return index[order], alpha[order], beta


@lru_cache(maxsize=2)
def _unpack(parcel: bytes) -> tuple[Setup, Problem]:
    """A worker computes the columns once, not for every task."""
    setup = pickle.loads(parcel)
    return setup, setup.problem()


def _work(task: Callable[[Setup, Problem, Any], End], parcel: bytes, item: Any, attempt: int) -> End:
    """What a worker does. `attempt` is there to differ: Dask takes equal calls for one, and remembers its failure."""
    return task(*_unpack(parcel), item)


def _run_all(
    task: Callable[[Setup, Problem, Any], End],
    setup: Setup,
    items: Sequence[Any],
    executor: Executor | None,
    progress: bool,
    results: dict[int, End],
) -> list[End]:
    """Results in the order of items, wherever they were computed. A task whose worker died is run again.

    They are put into `results` as they come, by the number of their item, and stay there if an interrupt ends the work.
    """
    with _Counter(len(items), progress) as counter:
        if executor is None:
            problem = setup.problem()
            for k, item in enumerate(items):
                results[k] = counter.tick(task(setup, problem, item))
            return list(results.values())
        parcel = _pack(setup)
        attempts: Counter[int] = Counter()
        own: Executor | None = None  # in place of a pool that broke
        try:
            while missing := [k for k in range(len(items)) if k not in results]:
                calls = {k: (task, parcel, items[k], attempts[k]) for k in missing}
                lost = _run_round(calls, own or executor, results, counter)
                attempts.update(lost)
                if lost and max(attempts.values()) >= _ATTEMPTS:
                    raise RuntimeError(
                        f"the workers of search {attempts.most_common(1)[0][0]} died {_ATTEMPTS} times: "
                        "look at their memory, or use executor=None"
                    )
                if lost and isinstance(own or executor, ProcessPoolExecutor):
                    own = _like(cast(ProcessPoolExecutor, own or executor))
        finally:
            if own is not None:
                own.shutdown(cancel_futures=True)
        return [results[k] for k in range(len(items))]


def _run_round(
    calls: dict[int, tuple[Any, ...]], executor: Executor, results: dict[int, End], counter: _Counter
) -> list[int]:
    """Submit what is missing, collect what arrives, and return what was lost."""
    futures: dict[Future[End], int] = {}
    lost = []
    try:
        for k, call in calls.items():
            try:
                futures[executor.submit(_work, *call)] = k
            except BrokenExecutor:
                lost.append(k)
        for future in as_completed(futures):
            try:
                results[futures[future]] = counter.tick(future.result())
            except BaseException as error:  # asyncio's CancelledError is no Exception
                if not _was_lost(error):
                    raise
                lost.append(futures[future])
    finally:
        for future, k in futures.items():
            # After an interrupt there may be some that have ended and were not collected
            if not future.cancel() and future.done() and future.exception() is None:
                results[k] = future.result()
    return lost


def _was_lost(error: BaseException) -> bool:
    return any(kind.__name__ in _LOST for kind in type(error).__mro__)


def _like(pool: ProcessPoolExecutor) -> ProcessPoolExecutor:
    """A new pool like one that broke and will take no more work."""
    return ProcessPoolExecutor(
        max_workers=getattr(pool, "_max_workers", None),
        mp_context=getattr(pool, "_mp_context", None),
        initializer=getattr(pool, "_initializer", None),
        initargs=getattr(pool, "_initargs", ()),
    )


def _pack(setup: Setup) -> bytes:
    try:
        return pickle.dumps(setup)
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        raise ValueError(
            f"the dictionary cannot be sent to workers ({error}): give Custom a function from the top level of a "
            "module, or use executor=None"
        ) from error


class _Counter:
    """A tqdm bar on a terminal; imports tqdm only if one is wanted."""

    def __init__(self, total: int, wanted: bool):
        self._total, self._wanted, self._bar = total, wanted, cast(Any, None)

    def __enter__(self) -> _Counter:
        if self._wanted:
            from tqdm import tqdm

            self._bar = tqdm(total=self._total, desc="searches", unit="", disable=None, leave=False)
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.close()

    def tick(self, end: End) -> End:
        if self._bar is not None:
            self._bar.update()
        return end


def _representatives(problem: Problem, ends: Sequence[Start]) -> dict[int, int]:
    """For each column that any end keeps, the first one that is identical to it up to sign and length."""
    used = np.unique(np.concatenate([end[0] for end in ends])) if ends else np.empty(0, dtype=np.intp)
    if not len(used):
        return {}
    rows = problem.columns(used)
    same = np.abs(rows @ rows.T) > 1.0 - _IDENTICAL
    return {int(i): int(used[k]) for i, k in zip(used, same.argmax(axis=1), strict=True)}


def _signature(end: Start, representative: dict[int, int]) -> tuple[Array, Array]:
    """What C is made of: the distinct columns, and the logarithms of their prior variances and of the noise's."""
    index, alpha, beta = end
    distinct, place = np.unique([representative[int(i)] for i in index], return_inverse=True)
    variance = np.bincount(place, weights=1.0 / alpha, minlength=len(distinct)) if len(index) else np.empty(0)
    return distinct, -np.append(np.log(variance), -np.log(beta))


def _merge(problem: Problem, ends: Sequence[Start], tolerance: float) -> Array:
    """A number for each end, equal where they are the same maximum, counted in the order of first appearance."""
    representative = _representatives(problem, ends)
    groups: dict[bytes, list[tuple[Array, int]]] = {}
    labels = np.empty(len(ends), dtype=np.intp)
    count = 0
    for k, end in enumerate(ends):
        columns, logs = _signature(end, representative)
        known = groups.setdefault(np.asarray(columns, dtype=np.int64).tobytes(), [])
        label = next((number for other, number in known if np.abs(other - logs).max() <= tolerance), count)
        if label == count:
            known.append((logs, label))
            count += 1
        labels[k] = label
    return labels


@dataclass(frozen=True)
class Maximum:
    """One local maximum.

    Attributes
    ----------
    fit : MapFit
        The solution itself.
    found : int
        How many restarts ended here.
    first : int
        The first of them.
    objective : float
        Its height: what the search maximises, in the user's units.
    slope, curvature, gain : float
        Largest entry of the gradient, largest eigenvalue of the Hessian in (log alpha, log noise variance), and the
        most that a single addition, deletion or re-estimation would gain: at a maximum zero, not positive, and zero.
    """

    fit: MapFit
    found: int
    first: int
    objective: float
    slope: float
    curvature: float
    gain: float

    @property
    def log_posterior(self) -> float:
        """As `MapFit.log_posterior`: with the normalisers of the priors."""
        return self.fit.log_posterior

    @property
    def noise_variance(self) -> float:
        """In the user's units."""
        return self.fit.noise_variance

    @property
    def size(self) -> int:
        """How many columns are kept, S."""
        return len(self.fit.active)

    @property
    def curve(self) -> Array:
        """Posterior mean of the function at the training inputs."""
        return self.fit.curve()


@dataclass(frozen=True)
class Line:
    """The objective along the straight line in (log alpha, log noise variance) between two maxima.

    Attributes
    ----------
    position, objective : arrays
        From 0 at the first to 1 at the second, and the height there.
    barrier : float
        How far the line dips below the lower of its two ends; zero if it does not.
    """

    position: Array
    objective: Array

    @property
    def barrier(self) -> float:
        """How far the line dips below the lower of its two ends, in nats."""
        return float(max(0.0, min(self.objective[0], self.objective[-1]) - self.objective.min()))


@dataclass(frozen=True, repr=False)
class BasinMass:
    """Which maximum's basin the draws of a sampler belong to.

    Attributes
    ----------
    method : str
        "ascend": the maximum that a local search from the draw ends at; "nearest": the one whose curve is nearest.
    mass : array of shape (K,)
        Share of the draws per maximum, in the atlas's order.
    elsewhere : float
        Share that belongs to none of them.
    per_chain : array of shape (chains, K)
        The same for each chain.
    basin : integer array of shape (chains, draws)
        The maximum of each draw that was looked at; -1 is elsewhere.
    draws : integer array of shape (draws,)
        Which draws of each chain were looked at.
    """

    method: str
    basin: Array
    draws: Array
    count: int

    @property
    def per_chain(self) -> Array:
        """Share of each chain's draws per maximum, shape (chains, K)."""
        return np.stack([(self.basin == k).mean(axis=1) for k in range(self.count)], axis=1)

    @property
    def mass(self) -> Array:
        """Share of all draws per maximum, shape (K,)."""
        return self.per_chain.mean(axis=0)

    @property
    def elsewhere(self) -> float:
        """Share of the draws that belong to none of the maxima."""
        return float((self.basin < 0).mean())

    @property
    def visited(self) -> Array:
        """How many basins of the atlas each chain was seen in, shape (chains,)."""
        return np.array([len(np.unique(chain[chain >= 0])) for chain in self.basin])

    @property
    def switches(self) -> Array:
        """How often each chain was in another basin than at the draw before, shape (chains,)."""
        return (np.diff(self.basin, axis=1) != 0).sum(axis=1)

    def __repr__(self) -> str:
        order = np.argsort(-self.mass, kind="stable")[:6]
        order = order[self.mass[order] > 0]
        chains, draws = self.basin.shape
        head = "".join(f"{f'max {k}':>9}" for k in order) + f"{'elsewhere':>11}{'visited':>9}{'switches':>10}"
        lines = [f"BasinMass by {self.method!r}: {chains} chains of {draws} draws", f"  {'chain':<7}{head}"]
        rows = [(str(c), self.per_chain[c], (self.basin[c] < 0).mean()) for c in range(chains)]
        for (name, mass, rest), seen, moved in zip(rows, self.visited, self.switches, strict=True):
            cells = "".join(f"{mass[k]:>9.2f}" for k in order)
            lines.append(f"  {name:<7}{cells}{rest:>11.2f}{seen:>9d}{moved:>10d}")
        cells = "".join(f"{self.mass[k]:>9.2f}" for k in order)
        lines.append(f"  {'all':<7}{cells}{self.elsewhere:>11.2f}")
        return "\n".join(lines)


_RECORDS = {
    "kind": str,
    "exchange": bool,
    "objective": float,
    "size": np.int64,
    "noise_variance": float,
    "saddles": np.int64,
    "converged": bool,
    "maximum": np.intp,
}


@dataclass(frozen=True, repr=False)
class MaximaAtlas:
    """Local maxima of the type-II posterior, the highest first.

    Attributes
    ----------
    maxima : tuple of Maximum
    restarts : dict of arrays
        One entry per restart: the `kind` of its start, whether it used `exchange` moves, the `objective` at its end,
        its `size`, `noise_variance`, how many `saddles` it left, whether it `converged`, and the place of its `maximum`
        (-1 if it did not end at one). The first is `fit_map`'s greedy search; those from `given` fits come next.
    reference : MapFit
        The greedy fit.
    settings : dict
        What `explore_maxima` was called with.
    """

    maxima: tuple[Maximum, ...]
    restarts: dict[str, Array]
    reference: MapFit
    settings: dict[str, Any]

    def __len__(self) -> int:
        return len(self.maxima)

    def __getitem__(self, k: int) -> Maximum:
        return self.maxima[k]

    @property
    def best(self) -> Maximum:
        """The highest maximum."""
        if not self.maxima:
            raise ValueError(f"the atlas is empty, no restart ended at a maximum: {self.reference.reason}")
        return self.maxima[0]

    @property
    def saddles(self) -> int:
        """How many saddles the searches left along a direction of positive curvature."""
        return int(self.restarts["saddles"].sum())

    @property
    def objective(self) -> Array:
        """Heights of the maxima, shape (K,)."""
        return np.array([maximum.objective for maximum in self.maxima])

    @property
    def found(self) -> Array:
        """How often each was reached, shape (K,)."""
        return np.array([maximum.found for maximum in self.maxima], dtype=np.intp)

    @cached_property
    def curves(self) -> Array:
        """Posterior means of the function at the training inputs, shape (K, N)."""
        n = len(self.reference.t)
        return np.stack([maximum.curve for maximum in self.maxima]) if self.maxima else np.empty((0, n))

    @cached_property
    def _problem(self) -> Problem:
        return self._setup.problem()

    @cached_property
    def _setup(self) -> Setup:
        return _setup_of(self.reference, self.settings)

    def distances(self, by: str = "curve") -> Array:
        """Distances between the maxima, shape (K, K).

        Parameters
        ----------
        by : {"curve", "support"}
            "curve": root mean square difference of the predictive means, in units of the noise sd (root of the mean of
            the two variances). "support": one minus the mean, over the columns of both, of the largest |correlation| of
            each with a column of the other: 0 for the same columns, near 0 for neighbours, 1 for orthogonal ones.
        """
        choice("by", by, ("curve", "support"))
        if by == "curve":
            difference = self.curves[:, None] - self.curves
            noise = np.array([maximum.noise_variance for maximum in self.maxima])
            return np.sqrt((difference**2).mean(axis=-1) / (0.5 * (noise[:, None] + noise)))
        rows = [self._problem.columns(maximum.fit.active) for maximum in self.maxima]
        return np.array([[_support_distance(a, b) for b in rows] for a in rows]).reshape(len(rows), len(rows))

    def clusters(self, threshold: float = 0.3, by: str = "curve") -> Array:
        """Number of the cluster of each maximum, by average linkage; 0 is that of the best.

        Parameters
        ----------
        threshold : float
            Mean distance up to which two clusters are joined, in the units of `distances`.
        by : {"curve", "support"}
        """
        positive("threshold", threshold)
        distance = self.distances(by)
        if len(distance) < 2:
            return np.zeros(len(distance), dtype=np.intp)
        from scipy.cluster.hierarchy import fcluster, linkage

        condensed = distance[np.triu_indices(len(distance), 1)]
        labels = fcluster(linkage(condensed, "average"), threshold, criterion="distance")
        _, first, place = np.unique(labels, return_index=True, return_inverse=True)
        return np.argsort(np.argsort(first))[place]

    def line(self, first: int, second: int, points: int = 65, absent: float | None = None) -> Line:
        """The objective on the straight line in (log alpha, log noise variance) between two maxima.

        Parameters
        ----------
        first, second : int
            Places of the two in the atlas.
        points : int
            How many points of the line are computed, its ends included.
        absent : float, optional
            The line runs over the columns that either keeps. One that is pruned stands at alpha = high; then a long
            stretch of the line has neither what leaves nor what joins, and the dip grows with `high`. With `absent` it
            stands where it could hold so many degrees of freedom alone, e.g. 0.01; then the ends lie a little lower
            than the maxima.
        """
        for name, end in (("first", first), ("second", second)):
            whole_number(name, end, 0, most=len(self) - 1)
        whole_number("points", points, 2)
        if absent is not None:
            number("absent", absent, lambda x: 0 < x < 1, "between 0 and 1, or None")
        problem = self._problem
        ends = [_start_of(problem, self.maxima[k].fit) for k in (first, second)]
        index = np.union1d(ends[0][0], ends[1][0])
        logs = np.stack([_full_logs(problem, end, index, absent) for end in ends])
        place = Ascent(problem).stand((index, np.exp(logs[0, :-1]), np.exp(logs[0, -1])))
        position = np.linspace(0.0, 1.0, points)
        along = np.exp(np.column_stack([1.0 - position, position]) @ logs)
        return Line(position, np.array([place.value(row[:-1], row[-1]) for row in along]) - problem.shift)

    def barriers(self, count: int = 10, absent: float | None = None) -> Array:
        """`Line.barrier` between all pairs of the best few maxima, in nats."""
        k = min(whole_number("count", count, 1), len(self))
        table = np.zeros((k, k))
        for i, j in zip(*np.triu_indices(k, 1), strict=True):
            table[i, j] = table[j, i] = self.line(int(i), int(j), absent=absent).barrier
        return table

    def mass(
        self,
        post: Any,
        method: str = "ascend",
        draws: int = 400,
        within: float = np.inf,
        absent: float = 0.01,
        exchange: bool | None = None,
        executor: Executor | None = None,
        progress: bool = True,
    ) -> BasinMass:
        """Which maximum's basin each draw of a sampler belongs to.

        Parameters
        ----------
        post : ArviZ object
            What `sample` returned for the same data and dictionary.
        method : {"ascend", "nearest"}
            "ascend": a local search from the draw's alpha and noise; it must end at a maximum of the atlas, else the
            draw is elsewhere. "nearest": the maximum whose curve is nearest, in noise sds, to the
            function's mean given the draw's alpha and noise.
        draws : int
            At most so many draws are looked at, in all, evenly over the chains.
        within : float
            "nearest" only: a draw that is farther than this from all maxima is elsewhere.
        absent : float
            A column counts as pruned in a draw if it could hold no more than so many degrees of freedom even alone,
            beta |phi|^2 / (alpha + beta |phi|^2); of a sampled posterior no column is pruned exactly.
        exchange : bool, optional
            "ascend" only: whether the search may use exchange moves; default only if all of the atlas's did. Basins are
            then wider and maxima fewer, which tells more where a dictionary has more maxima than restarts can find.
        executor : concurrent.futures.Executor, optional
            Where to run the searches.
        progress : bool
            Show a progress bar on a terminal.

        Returns
        -------
        BasinMass
        """
        choice("method", method, ("ascend", "nearest"))
        whole_number("draws", draws, 1)
        number("within", within, lambda x: x > 0, "a positive number")
        number("absent", absent, lambda x: 0 < x < 1, "between 0 and 1")
        exchange = flag("exchange", exchange, none="to do as the atlas did")
        flag("progress", progress)
        _check_executor(executor)
        problem, best = self._problem, self.best  # an empty atlas has no basins
        alpha, noise = draws_from_arviz(best.fit, post)
        chosen = np.unique(
            np.linspace(0, alpha.shape[1] - 1, max(1, min(alpha.shape[1], draws // len(alpha)))).astype(int)
        )
        points = [
            _start_of_draw(problem, a, v, absent)
            for a, v in zip(alpha[:, chosen].reshape(-1, alpha.shape[-1]), noise[:, chosen].ravel(), strict=True)
        ]
        if method == "nearest":
            basin = self._nearest(points, within)
        else:
            setup = self._setup if exchange is None else replace(self._setup, exchange=exchange)
            basin = self._match(_run_all(_ascend, setup, points, executor, progress, {}))
        return BasinMass(method, basin.reshape(len(alpha), len(chosen)), chosen, len(self))

    def _match(self, ends: Sequence[End]) -> Array:
        """The maximum that each end is; -1 where none."""
        known = [_start_of(self._problem, maximum.fit) for maximum in self.maxima]
        labels = _merge(self._problem, [*known, *(end.start for end in ends)], self.settings["tolerance"])
        place = {int(label): k for k, label in reversed(list(enumerate(labels[: len(known)])))}
        return np.array([place.get(int(label), -1) for label in labels[len(known) :]], dtype=np.intp)

    def _nearest(self, points: Sequence[Start], within: float) -> Array:
        problem, nearest = self._problem, []
        for point in points:
            model = Ascent(problem).stand(point).model
            mean = model.mu @ problem.columns(model.index) * problem.scale + problem.offset
            distance = np.sqrt(((self.curves - mean) ** 2).mean(axis=1) * model.beta) / problem.scale
            nearest.append(int(distance.argmin()) if distance.min() <= within else -1)
        return np.array(nearest, dtype=np.intp)

    def to_dataframe(self) -> Any:
        """One row per maximum, as a pandas DataFrame."""
        import pandas

        total = max(1, len(self.restarts["kind"]))
        rows = [
            {
                "found": maximum.found,
                "share": maximum.found / total,
                "objective": maximum.objective,
                "log_posterior": maximum.log_posterior,
                "log_evidence": maximum.fit.log_evidence,
                "noise_variance": maximum.noise_variance,
                "columns": maximum.size,
                "degrees_of_freedom": maximum.fit.degrees_of_freedom,
                "curvature": maximum.curvature,
                "gain": maximum.gain,
                "first_restart": maximum.first,
                "cluster": cluster,
            }
            for maximum, cluster in zip(self.maxima, self.clusters(), strict=True)
        ]
        return pandas.DataFrame(rows, index=pandas.RangeIndex(len(rows), name="maximum"))

    def to_arviz(self) -> Any:
        """The maxima as an ArviZ object with the variables of `sample`: one chain, one "draw" per maximum.

        The weights are posterior means, a pruned column has its precision at `high`, and `sample_stats` says how often
        each was found: these draws are no sample of anything.
        """
        problem, k, m = self._problem, len(self), self.best.fit.n_columns
        unit = problem.norms / problem.scale
        alpha = np.array(np.broadcast_to(problem.prior.high, (k, m)))
        weights, gamma = np.zeros((k, m)), np.zeros((k, m))
        for row, maximum in enumerate(self.maxima):
            fit, kept = maximum.fit, maximum.fit.active
            alpha[row, kept] = fit.alpha / unit[kept] ** 2
            weights[row, kept], gamma[row, kept] = fit.mean * unit[kept], fit.gamma
        scale, shift = problem.scale, problem.shift
        fits = [maximum.fit for maximum in self.maxima]
        drawn = {
            "alpha": alpha,
            "weights": weights,
            "gamma": gamma,
            "degrees_of_freedom": gamma.sum(axis=1),
            "noise_variance": np.array([fit.noise_variance for fit in fits]) / scale**2,
            "leave_one_out": np.stack([fit.leave_one_out() for fit in fits]) + np.log(scale),
        }
        stats = {
            "lp": np.array([fit.log_posterior for fit in fits]) + shift,
            "log_likelihood": np.array([fit.log_evidence for fit in fits]) + shift,
            "objective": self.objective,
            "found": self.found,
        }
        attrs = {"kernel": "maxima", "seed": self.settings["seed"], "prior": repr(self.reference.prior)}
        add = {name: value[None] for name, value in drawn.items()}
        return draws_to_arviz(self.best.fit, add, {name: value[None] for name, value in stats.items()}, attrs)

    def save(self, path: Any) -> Path:
        """Write the atlas to one .npz file (no pickle). Written beside and renamed: a kill never leaves half a file."""
        return _save(self, file_path("path", path))

    @staticmethod
    def load(path: Any, dictionary: Dictionary | None = None) -> MaximaAtlas:
        """Read an atlas that `save` wrote. Only a `Custom` dictionary, whose function is not stored, must be given.

        Raises ValueError for a file that is damaged or something else; nothing in it is executed.
        """
        return _load(_with_suffix(file_path("path", path)), dictionary)

    def __repr__(self) -> str:
        total = len(self.restarts["kind"])
        off = int((self.restarts["maximum"] < 0).sum())
        lines = [
            f"MaximaAtlas: {len(self)} maxima from {total} restarts, prior {self.reference.prior}",
            f"  saddles left: {self.saddles}; restarts that did not end at a maximum: {off}",
        ]
        if self.maxima:
            lines.append(
                f"  {'':<4}{'found':>6}{'below best':>12}{'objective':>12}{'log posterior':>15}{'columns':>9}"
                f"{'noise sd':>10}{'curvature':>11}"
            )
        for k, maximum in enumerate(self.maxima[:8]):
            lines.append(
                f"  {k:<4}{maximum.found:>6}{self.best.objective - maximum.objective:>12.4g}{maximum.objective:>12.6g}"
                f"{maximum.log_posterior:>15.6g}{maximum.size:>9}{np.sqrt(maximum.noise_variance):>10.4g}"
                f"{maximum.curvature:>11.2g}"
            )
        if len(self) > 8:
            lines.append(f"  ... and {len(self) - 8} lower ones")
        return "\n".join(lines)

    def plot_heights(self, ax: Axes | None = None) -> Axes:
        """Draw how far each maximum lies below the best against how often it was found; a ring marks the greedy one."""
        below = self.best.objective - self.objective
        ax = new_axes()[0] if ax is None else ax
        points = ax.scatter(below, self.found, c=[maximum.size for maximum in self.maxima], cmap="viridis", s=36)
        _whole(ax.figure.colorbar(points, ax=ax, label="columns kept").ax.yaxis)
        greedy, title = int(self.restarts["maximum"][0]), f"{len(self)} {'maxima' if len(self) > 1 else 'maximum'}"
        if greedy >= 0:
            ax.plot(below[greedy], self.found[greedy], "o", ms=12, mfc="none", mec=ORANGE, label="greedy search")
            title += "; ring: the greedy search"
        if below.max() > 0:
            ax.set_xscale("symlog", linthresh=1.0)
        ax.set(xlabel="nats below the best", ylabel="times found", title=title)
        ax.set_ylim(bottom=0)
        _whole(ax.yaxis)
        return ax

    def plot_supports(self, count: int = 40, ax: Axes | None = None) -> Axes:
        """Draw which columns the best `count` maxima keep, as a raster coloured by gamma.

        Lines part the dictionaries, whose names stand above. In a long dictionary a cell is a few columns wide, so that
        it can be seen.
        """
        from matplotlib.colors import LinearSegmentedColormap
        from scipy.ndimage import maximum_filter1d

        whole_number("count", count, 1)
        shown, fit = self.maxima[:count], self.best.fit
        ax = new_axes(1, (8.0, 4.0))[0] if ax is None else ax
        raster = np.full((len(shown), fit.n_columns), -1.0)
        for row, maximum in enumerate(shown):
            raster[row, maximum.fit.active] = np.maximum(maximum.fit.gamma, 0.0)
        reach = max(1, fit.n_columns // 300)  # cells of a long dictionary would be thinner than a pixel
        wide = maximum_filter1d(raster, reach, axis=1)
        blues = LinearSegmentedColormap.from_list("kept", ["#9ECAE1", "#08306B"])  # a faint one must be seen too
        image = ax.imshow(
            np.ma.masked_less(wide, 0), aspect="auto", interpolation="nearest", cmap=blues, vmin=0, vmax=1
        )
        ax.figure.colorbar(image, ax=ax, label="gamma of a kept column")
        parts = parts_of(fit.dictionary, fit.design)
        for part in parts[1:]:
            ax.axvline(part.start - 0.5, color=ORANGE, lw=1)
        centres = np.array([0.5 * (part.start + part.stop - 1) for part in parts])
        lines = [0]  # names that stand close, as those of Linear() + Bias(), go one above the other
        for gap in np.diff(centres) / fit.n_columns:
            lines.append(lines[-1] + 1 if gap < 0.25 else 0)
        above = ax.secondary_xaxis("top")
        above.set_xticks(centres, [part.name + "\n" * line for part, line in zip(parts, lines, strict=True)])
        above.tick_params(length=0, labelsize="small", labelcolor=ORANGE)
        ax.set(xlabel="column of the dictionary", ylabel="maximum, best first", title="Columns kept")
        _whole(ax.xaxis)
        _whole(ax.yaxis)
        return ax

    def plot_map(self, mass: BasinMass | None = None, by: str = "curve", ax: Axes | None = None) -> Axes:
        """Draw the maxima in the plane so that their distances are kept as well as a plane can (classical scaling).

        Areas are the posterior mass if it is given, else how often a maximum was found; colours are heights. Numbers
        are places in the atlas, of the best five that have an area.
        """
        from matplotlib.patheffects import withStroke

        if mass is not None and mass.count != len(self):
            raise ValueError(f"mass counts {mass.count} maxima and the atlas has {len(self)}: use this atlas's mass")
        height = self.objective - self.best.objective
        x, y = _plane(self.distances(by)).T
        ax = new_axes(1, (8.0, 4.4))[0] if ax is None else ax
        share = self.found / self.found.sum() if mass is None else mass.mass
        ax.plot(x, y, "+", color="0.6", ms=4, zorder=1)
        lowest = min(height.min(), -1.0)  # at least a nat, or a single maximum would have a scale of its own
        points = ax.scatter(x, y, s=1500 * share, c=height, cmap="viridis", vmin=lowest, vmax=0, alpha=0.8)
        ax.figure.colorbar(points, ax=ax, label="height, nats from the best")
        near = 0.04 * np.hypot(np.ptp(x), np.ptp(y))
        groups: dict[int, list[str]] = {}
        for k in np.flatnonzero(share > 0)[:5]:
            first = next((j for j in groups if np.hypot(x[k] - x[j], y[k] - y[j]) <= near), int(k))
            groups.setdefault(first, []).append(str(k))
        outline = [withStroke(linewidth=2, foreground="white")]  # a dark marker would swallow the number
        for k, names in groups.items():
            ax.text(x[k], y[k], ", ".join(names), ha="center", va="center", fontsize="small", path_effects=outline)
        unit = "noise sds" if by == "curve" else "columns"
        area = "times found" if mass is None else f"posterior mass ({mass.method}; {mass.elsewhere:.0%} elsewhere)"
        ax.set(xlabel=f"distance, {unit}", ylabel=f"distance, {unit}", title=f"Map of the maxima; area: {area}")
        ax.margins(0.15)
        return ax

    def plot_curves(self, count: int = 4, ax: Any = None) -> Axes:
        """Draw the data and the curves of the best few maxima; below, how the others differ from the best.

        Parameters
        ----------
        count : int
            How many maxima.
        ax : Axes or two Axes, optional
            For the curves, and for their differences in noise sds of the best maximum. One is for the curves alone.
            Default a new figure with both, if there is more than one curve.

        Returns
        -------
        Axes
            That of the curves; in a new figure ``ax.figure.axes[1]`` is that of the differences.
        """
        whole_number("count", count, 1)
        fit, shown = self.best.fit, self.maxima[:count]
        if fit.x is not None and fit.x.ndim > 1 and fit.x.shape[1] > 1:
            raise ValueError(f"a curve needs one-dimensional inputs, and x has shape {fit.x.shape}: look at `curves`")
        panels = new_axes(min(len(shown), 2), (8.0, 4.0)) if ax is None else np.ravel(np.asarray(ax, dtype=object))
        if len(panels) > 2:
            raise ValueError(f"ax has {len(panels)} axes: give one for the curves, or a second for their differences")
        points = np.arange(len(fit.t)) if fit.x is None else np.ravel(fit.x)
        order = np.argsort(points, kind="stable")
        panels[0].plot(points, fit.t, ".", color=DATA, ms=3.5, label="data")
        for k, maximum in enumerate(shown):
            color, below = SERIES[k % len(SERIES)], self.best.objective - maximum.objective
            difference = (self.curves[k] - self.curves[0]) / np.sqrt(self.best.noise_variance)
            label = f"{k}: {maximum.size} columns" + (f",\n{below:.3g} nats below" if k else "")
            panels[0].plot(points[order], self.curves[k][order], color=color, lw=1.4, label=label)
            if len(panels) > 1:
                rms = f"{k}: rms {np.sqrt(np.mean(difference**2)):.2g}" if k else "0"
                panels[1].plot(points[order], difference[order], color=color, lw=1.2, label=rms)
        panels[0].set(ylabel="target t", title="Curves of the best maxima")
        if len(panels) > 1:
            panels[1].set(ylabel="noise sds", title="Difference from the best")
        panels[-1].set(xlabel="input x")
        for panel in panels:
            add_legend(panel)
        return panels[0]


def _full_logs(problem: Problem, end: Start, index: Array, absent: float | None) -> Array:
    """log alpha of the given columns and log beta; see `MaximaAtlas.line` for those that are pruned."""
    active, alpha, beta = end
    high = problem.prior.at(index).high
    if absent is not None:
        high = np.minimum(high, beta * (1.0 / absent - 1.0))
    full = np.array(np.broadcast_to(high, index.shape), dtype=float)
    full[np.searchsorted(index, active)] = alpha
    return np.log(np.append(full, beta))


def _support_distance(a: Array, b: Array) -> float:
    """Columns as rows of unit norm; see `MaximaAtlas.distances`."""
    if not len(a) or not len(b):
        return float(len(a) != len(b))
    likeness = np.minimum(np.abs(a @ b.T), 1.0)
    return float(1.0 - (likeness.max(axis=1).sum() + likeness.max(axis=0).sum()) / (len(a) + len(b)))


def _plane(distance: Array) -> Array:
    """Classical scaling: coordinates of shape (K, 2) whose distances come nearest to the given ones."""
    k = len(distance)
    centre = np.eye(k) - 1.0 / k
    values, vectors = np.linalg.eigh(-0.5 * centre @ distance**2 @ centre)
    coordinates = vectors * np.sqrt(np.maximum(values, 0.0))
    return np.column_stack([coordinates[:, ::-1], np.zeros((k, 2))])[:, :2]


def _whole(axis: Any) -> None:
    """Ticks at whole numbers only."""
    from matplotlib.ticker import MaxNLocator

    axis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))


def _start_of_draw(problem: Problem, alpha: Array, noise_variance: float, absent: float) -> Start:
    beta = 1.0 / problem.noise.fixed if problem.noise.fixed else float(problem.scale**2 / noise_variance)
    precision = alpha * (problem.scale / problem.norms) ** 2
    kept = np.flatnonzero((beta / (precision + beta) > absent) & (problem.z != 0))
    return kept, precision[kept], beta


def _start_of(problem: Problem, fit: MapFit) -> Start:
    """A fit in units of the search."""
    alpha = fit.alpha * (problem.scale / problem.norms[fit.active]) ** 2
    return fit.active, alpha, float(problem.scale**2 / fit.noise_variance)


def explore_maxima(
    x: Any,
    t: Any,
    dictionary: Dictionary,
    prior: Prior | None = None,
    restarts: int = 100,
    seed: int = 0,
    executor: Executor | None = None,
    *,
    exchange: bool | None = None,
    starts: Sequence[str] = KINDS,
    selection: str = "random",
    tolerance: float = 1e-3,
    noise_variance: float | None = None,
    noise_prior: tuple[float, float] | None = None,
    center: bool = True,
    space: str | None = None,
    max_steps: int | None = None,
    given: Sequence[MapFit] = (),
    progress: bool = True,
) -> MaximaAtlas:
    """Search for the local maxima of the type-II posterior from many starts.

    Parameters
    ----------
    x, t, dictionary, prior, noise_variance, noise_prior, center, space, max_steps
        As in `fit_map`.
    restarts : int
        How many searches. The first is the greedy one of `fit_map`.
    seed : int
        Restart k draws its random numbers from (seed, k): the result does not depend on where it ran, but for rounding
        where the number of BLAS threads differs.
    executor : concurrent.futures.Executor, optional
        Where to run: a `ProcessPoolExecutor`, or ``client.get_executor()`` of a Dask client. A restart whose worker
        died is run again. Default: here, one after the other.
    exchange : bool, optional
        Whether a stuck search may replace a column by another in one move; default: every other round of starts does.
    starts : sequence of {"empty", "column", "subset", "full", "perturbed"}
        Kinds of starts, taken in turn: the empty model, where only the order is random; one random column; a random
        subset of up to a quarter of N or M; all columns; the greedy fit with columns lost, replaced and shaken. All but
        the first have random precisions and noise.
    selection : {"random", "greedy", "cyclic"}
        Which column a search takes next.
    tolerance : float
        Two ends are one maximum if their log prior variances and log noise variances differ by no more.
    given : sequence of MapFit
        Further starts, beside the random ones: fits to this dictionary whose place among the maxima is asked for. They
        are climbed from with exchange moves only if ``exchange=True``.
    progress : bool
        Show a progress bar on a terminal.

    Returns
    -------
    MaximaAtlas

    Raises
    ------
    ValueError
        For bad input, before any work.
    RuntimeError
        If workers keep dying.

    Warns
    -----
    ConvergenceWarning
        If no restart ended at a maximum; and after an interrupt (Ctrl-C), when the atlas holds the restarts that had
        ended by then.

    Notes
    -----
    An end that did not converge, or that fails the test of a maximum, is in `restarts` and not among the maxima.
    A search costs what `fit_map` does; one from the full model O(M^3) more, so leave "full" out where M is thousands.
    """
    _check(restarts, seed, executor, exchange, starts, selection, tolerance)
    for fit in given if np.iterable(given) else (given,):
        instance("given", fit, MapFit, "a sequence of MapFits", "fit this dictionary first")
    reference = fit_silently(
        x,
        t,
        dictionary,
        prior,
        noise_variance,
        noise_prior,
        center,
        space,
        exchange=exchange,
        max_steps=max_steps,
        progress=progress,
    )
    settings = {
        "restarts": int(restarts),
        "seed": int(seed),
        "exchange": exchange,
        "starts": list(starts),
        "selection": selection,
        "tolerance": float(tolerance),
        "max_steps": max_steps,
    }
    setup = _setup_of(reference, settings)
    items: list[int | Start] = [*_as_starts(setup, given), *range(1, restarts)]
    ended: dict[int, End] = {}
    interrupted = False
    try:
        _run_all(_restart_or_ascend, setup, items, executor, progress, ended)
    except KeyboardInterrupt:
        interrupted = True
    atlas = _assemble(setup, reference, [ended[k] for k in sorted(ended)], settings)
    if interrupted:
        message = f"explore_maxima: interrupted: the atlas holds {len(ended) + 1} of {len(items) + 1} restarts"
        warnings.warn(message, ConvergenceWarning, 2)
    if not atlas.maxima:
        warnings.warn(f"explore_maxima: no restart ended at a maximum: {reference.reason}", ConvergenceWarning, 2)
    return atlas


def _check(restarts: Any, seed: Any, executor: Any, exchange: Any, starts: Any, selection: Any, tolerance: Any) -> None:
    whole_number("restarts", restarts, 1)
    seed_number(seed)
    _check_executor(executor)
    flag("exchange", exchange, none="to use it in every other round")
    kinds = () if isinstance(starts, str) or not np.iterable(starts) else tuple(starts)
    if not kinds or not all(kind in KINDS for kind in kinds):
        raise ValueError(f"starts={starts!r} must be a sequence of some of {KINDS}")
    choice("selection", selection, ("random", "greedy", "cyclic"))
    positive("tolerance", tolerance)


def _as_starts(setup: Setup, given: Sequence[MapFit]) -> list[Start]:
    m = setup.dictionary.bind(setup.x).n_columns if len(given) else 0
    for fit in given:
        if fit.n_columns != m:
            raise ValueError(f"given must hold fits to this dictionary of {m} columns, got {fit!r}")
    problem = setup.problem() if len(given) else None
    return [_start_of(problem, fit) for fit in given] if problem else []


def _check_executor(executor: Any) -> None:
    if executor is not None and not isinstance(executor, Executor):
        raise ValueError(
            f"executor must be a concurrent.futures.Executor, got {type(executor).__name__}: "
            "of a Dask client give client.get_executor()"
        )


def _setup_of(reference: MapFit, settings: dict[str, Any]) -> Setup:
    given = reference.settings
    return Setup(
        x=reference.x,
        t=reference.t,
        dictionary=reference.dictionary,
        prior=reference.prior,
        noise_variance=reference.noise_variance if given["noise_given"] else None,
        noise_prior=given["noise_prior"],
        center=given["center"],
        space=given["space"],
        seed=settings["seed"],
        starts=tuple(settings["starts"]),
        selection=settings["selection"],
        exchange=settings["exchange"],
        max_steps=settings["max_steps"],
        reference=_start_of(reference.problem(), reference),
    )


def _assemble(setup: Setup, reference: MapFit, ends: Sequence[End], settings: dict[str, Any]) -> MaximaAtlas:
    """Merge the ends, the greedy one first, in the order of the restarts."""
    problem = setup.problem()
    shift = problem.shift
    ends = [_greedy_end(problem, reference, setup.exchange is not False, shift), *ends]
    good = [k for k, end in enumerate(ends) if end.is_maximum]
    labels = np.full(len(ends), -1, dtype=np.intp)
    labels[good] = _merge(problem, [ends[k].start for k in good], settings["tolerance"])
    maxima = []
    for label in range(labels.max(initial=-1) + 1):
        members = np.flatnonzero(labels == label)
        end = ends[int(members[0])]
        fit = reference if not members[0] else _fit_of(problem, end, reference, settings)
        height = end.solution.history[-1] - shift
        maxima.append(Maximum(fit, len(members), int(members[0]), height, end.slope, end.curvature, end.gain))
    order = sorted(range(len(maxima)), key=lambda k: (-round(maxima[k].objective, 6), maxima[k].first))
    rank = np.append(np.argsort(np.array(order, dtype=np.intp)), -1)  # label -1 stays so
    records = {
        "kind": np.array([end.kind for end in ends]),
        "exchange": np.array([end.exchange for end in ends]),
        "objective": np.array([end.solution.history[-1] for end in ends]) - shift,
        "size": np.array([len(end.solution.index) for end in ends]),
        "noise_variance": problem.scale**2 / np.array([end.solution.beta for end in ends]),
        "saddles": np.array([end.saddles for end in ends]),
        "converged": np.array([end.solution.converged for end in ends]),
        "maximum": rank[labels],
    }
    return MaximaAtlas(tuple(maxima[k] for k in order), records, reference, settings)


def _greedy_end(problem: Problem, fit: MapFit, exchange: bool, shift: float) -> End:
    unit = problem.scale / problem.norms[fit.active]
    index, alpha, beta = _start_of(problem, fit)
    solution = Solution(
        index=index,
        alpha=alpha,
        mu=fit.mean / unit,
        Sigma=np.empty(0),
        beta=beta,
        log_evidence=fit.log_evidence + shift,
        converged=fit.converged,
        reason=fit.reason,
        history=list(fit.history + shift),
        n_steps=fit.n_steps,
    )
    return _judged(problem, solution, "greedy", exchange, 0)


def _fit_of(problem: Problem, end: End, reference: MapFit, settings: dict[str, Any]) -> MapFit:
    how = {"method": "fast", "selection": settings["selection"], "seed": settings["seed"]}
    fit = to_user_units(
        problem,
        end.solution,
        reference.x,
        reference.t,
        reference.dictionary,
        reference.prior,
        {**reference.settings, **how},
    )
    return replace(fit, _design=reference.design)


_VECTORS = ("active", "alpha", "mean", "history", "_covariance")  # of a fit that differ from maximum to maximum
_NUMBERS = ("noise_variance", "log_evidence", "log_posterior", "converged", "reason", "n_steps", "settings")
_OWN = {"found": int, "first": int, "objective": float, "slope": float, "curvature": float, "gain": float}


def _with_suffix(path: Path) -> Path:
    return path if path.suffix == ".npz" else path.with_name(path.name + ".npz")


def _save(atlas: MaximaAtlas, path: Path) -> Path:
    reference = BytesIO()
    np.savez_compressed(reference, **fit_arrays(atlas.reference))  # type: ignore[arg-type]
    arrays: dict[str, Any] = {f"restarts_{name}": atlas.restarts[name] for name in _RECORDS}
    about = []
    for k, maximum in enumerate(atlas.maxima):
        arrays |= {f"maximum{k}_{name}": getattr(maximum.fit, name) for name in _VECTORS}
        fit = {name: getattr(maximum.fit, name) for name in _NUMBERS}
        about.append({"fit": fit, **{name: getattr(maximum, name) for name in _OWN}})
    meta = {"format": _FORMAT, "kind": "MaximaAtlas", "settings": atlas.settings, "maxima": about}
    arrays["reference"] = np.frombuffer(reference.getbuffer(), dtype=np.uint8)
    path = _with_suffix(path)
    with written_beside(path) as part, open(part, "wb") as file:
        np.savez_compressed(file, meta=np.array(json.dumps(meta, default=float)), **arrays)
    return path


def _load(path: Path, dictionary: Dictionary | None) -> MaximaAtlas:
    with reading(path, "an atlas that MaximaAtlas.save wrote") as file:
        stored = Archive(file)
        meta = stored.record("MaximaAtlas", _FORMAT)
        settings = dict(meta["settings"])
        chosen = ("restarts", "seed", "exchange", "starts", "selection", "tolerance")
        _check(executor=None, **{name: settings[name] for name in chosen})
        if not (settings["max_steps"] is None or settings["max_steps"] >= 1):
            raise ValueError(f"max_steps={settings['max_steps']!r} must be a number of at least 1, or None")
        inner = Archive(BytesIO(stored.array("reference", np.uint8, (None,)).data))
        reference = fit_of_arrays(inner, dictionary)
        maxima = []
        for k, about in enumerate(meta["maxima"]):
            fields = solution_fields(stored, f"maximum{k}_", about["fit"], reference.n_columns)
            own = {name: number(about[name]) for name, number in _OWN.items()}
            maxima.append(Maximum(fit=replace(reference, **fields), **own))
        total = len(stored.array("restarts_kind", str, (None,)))
        restarts = {name: stored.array(f"restarts_{name}", dtype, (total,)) for name, dtype in _RECORDS.items()}
        place = restarts["maximum"]
        if place.min(initial=-1) < -1 or place.max(initial=-1) >= len(maxima):
            raise ValueError(f"'restarts_maximum' must name one of {len(maxima)} maxima, or be -1")
    return MaximaAtlas(tuple(maxima), restarts, reference, settings)
