"""Runs: match, encode, agree, build, train, keep. In one process or across processes."""

from vflsynth.run.joined import JoinedRun
from vflsynth.run.local import LocalRun, Options, check_memory
from vflsynth.run.loop import Callback, EarlyStopping, EpochState, Progress, Trial
from vflsynth.run.party_run import PartyRun, Seat, party_templates
from vflsynth.run.server_run import (
    Agreed,
    ServerRun,
    accounts_of,
    fact,
    facts,
    history_frame,
    history_from_json,
    history_to_json,
    shown_accounts,
)

__all__ = [
    "Agreed",
    "Callback",
    "EarlyStopping",
    "EpochState",
    "JoinedRun",
    "LocalRun",
    "Options",
    "PartyRun",
    "Progress",
    "Seat",
    "ServerRun",
    "Trial",
    "accounts_of",
    "check_memory",
    "fact",
    "facts",
    "history_frame",
    "history_from_json",
    "history_to_json",
    "party_templates",
    "shown_accounts",
]
