"""The fast search for a general dictionary (TF03, SE07 Algorithm 1), joint steps, and a start for smooth kernels."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import numpy as np
from scipy.linalg.blas import dsyrk, ssyrk
from scipy.linalg.lapack import dpotrf, dpotrs, dpstrf, dtrtrs, spotrf, strtrs

from .dictionary import UnionDesign
from .evidence import SingularModelError
from .problem import (
    COLLAPSED,
    FLOOR,
    Problem,
    Progress,
    Solution,
    Start,
    collapsed,
    overfit_reason,
    overfits,
    solution_of,
)

Array = np.ndarray

_GAIN = 1e-7  # nats: a move that gains less is rounding
_DEPENDENT = 1e-10  # S_m / beta below which a column lies in the span of the active ones to working precision
_CLOSE = 1e-4  # S_m / beta below which S_m has lost digits and is computed afresh
_LEAST = 1e-14  # of S_m / beta, where rounding left nothing or less
_TRIES = 5  # promising exchanges and pairs that are tried before a search ends
_FEW = 128  # columns of a dictionary whose pairs are all looked at


def search(
    problem: Problem,
    selection: str,
    exchange: bool | None,
    seed: int,
    max_steps: int | None,
    bar: Progress,
    start: Start | None,
) -> Solution:
    """Run the fast search; a greedy one goes further ways where one column at a time is known to lead astray."""

    def run(problem: Problem, beta: float, start: Start | None) -> Solution:
        return Search(problem, selection, exchange, seed, max_steps, bar, beta).run(start)

    best = run(problem, 10.0, start)
    if selection != "greedy" or start is not None or not problem.prior.smooth:
        return best
    if not problem.noise.fixed:
        best = _retry_from_low_noise(problem, run, best)
    if isinstance(problem.design, UnionDesign) and best.converged:
        best = _offer_parts(problem, problem.design, run, best)
    return best


Run = Callable[[Problem, float, Start | None], Solution]


def _better(first: Solution, second: Solution) -> Solution:
    return max(first, second, key=lambda solution: (solution.converged, solution.history[-1]))


def _retry_from_low_noise(problem: Problem, run: Run, found: Solution) -> Solution:
    """Repeat a search in which the noise grew, lest it has swallowed some of the signal.

    From SE07's start, a noise of 0.1 var(t), no single column of a collinear dictionary may gain where several together
    would. The other way: first the classical RVM from a low noise, and from its end the prior that is wanted. To save
    time this is left out if many columns were kept and less than half was left to the noise, and for many data over a
    dictionary that is not collinear, where the classical RVM would keep nearly everything.
    """
    if found.beta >= 10.0 or (len(found.index) > 20 and found.beta >= 2.0):
        return found
    if len(problem.t) > 300 and _sketch(problem) is None:
        return found
    second = run(replace(problem, prior=replace(problem.prior, c=0.0)), 1000.0, None)
    if problem.prior.c:
        second = run(problem, second.beta, (second.index, second.alpha, second.beta))
    return _better(found, second)


def _offer_parts(problem: Problem, design: UnionDesign, run: Run, found: Solution) -> Solution:
    """Offer to the solution over a union what each part of it keeps alone at the same noise.

    A smooth curve needs several splines at once, and none of them gains while wavelets stand in their place: so they
    enter together, and a joint ascent decides who leaves.
    """
    spans = list(zip(design.designs, design.offsets[:-1], design.offsets[1:], strict=True))
    spans = [(part, int(start), int(stop)) for part, start, stop in spans if stop - start > 1]
    for part, start, stop in spans if len(spans) > 1 else []:
        sub = replace(
            problem,
            design=part,
            norms=problem.norms[start:stop],
            z=problem.z[start:stop],
            seen=problem.seen[start:stop] if np.ndim(problem.seen) else 1.0,
            prior=problem.prior.at(np.arange(start, stop)),
            noise=replace(problem.noise, fixed=1.0 / found.beta),
        )
        offers = [sub]
        # In few dimensions the classical RVM is no overfit and keeps more; where a fit is slow, one offer must do.
        if sub.prior.c and len(problem.t) <= 1000 and _sketch(sub) is not None:
            offers.append(replace(sub, prior=replace(sub.prior, c=0.0)))
        for offer in offers:
            alone = run(offer, found.beta, None)
            new = ~np.isin(alone.index + start, found.index)
            index = np.concatenate([found.index, alone.index[new] + start])
            if new.any():
                merged = run(problem, found.beta, (index, np.concatenate([found.alpha, alone.alpha[new]]), found.beta))
                found = _better(found, merged)
    return found


class Search:
    """The fast search: add, delete, re-estimate and exchange single columns, re-estimate all of them jointly.

    The objective never falls. A dictionary of low rank (a smooth kernel) is first thinned out from the full model in a
    sketch of its column space; any other starts empty. Then columns enter by the rule of `selection`; from time to time
    (`_climb`) the active precisions and the noise make joint Newton steps, which need S-sized algebra only, and delete
    what has become useless. The search ends when no addition, deletion, re-estimation or exchange gains.
    """

    def __init__(
        self,
        problem: Problem,
        selection: str,
        exchange: bool | None,
        seed: int,
        max_steps: int | None,
        bar: Progress,
        beta: float,
    ):
        self.problem, self.prior, self.noise = problem, problem.prior, problem.noise
        self.selection = selection
        self.exchange = selection == "greedy" if exchange is None else exchange
        self.rng = np.random.default_rng(seed)
        self.max_steps = max_steps or 10_000 + 20 * problem.design.n_columns
        self.bar = bar
        self.history: list[float] = []
        self.last = -1  # where cyclic selection stopped
        self.pending = 0  # columns added since the last joint step
        self.refused: list[int] = []  # columns whose move lowered the objective since the last one that raised it
        # The noise is held at its start until the first additions are done, lest it swallow the signal.
        self.noise_free = False
        self.model = problem.model(1.0 / problem.noise.fixed if problem.noise.fixed else beta)

    def run(self, start: Start | None) -> Solution:
        if start is not None:
            self._begin(*start)
        elif not self.prior.smooth:  # hardly any column will leave, so all of them begin
            everything = np.flatnonzero(self.model.z)
            self._begin(everything, np.full(len(everything), self.model.m / max(1, self.model.n)), self.model.beta)
        elif self.selection == "greedy" and (thinned := thin_full_model(self.problem, self.model.beta)) is not None:
            self._begin(*thinned)
        else:
            self._record()
        while True:
            if reason := self._hurdle():
                return self._finish(False, reason)
            if self._advance():
                continue
            if not self.noise_free and not self.noise.fixed:
                self.noise_free = True
                self._climb(100)
            elif not any(
                move()
                for move in (
                    partial(self._climb, 100),
                    self._reestimate,
                    self._leave_saddle,
                    self._swap,
                    self._add_pair,
                )
            ):
                return self._finish(True, "no addition, deletion, re-estimation or exchange gains")

    def _begin(self, index: Array, alpha: Array, beta: float) -> None:
        """Start from given columns."""
        self.noise_free = not self.noise.fixed
        self.model.beta = beta
        prior = self.prior.at(index)
        self.model.include(index, np.minimum(np.maximum(alpha, prior.low), prior.high))
        self.model.condense()
        self._record()
        self._climb(100, tolerance=1e-2)

    def _hurdle(self) -> str:
        """Why the search must stop before it has converged; empty if it need not."""
        model = self.model
        if not self.noise.fixed and collapsed(model.beta):
            return COLLAPSED
        if not self.noise.fixed and model.size > 0.9 * model.n:
            gamma = 1.0 - model.alpha * model.Sigma.diagonal()
            if overfits(float(gamma.sum()), model.n):
                return overfit_reason(model.size, model.beta)
        if len(self.history) >= self.max_steps:
            return f"not converged after max_steps={self.max_steps}: raise it, or go on from this fit with start="
        return ""

    def _finish(self, converged: bool, reason: str) -> Solution:
        self.model.condense()
        return solution_of(self.model, self.noise, converged, reason, self.history)

    def _value(self, alpha: Array, beta: float, log_evidence: float) -> float:
        """The objective for given precisions of the active columns."""
        value = log_evidence + self.noise.log_prior(beta)
        if self.prior.c or not self.prior.smooth:
            value += self.prior.total(self.model.index, alpha, beta, self.model.m)
        return float(value)

    def _objective(self) -> float:
        return self._value(self.model.alpha, self.model.beta, self.model.log_evidence)

    def _seen_above(self, before: float) -> float:
        """What the objective must reach to have risen: a gain below its rounding is none."""
        return before + _GAIN + 10 * np.finfo(float).eps * abs(before)

    def _record(self, objective: float | None = None) -> None:
        self.history.append(self._objective() if objective is None else objective)
        self.bar.update(self.model.size, self.history[-1])

    def _advance(self) -> bool:
        """One move of one column, chosen by the selection rule; False if none gains."""
        return self._greedy_move() if self.selection == "greedy" else self._ordered_move()

    def _addition_gains(self) -> Array:
        """What each column outside the model would gain with its best alpha."""
        model = self.model
        gains = self.prior.gains(np.maximum(model.S, _LEAST * model.beta), model.Q**2, model.beta)
        gains[model.index] = 0.0
        gains[_DEPENDENT * model.beta > model.S] = 0.0
        gains[self.refused] = 0.0
        return gains

    def _add(self, i: int) -> bool:
        """Add column i with its best alpha; False if a closer look shows that this gains nothing."""
        model, one = self.model, np.array([i])
        if model.S[i] < _CLOSE * model.beta:
            model.scrutinise(i)
        alpha, gain = self.prior.at(one).maximise(model.S[one], model.Q[one] ** 2, model.beta)
        if gain[0] <= _GAIN or model.S[i] < _DEPENDENT * model.beta:
            return False
        return self._try(i, lambda: model.add(i, float(alpha[0])))

    def _attempt(self, move: Callable[[], object], gain: bool = False) -> bool:
        """Make a move that does not lower the objective, or must `gain`; take back any other, and what it recorded.

        Among nearly dependent columns the gain of a move is known to fewer digits than the objective itself.
        """
        model, before, recorded = self.model, self._objective(), len(self.history)
        index, alpha, beta = model.index, model.alpha, model.beta
        try:
            move()
            risen = self._objective() >= (self._seen_above(before) if gain else before)
        except SingularModelError:
            risen = False
        del self.history[recorded:]
        if risen:
            self._record()
            self.refused.clear()
        else:
            model.beta = beta
            model.become(index, alpha)
        return risen

    def _try(self, i: int, move: Callable[[], object]) -> bool:
        """Make a move of column i if it does not lower the objective; remember if it would have."""
        done = self._attempt(move)
        if not done:
            self.refused.append(i)
        return done

    def _greedy_move(self) -> bool:
        """Add the column that gains most; a joint Newton step whenever the model has grown by a fifth."""
        while True:
            gains = self._addition_gains()
            i = int(gains.argmax())
            if gains[i] <= _GAIN:
                return False
            if self._add(i):
                break
        self.pending += 1
        if self.pending > self.model.size // 5:
            self._climb(1)
        return True

    def _changes(self) -> tuple[Array, Array]:
        """Best alpha of each active column given the others, and what moving there gains."""
        model = self.model
        prior = self.prior.at(model.index)
        s, q2 = model.statistics()
        best, value = prior.maximise(s, q2, model.beta)
        change = value - prior.contribution(model.alpha, s, q2, model.beta)
        return best, np.where(np.isin(model.index, self.refused), 0.0, change) if self.refused else change

    def _change(self, j: int, alpha: float) -> bool:
        """Re-estimate active column j, or delete it if its best alpha is infinite."""
        model = self.model
        move = partial(model.reestimate, j, alpha) if np.isfinite(alpha) else partial(model.delete, j)
        return self._try(int(model.index[j]), move)

    def _ordered_move(self) -> bool:
        """One addition, deletion or re-estimation, at random or in order among those that gain."""
        model = self.model
        gains = self._addition_gains()
        best, change = self._changes()
        gains[model.index] = change
        useful = np.flatnonzero(gains > _GAIN)
        structural = useful[~np.isin(useful, model.index[np.isfinite(best)])]
        if not len(structural):
            return False  # nothing but re-estimations is left, and joint steps make them all
        if model.delicate:
            useful = structural  # a single re-estimation would cost as much as a joint one
        if self.selection == "random":
            i = int(self.rng.choice(useful))
        else:
            i = int(useful[np.searchsorted(useful, self.last + 1) % len(useful)])
            self.last = i
        place = np.flatnonzero(model.index == i)
        if len(place):
            self._change(int(place[0]), float(best[place[0]]))
        else:
            self._add(i)
        if len(self.history) % 10 == 0:  # R = 10 in SE07 Algorithm 1
            self.noise_free = not self.noise.fixed
            self._climb(1, columns=model.delicate)
        return True

    def _climb(self, iterations: int, columns: bool = True, tolerance: float = 1e-6) -> bool:
        """Joint Newton ascent in (log alpha, log beta) over the active columns; True if the objective rose.

        Deletes columns whose best alpha has become infinite, before each step. Without `columns` only the noise moves.
        """
        if not self.model.condensed:
            self.model.condense()
        before = self._objective()
        for _ in range(iterations):
            if columns:
                self._delete_useless()
            step, convex = self._newton_step(columns)
            if step is None or self._line_search(step, stretch=not convex) < tolerance:
                break
        self.model.refresh()
        self.pending = 0
        return self._objective() > self._seen_above(before)

    def _delete_useless(self) -> None:
        """Delete active columns whose best alpha is infinite: all at once if that gains too, else one by one."""
        model, together, stale = self.model, True, False
        while model.size:
            prior = self.prior.at(model.index)
            s, q2 = model.statistics()
            if prior.smooth and not prior.c:
                useless = np.flatnonzero(q2 <= s)
            else:
                useless = np.flatnonzero(np.isinf(prior.maximise(s, q2, model.beta)[0]))
            if not len(useless):
                break
            worth = prior.at(useless).contribution(model.alpha[useless], s[useless], q2[useless], model.beta)
            worst = useless[[worth.argmin()]]
            if model.delicate:
                if not self._delete_together(worst):  # its gain was rounding
                    break
            elif together and len(useless) > 1:
                together = self._delete_together(useless)
            else:
                stale = True
                model.drop(int(worst[0]))
                self._record()
        if stale:
            model.condense()

    def _delete_together(self, places: Array) -> bool:
        """Delete several columns if that does not lower the objective; else leave the model as it is."""

        def move() -> None:
            self.model.forget(places)
            self.model.condense()

        return self._attempt(move)

    def _gradient(self) -> tuple[Array, Array]:
        """Gradient and Hessian of the objective in (log alpha, log beta)."""
        model, noise, k = self.model, self.noise, self.model.size
        gradient, hessian = model.derivatives()
        gradient[k] += noise.shape + 1.0 - noise.rate * model.beta
        hessian[k, k] -= noise.rate * model.beta
        if self.prior.c or not self.prior.smooth:
            first, second, in_noise = self.prior.at(model.index).derivatives(model.alpha, model.beta)
            gradient[:k] += first
            hessian.flat[: k * (k + 2) : k + 2] += second
            if self.prior.c:
                gradient[k] += in_noise.sum()
                hessian[:k, k] -= second
                hessian[k, :k] -= second
                hessian[k, k] += second.sum()
        return gradient, hessian

    def _newton_step(self, columns: bool) -> tuple[Array | None, bool]:
        """The ascent direction in (log alpha, log beta), zero where a coordinate is held; None if all are.

        The flag says whether the Hessian is negative definite, so that the length of the step means something.
        """
        gradient, hessian = self._gradient()
        alpha, prior = self.model.alpha, self.prior.at(self.model.index)
        free = np.full(len(gradient), columns)
        free[:-1] &= ~(((alpha <= prior.low) & (gradient[:-1] < 0)) | ((alpha >= prior.high) & (gradient[:-1] > 0)))
        free[-1] = self.noise_free
        if not free.any():
            return None, True
        step = np.zeros(len(gradient))
        if free.all():
            step[:], convex = _ascent(gradient, hessian)
        else:
            step[free], convex = _ascent(gradient[free], hessian[np.ix_(free, free)])
        return step, convex

    def _line_search(self, step: Array, stretch: bool = False) -> float:
        """Take the step or a fraction of it that does not lower the objective; returns the largest change made.

        With `stretch` a small step that gains is tripled as long as that gains more.
        """
        model = self.model
        start, low, high = (model.alpha, model.beta), *(getattr(self.prior.at(model.index), k) for k in ("low", "high"))
        best, taken = self._objective(), 0.0
        step = step * min(1.0, 3.0 / max(np.abs(step).max(), 1e-300))
        for _ in range(12):
            alpha = np.minimum(np.maximum(start[0] * np.exp(step[:-1]), low), high)
            beta = start[1] if self.noise.fixed else min(start[1] * np.exp(step[-1]), 1.0 / FLOOR)
            try:
                factored = model.factorise(alpha, beta)
                value = self._value(alpha, beta, factored.log_evidence)
            except SingularModelError:
                value = -np.inf
            if value >= best:
                model.take(alpha, beta, factored)
                best, taken = value, float(np.abs(step).max())
                if not stretch or taken > 0.3:
                    break
                step = 3.0 * step
            elif taken:
                break
            else:
                step = 0.25 * step
        if taken:
            self._record(best)
        return taken

    def _reestimate(self) -> bool:
        """Move one column to its best alpha if joint steps overlooked it (a precision can have two maxima)."""
        best, change = self._changes()
        if not len(change) or change.max() <= 10 * _GAIN:
            return False
        return self._change(int(change.argmax()), float(best[change.argmax()]))

    def _leave_saddle(self) -> bool:
        """Step along a direction of positive curvature: a point that no single move improves may be a saddle (FT02)."""
        model = self.model
        if not 1 < model.size <= 400:
            return False
        _, hessian = self._gradient()
        size = len(hessian) - (not self.noise_free)
        if not dpotrf(-hessian[:size, :size], lower=1, clean=0)[1]:
            return False  # negative definite: a maximum
        values, vectors = np.linalg.eigh(hessian[:size, :size])
        before = self._objective()
        for sign in (1.0, -1.0):
            step = np.zeros(len(hessian))
            step[:size] = sign * vectors[:, -1]
            if values[-1] > 1e-6 and self._line_search(step) > 0 and self._objective() > self._seen_above(before):
                model.refresh()
                return True
        return False

    def _swap(self) -> bool:
        """Delete one column and add another in one move, if that gains (TF03 section 6.2)."""
        return any(self._attempt(partial(self._replace, *pair), gain=True) for pair in self._promising_swaps())

    def _promising_swaps(self) -> list[tuple[int, int]]:
        """Active columns and what could take their place, the most promising first."""
        model = self.model
        if not self.exchange or model.size == 0:
            return []
        s, q2 = model.statistics()
        loss = self.prior.at(model.index).contribution(model.alpha, s, q2, model.beta)
        shift = model.beta * (model.Sigma @ model.gram)  # how S and Q of all columns feel each deletion
        variance = model.Sigma.diagonal()
        found: list[tuple[float, int, int]] = []
        rows = max(1, 100_000 // model.m)  # of deletions that are tried at once
        for first in range(0, model.size, rows):
            j = slice(first, first + rows)
            S = model.S + shift[j] ** 2 / variance[j, None]
            Q = model.Q + shift[j] * (model.mu[j] / variance[j])[:, None]
            prior = self.prior.at(np.tile(np.arange(model.m), len(S)))
            gains = prior.gains(np.maximum(S.ravel(), _LEAST * model.beta), Q.ravel() ** 2, model.beta).reshape(S.shape)
            gains[:, model.index] = 0.0
            gains[_DEPENDENT * model.beta > S] = 0.0
            net = np.where(gains > _GAIN, gains - loss[j, None], -np.inf)
            joins = net.argmax(axis=1)
            best = net[np.arange(len(net)), joins]
            found += [(best[k], int(model.index[first + k]), int(joins[k])) for k in np.flatnonzero(best > 10 * _GAIN)]
        return [(left, joined) for _, left, joined in sorted(found, reverse=True)[:_TRIES]]

    def _replace(self, left: int, joined: int) -> None:
        """Column `joined` takes the place of the active column `left`, with its best alpha."""
        model, one = self.model, np.array([joined])
        model.delete(int(np.flatnonzero(model.index == left)[0]))
        if model.S[joined] < _CLOSE * model.beta:
            model.scrutinise(joined)
        alpha, gain = self.prior.at(one).maximise(model.S[one], model.Q[one] ** 2, model.beta)
        if gain[0] > _GAIN and model.S[joined] >= _DEPENDENT * model.beta:
            model.add(joined, float(alpha[0]))

    def _add_pair(self) -> bool:
        """Add two columns at once, where neither gains alone: it may be their difference that is needed."""
        pairs = self._promising_pairs()
        return any(self._attempt(partial(self._join, *pair), gain=True) for pair in pairs)

    def _promising_pairs(self) -> list[tuple[Array, Array]]:
        """Pairs of columns outside the model with precisions to begin with, the most promising first.

        With column i in the model at any weight, S_j and Q_j become S_j - S_ij^2 / S_i and Q_j - S_ij Q_i / S_i. All
        pairs are looked at in a small dictionary; in a large one those of the columns that come nearest to a gain.
        """
        model = self.model
        if not self.exchange:
            return []
        S, Q = np.maximum(model.S, _LEAST * model.beta), model.Q
        near = Q**2 / S
        near[model.index] = -1.0
        near[_DEPENDENT * model.beta > model.S] = -1.0
        some = np.argsort(-near, kind="stable")[: model.m if model.m <= _FEW else _FEW // 8]
        some = some[near[some] >= 0.0]
        if len(some) < 2:
            return []
        cross = model.beta * self.problem.gram_rows(self.problem.columns(some))
        if model.size:
            cross -= model.beta**2 * (model.gram[:, some].T @ (model.Sigma @ model.gram))
        left = np.maximum(S - cross**2 / S[some, None], 0.0)
        score = near[some, None] + (Q - cross * (Q[some] / S[some])[:, None]) ** 2 / np.maximum(
            left, _LEAST * model.beta
        )
        rank = np.full(model.m, model.m)
        rank[some] = np.arange(len(some))
        score[(near < 0.0) | (rank <= np.arange(len(some))[:, None])] = 0.0  # each pair once
        score[left < 100.0 * _DEPENDENT * model.beta] = 0.0
        found = []
        for place in np.argsort(-score, axis=None, kind="stable")[:_TRIES]:
            i, j = np.unravel_index(place, score.shape)
            if score[i, j] <= 2.0 + 4.0 * self.prior.c:  # two columns that just gain alone have as much
                break
            pair = np.array([some[i], j], dtype=np.intp)
            inverse = np.linalg.inv([[S[pair[0]], cross[i, j]], [cross[i, j], S[j]]])
            weights = inverse @ Q[pair]
            found.append((pair, 1.0 / (weights**2 + inverse.diagonal())))
        return found

    def _join(self, index: Array, alpha: Array) -> None:
        """Several columns enter at once; a joint ascent decides on their precisions and who leaves."""
        prior = self.prior.at(index)
        self.model.include(index, np.minimum(np.maximum(alpha, prior.low), prior.high))
        self.model.condense()
        self._climb(100)


def thin_full_model(problem: Problem, beta: float) -> Start | None:
    """A start for a dictionary of low rank: MacKay's updates from the full model, in a sketch of its column space.

    Columns of a smooth kernel span, at the accuracy that matters beside the noise, a space of R << N dimensions. In
    coordinates B = U' Phi of that space one update of all precisions costs O(M R^2), and the maxima it leads to are
    better than those of a search from the empty model. Single precision is enough for a start. Returns None if the rank
    is not low or the prior not smooth.
    """
    prior, noise = problem.prior, problem.noise
    n, m = problem.n, problem.design.n_columns
    sketch = _sketch(problem) if prior.smooth and min(n, m) >= 20 else None
    if sketch is None:
        return None
    B, u, outside = sketch
    rank = len(u)
    index, alpha = np.arange(m), np.full(m, m / n)
    for _ in range(30):
        chosen = prior.at(index)
        X = B * (1.0 / np.sqrt(alpha)).astype(np.float32)
        C = ssyrk(1.0, X, lower=1)
        C.flat[:: rank + 1] += 1.0 / beta
        factor, failure = spotrf(C, lower=1, clean=0, overwrite_a=1)
        if failure:
            return None
        X, y = strtrs(factor, X, lower=1, overwrite_b=1)[0], strtrs(factor, u, lower=1)[0]
        gamma = np.einsum("ij,ij->j", X, X).astype(float)  # S / alpha
        mu2 = (y @ X).astype(float) ** 2 / alpha  # (Q / alpha)^2
        idle = np.flatnonzero(gamma < 0.03)
        left = 1.0 - gamma[idle]
        gains = chosen.at(idle).gains(alpha[idle] * gamma[idle] / left, alpha[idle] ** 2 * mu2[idle] / left**2, beta)
        gone = idle[gains <= 0.0]
        pull = 2.0 * chosen.derivatives(alpha, beta)[0] if prior.c else 0.0
        alpha = np.minimum(np.maximum((gamma + pull) / np.maximum(mu2, 1e-300), chosen.low), chosen.high)
        if not noise.fixed:
            v = strtrs(factor, y, lower=1, trans=1)[0].astype(float)
            residual2 = v @ v / beta**2 + outside
            beta = (n - gamma.sum() + 2.0 * (noise.shape + 1.0)) / max(residual2 + 2.0 * noise.rate, FLOOR * n)
        if len(gone):
            stay = np.delete(np.arange(len(index)), gone)
            index, alpha, B = index[stay], alpha[stay], np.take(B.T, stay, axis=0).T
        if len(index) < 0.6 * rank:  # from here on algebra of the size of the model is cheaper
            break
    return index, alpha, float(beta)


def _sketch(problem: Problem) -> tuple[Array, Array, float] | None:
    """Coordinates of all columns and of t in the span of a few columns, and the part of |t|^2 outside; None if not few.

    The columns are chosen by a pivoted Cholesky factorisation among at most 300, spread over the order of |z|, which
    does not depend on the order or the sign of the columns.
    """
    n, m = len(problem.t), problem.design.n_columns
    order = np.argsort(-np.abs(problem.z), kind="stable")
    chosen = order if m <= 300 else order[np.linspace(0, m - 1, 300).astype(np.intp)]
    rows = problem.columns(chosen)
    factor, pivots, rank, _ = dpstrf(dsyrk(1.0, rows.T, trans=1, lower=1), tol=1e-4, lower=1, overwrite_a=1)
    if rank == 0 or rank > 0.6 * min(len(rows), n):
        return None
    if len(chosen) == m:  # all columns took part, so their coordinates are the factor itself
        B = np.empty((rank, m), order="F")
        B[:, chosen[pivots - 1]] = np.tril(factor)[:, :rank].T
    pivots, factor = rows[pivots[:rank] - 1], factor[:rank, :rank]
    if len(chosen) < m:
        B = dtrtrs(factor, problem.gram_rows(pivots), lower=1)[0]
    if 1.0 - np.einsum("ij,ij->", B, B) / m > 0.01:  # the chosen columns do not stand for the others
        return None
    u = dtrtrs(factor, pivots @ problem.t, lower=1)[0]
    outside = max(float(problem.t @ problem.t - u @ u), 0.0)
    return np.asfortranarray(B, dtype=np.float32), u.astype(np.float32), outside


def _ascent(gradient: Array, hessian: Array) -> tuple[Array, bool]:
    """Newton's direction and True where the Hessian is negative definite; else with its eigenvalues shifted below 0."""
    factor, failure = dpotrf(-hessian, lower=1, clean=0)
    if not failure:
        return dpotrs(factor, gradient, lower=1)[0], True
    shift = 1e-3  # the curvature in log alpha is of order 1/2 at most
    while failure:
        shifted = -hessian
        shifted.flat[:: len(gradient) + 1] += shift
        factor, failure = dpotrf(shifted, lower=1, clean=0, overwrite_a=1)
        shift *= 4.0
    return dpotrs(factor, gradient, lower=1)[0], False
