"""Mixtures of products: columns independent given one latent state, fitted to sums of products."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations, islice

import torch
from scipy.stats import chi2
from torch import Tensor, nn

from vflsynth.networks.layers import FlatAdam

_LEARNING_RATE, _FINAL_RATE = 0.1, 0.02
_SPREAD = 0.3

_HOLD = 10.0
"""Weight of an error of a marginal, which histograms tell better than products do."""

N_SEARCHES = 4
"""From different starts, of which the mean is taken."""

N_SPLITS = 4
"""Of what is fitted, to find out when to stop, where noise is most of it."""

_PART = 0.5
"""Of a product's deviation, added to what is fitted; the less, the worse the judge sees."""

_CHANCE = 0.01
"""Of a table of independent columns, that any two are called surely related."""

_OUT_OF_SIGHT = 0.1
"""Weight of independence, of pairs that a search does not look at yet."""

_PATIENCE = 250
"""Steps without a better prediction, after which a search has seen the best: of twenty fits to five
tables, at ε 1 and 10, it was never later."""

_CLEARLY = 2.0
"""Deviations of what noise does, by which a search in stages has to predict better."""


@dataclass(frozen=True, slots=True)
class StackedCodes:
    """Vectors that stand for the states of columns, of all columns side by side.

    `padded`, (column, state, coordinate), is 0 for what a column has not got; `there` says which of
    all columns' coordinates they have, (stacked coordinate,).
    """

    padded: Tensor
    there: Tensor

    @classmethod
    def of(cls, codes: Sequence[Tensor]) -> StackedCodes:
        """Put codes, each of shape (state, coordinate), side by side."""
        n_states, n_coordinates = (max(code.shape[axis] for code in codes) for axis in (0, 1))
        padded = torch.zeros(len(codes), n_states, n_coordinates)
        there = torch.zeros(len(codes), n_coordinates, dtype=torch.bool)
        for column, code in enumerate(codes):
            padded[column, : code.shape[0], : code.shape[1]] = code
            there[column, : code.shape[1]] = True
        return cls(padded, there.flatten().nonzero().squeeze(1))

    def means(self, shares: Tensor) -> Tensor:
        """Average by shares of states, (..., column, state), to (..., stacked coordinate)."""
        means: Tensor = torch.einsum("...cs,csi->...ci", shares, self.padded)
        return means.flatten(-2)[..., self.there]

    def apart(self, marginals: Tensor) -> Tensor:
        """Return mean products of independent columns' codes, of shares (column, state)."""
        means = self.means(marginals)
        return means.unsqueeze(1) * means

    @property
    def columns(self) -> Tensor:
        """The column of every stacked coordinate, int64, shape (stacked coordinate,)."""
        return self.there // self.padded.shape[2]

    def precede(self) -> Tensor:
        """Say of every two stacked coordinates whether the first one's column is the earlier."""
        return self.columns[:, None] < self.columns

    def spread(self, pairs: Tensor) -> Tensor:
        """Give every two stacked coordinates what their columns have, of shape (column, column)."""
        return pairs[self.columns][:, self.columns]

    def sums(self, products: Tensor) -> Tensor:
        """Add up over both columns' coordinates, to shape (column, column)."""
        owners = nn.functional.one_hot(self.columns, len(self.padded)).to(products)
        return owners.mT @ products @ owners


@dataclass(frozen=True, slots=True)
class ProductMixture:
    """A distribution of discrete columns, or several.

    Weights (..., component) add up to 1; shares (..., component, column, state) are p(state |
    component), 0 for states that a column has not got.
    """

    weights: Tensor
    shares: Tensor

    def marginals(self) -> Tensor:
        """Return p(state), shape (..., column, state)."""
        return torch.einsum("...k,...kcs->...cs", self.weights, self.shares)

    def products(self, codes: StackedCodes) -> Tensor:
        """Return mean products of two columns' codes; one-hot ones make tables p(state of a, of b).

        A column with itself has that of two draws of one component, of no use.
        """
        means = codes.means(self.shares)
        return means.mT @ (self.weights.unsqueeze(-1) * means)

    def mean(self) -> ProductMixture:
        """Make one of several, shape (mixture, component, ...), that have equal weight."""
        weights = self.weights.flatten() / len(self.weights)
        return ProductMixture(weights, self.shares.flatten(0, 1))

    def apart(self, columns: Tensor) -> ProductMixture:
        """Make columns, bool (..., column), independent of all others, with their marginals."""
        means = self.marginals().unsqueeze(-3)
        return ProductMixture(
            self.weights, torch.where(columns[..., None, :, None], means, self.shares)
        )


