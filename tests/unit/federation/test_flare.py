"""What the server does at the end of a job; with real processes in `tests/integration`."""

from types import SimpleNamespace

import pytest

pytest.importorskip("nvflare", reason="needs the extra 'flare'")

from vflsynth.federation import flare


@pytest.mark.parametrize(("lives", "seconds"), [(True, 300), (False, 60)])
def test_a_party_that_is_gone_while_it_saves_its_half_is_not_waited_for_long(
    monkeypatch, lives, seconds
):
    """One that lives may take its time: a large model on a slow disk."""
    clock, knocked = [0.0], []

    def gone(_, names):
        knocked.append(list(names))
        return [] if lives else ["clinic"]

    def wait(_, pause):
        clock[0] += pause
        controller._handed_in.add("lab")

    controller = flare.ServerController.__new__(flare.ServerController)
    controller._job = SimpleNamespace(
        parties=["lab", "clinic"], exchange_timeout=60.0, setup_timeout=300.0
    )
    controller._handed_in = set()
    monkeypatch.setattr(flare, "_gone", gone)
    monkeypatch.setattr(flare, "time", SimpleNamespace(monotonic=lambda: clock[0]))
    monkeypatch.setattr(flare.threading.Event, "wait", wait)
    waiting, going_on = SimpleNamespace(completion_status=None), SimpleNamespace(triggered=False)
    assert controller._late(waiting, going_on, None) == ["clinic"]
    assert clock[0] == pytest.approx(seconds, abs=1.0)
    assert knocked[:2] == [["lab", "clinic"], ["clinic"]]
    assert len(knocked) < 70
