"""``vflsynth account``: what was spent on which release, and what is left."""

from __future__ import annotations

import argparse
import math
from collections.abc import Sequence
from typing import Any

from vflsynth.cli.console import say, table
from vflsynth.cli.options import Group, Option, check_file
from vflsynth.exceptions import ParameterError
from vflsynth.privacy import Budget, PrivacyAccount
from vflsynth.privacy.account import Attempt
from vflsynth.privacy.events import Composition
from vflsynth.privacy.ledger import conditional, epsilon_of

DESCRIPTION = """\
Show what was released about some records, what it cost and what is left.

A privacy account is a file. Every private fit that is given it books in it what it is going to
release, before it does; one that would overshoot the budget in the file is refused. One account is
for one set of records, whatever is made of them: everything that was booked counts together.
"""
EPILOG = """\
examples:
  vflsynth account account.json --create --epsilon 6 --delta 1e-6
  vflsynth fit lab.parquet clinic.parquet --on id --output model --method MixtureSynthesizer \\
      --privacy 'epsilon=3, delta=1e-6' --bounds age=0,120 --account account.json
  vflsynth account account.json
  vflsynth account account.json --epsilon 8 --delta 1e-6     # another limit; the file says when
  vflsynth account lab-folder/privacy-account.json           # a site's, of 'vflsynth parties'

A missing file is never taken for an empty account. What was written is chained by digests: a
record that was changed shows. An older copy that is put back shows by .FILE.head beside it, which
has the last record's digest. That both were put back or deleted shows at the other sites of
'vflsynth parties' alone, which remember the account.
"""
_DELTA = 1e-5


OPTIONS = [
    Option("account FILE", "the privacy account"),
    Option("--create", "make it; it must not be there"),
    Group(
        "budget",
        [
            Option("--epsilon E", "the most, all runs together", type=float),
            Option(
                "--delta D",
                f"with --epsilon, the budget's; alone, what ε is shown at (default: the budget's, "
                f"or {_DELTA:g})",
                type=float,
            ),
        ],
    ),
]


def run(options: argparse.Namespace) -> int:
    """Make, limit or show."""
    budget = None
    if options.epsilon is not None:
        if options.delta is None:
            raise ParameterError(
                "--epsilon needs --delta: well below one over the number of records"
            )
        budget = Budget(options.epsilon, options.delta)
    if options.create:
        check_file("account", options.account)
        account = PrivacyAccount.create(options.account, budget)
    else:
        account = PrivacyAccount(options.account)
        if budget is not None:
            account.set_budget(budget)
    say(_text(account, options.delta))
    return 0


def _text(account: PrivacyAccount, delta: float | None) -> str:
    budget, epsilon, left = account.budget, account.epsilon, account.left()
    if delta is None:
        delta = _DELTA if budget is None else budget.delta
    spent = f"{account.path}: ε = {_number(epsilon(delta))} at δ = {delta:g} was spent"
    lines = [conditional(spent, *account.conditions)]
    if budget is not None:
        lines.append(
            f"budget: ε = {budget.epsilon:g} at δ = {budget.delta:g}. Left: one more release of "
            f"Gaussian noise with ε = {_number(left)}, or several that compose to no more"
        )
    else:
        lines.append("no budget: nothing is refused. --epsilon and --delta set one")
    if not account.attempts:
        return "\n".join([*lines, "nothing was released"])
    lines += ["", table([_row(own, delta, account.conditions) for own in account.attempts])]
    if not all(attempt.covers_synthetic_data for attempt in account.attempts):
        lines += [
            "",
            "NOT COUNTED: what synthetic data reveal, of runs whose ε is of gradients only",
        ]
    return "\n".join(lines)


def _row(attempt: Attempt, delta: float, conditions: Sequence[str]) -> dict[str, Any]:
    spent = Composition(tuple(entry.event for entry in attempt.entries))
    return {
        "began": attempt.started,
        "run": attempt.run,
        "epsilon alone": _number(epsilon_of(spent, delta)),
        "released": ", ".join(dict.fromkeys(entry.purpose for entry in attempt.entries)),
    } | ({"condition": attempt.condition} if conditions else {})


def _number(epsilon: float) -> float | str:
    """Round up at the fourth decimal: a reported ε must not be below the one computed."""
    return math.ceil(epsilon * 1e4) / 1e4 if math.isfinite(epsilon) else "infinite"