@dataclass(frozen=True, slots=True)
class Evidence:
    """What speaks for relations, of every two columns: their products' distances from independence.

    `found`, float64 (column, column), are squares of what was fitted, each over the variance of its
    error; `shown` is fitted times held out: like `found` if all is true, about 0 if all is noise.
    `variance` is that of what was held out, over that of the error.
    """

    found: Tensor
    shown: Tensor
    variance: float

    @classmethod
    def of(
        cls, codes: StackedCodes, precision: Tensor, found: Tensor, held_out: Tensor
    ) -> Evidence:
        """Add up; precision is that of products, 0 for those that are not known.

        `found` and `held_out`, (split, stacked coordinate, stacked coordinate), say by how much
        products differ from those of independent columns, or of another model.
        """
        own, shown = (
            codes.sums((precision * found * other).mean(0)).double() for other in (found, held_out)
        )
        # The mean of what was held out has the products' errors, and a share of the splits'.
        return cls(own, shown, 1.0 + 1.0 / (_PART**2 * len(held_out)))

    def among(self, pairs: Tensor) -> Evidence:
        """Forget all but some pairs; a bool Tensor of shape (column, column)."""
        return Evidence(self.found * pairs, self.shown * pairs, self.variance)

    def harm(self, pairs: Tensor) -> float:
        """Return how much better what was held out is predicted without some pairs' relations.

        By how many deviations of what noise does to that; 0 if nothing was found.
        """
        return float(self._harm((self.found * pairs).sum(), (self.shown * pairs).sum()))

    def harm_of_columns(self) -> Tensor:
        """Return the `harm` of each column's relations, shape (column,)."""
        return self._harm(self.found.sum(1), self.shown.sum(1))

    def _harm(self, found: Tensor, shown: Tensor) -> Tensor:
        deviations = (found - 2.0 * shown) / (4.0 * self.variance * found).sqrt()
        return torch.where(found > 0.0, deviations, 0.0)


