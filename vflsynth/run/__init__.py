"""Runs: match, encode, agree, build, train, keep. In one process or across processes."""

from vflsynth.run.joined import JOINED, JoinedRun
from vflsynth.run.local import LocalRun, Options, check_memory, match_records
from vflsynth.run.loop import (
    Callback,
    EarlyStopping,
    EpochState,
    History,
    Pace,
    Progress,
    Trial,
    history_from_json,
    history_to_json,
)
from vflsynth.run.party_run import PartyRun
from vflsynth.run.seat import (
    Agreed,
    Checkpoints,
    Seat,
    accounts_of,
    fact,
    party_templates,
    shown_accounts,
)
from vflsynth.run.server_run import ServerRun

__all__ = [
    "JOINED",
    "Agreed",
    "Callback",
    "Checkpoints",
    "EarlyStopping",
    "EpochState",
    "History",
    "JoinedRun",
    "LocalRun",
    "Options",
    "Pace",
    "PartyRun",
    "Progress",
    "Seat",
    "ServerRun",
    "Trial",
    "accounts_of",
    "check_memory",
    "fact",
    "history_from_json",
    "history_to_json",
    "match_records",
    "party_templates",
    "shown_accounts",
]