def fit_product_mixture(
    marginals: Tensor,
    codes: StackedCodes,
    products: Tensor,
    noise: Tensor,
    sampling: Tensor,
    basis: Tensor,
    starts: Tensor,
    splits: Tensor,
    groups: Tensor,
    n_steps: int,
) -> tuple[ProductMixture, Tensor]:
    """Fit to mean products by weighted least squares, for as long as it predicts better.

    The search begins at the `marginals`, (column, state), 0 for states that a column has not got.
    `products`, (stacked coordinate, stacked coordinate), have variances by `noise`, 0 for what is
    not known, and by which records were drawn (`sampling`). `basis`, (column, tilt, state), is that
    of `tilts.tilt_basis`. `starts`, (search, component, column, tilt), are normal numbers by which
    components differ at first: alike they would stay alike; `splits`, (split, *products.shape),
    those that take the products apart. `groups` are numbers, from 0, of the parties that have the
    columns; Adam takes `n_steps` at most. Returns the mixture of the components of all searches,
    and a bool tensor (column, column): false for columns of two groups that have no relation which
    is more than noise.

    Products of two columns do not say what three have together: the mean of mixtures from several
    starts has less of what is peculiar to one, and is a mixture.

    Source of the stop: data fission (Leiner, Duan, Wasserman and Ramdas 2023). With s of a
    product's deviation, noise and sampling, ``x + s z / 2`` and ``x - 2 s z`` err independently. A
    search that sees the former only is judged by the latter after every step; the whole then gets
    as many steps as were best, on average of the splits, of which each has a start in turn. One
    split alone is by chance far off where noise is most of what is seen.

    A few relations that no noise explains (`surely_related`) need more steps than many that are
    nothing but noise. A second search sees only the former at first, and then all products, with a
    stop each; it is taken if it predicts better by more than chance does.

    Relations that do not help to predict are dropped: of two groups, whose products are then those
    of independent columns (`related_pairs`), and of single columns (`without_relations`).
    """
    variance = torch.where(noise > 0.0, noise + sampling, 0.0)
    shift = variance.sqrt() * torch.where(codes.precede(), splits, splits.mT)
    held_out, precision = products - shift / _PART, _one_over(variance)
    apart = codes.apart(marginals)
    sure = surely_related(codes, precision, products - apart)
    in_turn = starts[torch.arange(len(splits)) % len(starts)]

    def search(of: Tensor, tilts: Tensor, stages: Sequence[Tensor]) -> _Search:
        return _Search(marginals, codes, of, _one_over(noise), basis, tilts, stages, n_steps)

    everything = torch.ones_like(sure)
    plain = search(products + _PART * shift, in_turn, [everything])
    stops, judged = plain.stopped(held_out, precision)
    evidence = Evidence.of(codes, precision, judged - apart, held_out - apart).among(~sure)
    pairs = related_pairs(evidence, groups) | sure
    products = torch.where(codes.spread(pairs), products, apart)
    stages = [everything]
    if bool(sure.any()) and not bool((codes.spread(sure) | (noise == 0.0)).all()):
        seen = torch.where(codes.spread(pairs), products + _PART * shift, apart)
        staged, found = search(seen, in_turn, [sure, everything]).stopped(held_out, precision)
        instead = Evidence.of(codes, precision, judged - found, held_out - found)
        if instead.harm(pairs.triu()) > _CLEARLY:
            stops, judged, stages = staged, found, [sure, everything]
    evidence = Evidence.of(codes, precision, judged - apart, held_out - apart).among(pairs)
    mixture = search(products, starts, stages).after(stops).mean()
    return mixture.apart(without_relations(evidence, sure)), pairs


def surely_related(codes: StackedCodes, precision: Tensor, distances: Tensor) -> Tensor:
    """Find pairs of columns of which no noise explains how far from independent they are.

    `precision`, of products, is 0 for those that are not known; `distances` are from the products
    of independent columns. By a chi-squared test of each pair; of independent columns any pair is
    found in one of a hundred tables.
    """
    squares = codes.sums(precision * distances.square()).double()
    known = codes.sums((precision > 0.0).float()).double()
    n_pairs = max(1.0, float((known > 0.0).sum()) / 2.0)
    chances = torch.tensor(chi2.sf(squares.numpy(), known.clamp_min(1.0).numpy()))
    return (known > 0.0) & (chances * n_pairs < _CHANCE)


def related_pairs(evidence: Evidence, groups: Tensor) -> Tensor:
    """Find groups of columns whose relations with each other are more than noise, (column, column).

    The evidence is of pairs that are not surely related. False for the columns of two groups
    without whose relations the squares of what was held out and is not found are less; true for two
    columns of one group. Single columns cannot say so: those that chance relates stay, and noise is
    all there is.
    """
    pairs = torch.ones_like(evidence.found, dtype=torch.bool)
    for one, other in combinations(range(int(groups.max()) + 1), 2):
        between = (groups == one).unsqueeze(1) & (groups == other)
        if evidence.harm(between) > 0.0:
            pairs &= ~(between | between.mT)
    return pairs


def without_relations(evidence: Evidence, sure: Tensor) -> Tensor:
    """Find columns, none surely related to another, so that what was fitted to them is noise.

    Without their relations the squares of what was held out and is not found are less, by more than
    the deviation that noise gives to that difference. One by one, each time the column of which it
    is clearest.
    """
    related, kept = torch.ones(len(sure), dtype=torch.bool), sure.any(1)
    while True:
        left = evidence.among(related.unsqueeze(1) & related)
        harms = torch.where(kept, 0.0, left.harm_of_columns())
        if not bool(harms.max() > 1.0):
            return ~related
        related[harms.argmax()] = False


@dataclass(frozen=True, slots=True)
class _Search:
    """Mixtures that come closer to products step by step, from one or more starts.

    `stages` are pairs of columns, (column, column), whose products are looked at, first and then.
    Others are held where they are of independent columns, less strongly.
    """

    marginals: Tensor
    codes: StackedCodes
    products: Tensor
    precision: Tensor
    basis: Tensor
    starts: Tensor
    stages: Sequence[Tensor]
    n_steps: int

    def stopped(self, held_out: Tensor, precision: Tensor) -> tuple[list[int], Tensor]:
        """Return the steps of each stage that predict best, and what products they end with."""
        stops, state, judged = [], self._start(), held_out
        for stage in self.stages:
            least, best, kept = math.inf, 0, state
            for step, (_, found, now) in enumerate(self._steps(stage, state)):
                error = float((precision * (found - held_out).square()).sum(dtype=torch.float64))
                if error < least:
                    least, best, judged = error, step, found
                    kept = now[0].clone(), now[1].clone()
                elif step - best == _PATIENCE:
                    break
            stops.append(best)
            state = kept
        return stops, judged

    def after(self, stops: Sequence[int]) -> ProductMixture:
        """Return the mixtures after so many steps of each stage."""
        state = self._start()
        for stage, stop in zip(self.stages, stops, strict=True):
            mixture, _, state = next(islice(self._steps(stage, state), stop, None))
        return mixture

    def _start(self) -> tuple[Tensor, Tensor]:
        return _SPREAD * self.starts, torch.zeros(self.starts.shape[:2])

    def _steps(
        self, pairs: Tensor, state: tuple[Tensor, Tensor]
    ) -> Iterator[tuple[ProductMixture, Tensor, tuple[Tensor, Tensor]]]:
        """Yield mixtures, their products and parameters after 0, 1, 2, ... steps.

        Parameters are those that the next step changes.
        """
        absent = torch.where(self.marginals > 0.0, 0.0, -math.inf)
        centre = self.marginals.clamp_min(1e-6).log() + absent
        tilts, weights = (nn.Parameter(own.clone()) for own in state)
        optimiser = FlatAdam(nn.ParameterList([tilts, weights]), learning_rate=_LEARNING_RATE)
        in_sight = self.codes.spread(pairs)
        products = torch.where(in_sight, self.products, self.codes.apart(self.marginals))
        precision = self.precision * torch.where(in_sight, 1.0, _OUT_OF_SIGHT)
        n_products = max(1.0, float((self.precision > 0.0).sum()))
        for step in range(self.n_steps + 1):
            logits = centre + torch.einsum("rkcj,cjs->rkcs", tilts, self.basis)
            mixture = ProductMixture(weights.softmax(-1), logits.softmax(-1))
            found = mixture.products(self.codes)
            now = ProductMixture(mixture.weights.detach(), mixture.shares.detach())
            yield now, found.detach(), (tilts.detach(), weights.detach())
            falling = 0.5 * (1.0 + math.cos(math.pi * step / self.n_steps))
            optimiser.learning_rate = _LEARNING_RATE * (_FINAL_RATE + (1.0 - _FINAL_RATE) * falling)
            loss = (precision * (found - products).square()).sum()
            drift = self.precision.max() * (mixture.marginals() - self.marginals).square().sum()
            total = (loss + _HOLD * drift) / n_products
            optimiser.set_gradient(torch.autograd.grad(total, [tilts, weights]))
            optimiser.step()


def _one_over(variance: Tensor) -> Tensor:
    """Return the precision, 0 where nothing is known."""
    return torch.where(variance > 0.0, 1.0 / variance, 0.0)
