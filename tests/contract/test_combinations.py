"""Every synthesizer with every mechanism, in one process and across processes: it runs, or is
refused with a reason, by one function. What others register is in the table too."""

import json

import pytest

from tests.smaller import narrow
from vflsynth.columns import PublicSchema
from vflsynth.datasets import make_party_frames
from vflsynth.exceptions import ParameterError
from vflsynth.federation.job import Job
from vflsynth.methods.parameters import reason_against
from vflsynth.privacy import PrivacyAccount
from vflsynth.registry import Members
from vflsynth.testing.noninterference import SMALL

pytestmark = pytest.mark.usefixtures("short_searches")

KEY = "record_id"
SYNTHESIZERS = dict(Members("synthesizers"))
MECHANISMS = {None: None} | dict(Members("mechanisms"))
CLASSIFIERS = dict(Members("classifiers"))
NOISE = {"noise_multiplier": 2.0, "delta": 1e-3}  # needs no calibration
OF_MECHANISM = {
    "dpsgd": {"n_records": 40},
    "gs_wgan": {"n_shards": 2},
}
RUNS = {
    "VFLGANSynthesizer": {None, "dpsgd", "first_layer"},
    "VertiGANSynthesizer": {None, "dpsgd", "first_layer"},
    "WGANGPSynthesizer": {
        None,
        "dpsgd",
        "first_layer",
        "dpsgd_gan",
        "gs_wgan",
    },
    "AutoregressiveSynthesizer": {None},
    "IndependentSynthesizer": {None},
    "GaussianCopulaSynthesizer": {None},
    "DPLTSynthesizer": {"latent_tree"},
    "MixtureSynthesizer": {"pairwise_tables"},
}
ACROSS = {name: found for name, found in RUNS.items() if name != "WGANGPSynthesizer"}


def frames():
    return narrow(make_party_frames(40, 2, random_state=1), "measure", "flag")


def schema():
    columns = [c for table in frames().values() for c in table]
    bounds = {c: (-5, 5) for c in columns if c.startswith("measure")}
    flags = {c: (False, True) for c in columns if c.startswith("flag")}
    return PublicSchema(bounds, flags, dtypes="given")


def parameters(synthesizer):
    known = SYNTHESIZERS[synthesizer]().get_params(deep=False)
    return {name: value for name, value in SMALL.items() if name in known}


def make(synthesizer, mechanism):
    values = parameters(synthesizer)
    if mechanism is not None:
        kind = MECHANISMS[mechanism]
        public = {"public_schema": schema(), "n_bins": 4} if mechanism != "first_layer" else {}
        values["privacy"] = kind(**NOISE, **public, **OF_MECHANISM.get(mechanism, {}))
    return SYNTHESIZERS[synthesizer](**values, random_state=0)


def job_of(synthesizer, mechanism, parties):
    """The same as a job of several sites, which say themselves what is public."""
    pytest.importorskip("nacl.bindings", reason="needs the extra 'flare'")
    values = {name: own for name, own in parameters(synthesizer).items() if name != "device"}
    if mechanism is not None:
        values["privacy"] = {"mechanism": mechanism, **NOISE, **OF_MECHANISM.get(mechanism, {})}
    content = {"name": "trial", "parties": parties, "method": synthesizer, "on": KEY}
    return Job.from_dict(json.loads(json.dumps(content | {"parameters": values})))


def test_none_is_missing():
    assert set(RUNS) == set(SYNTHESIZERS)
    assert set.union(*RUNS.values()) == set(MECHANISMS)


@pytest.mark.filterwarnings("ignore::vflsynth.exceptions.NoPrivacyWarning")
@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize("synthesizer", SYNTHESIZERS)
def test_in_one_process(synthesizer, mechanism, tmp_path):
    synth = make(synthesizer, mechanism)
    reason = reason_against(synth)
    assert (reason is None) == (mechanism in RUNS[synthesizer])
    if reason is None:
        account = None if mechanism is None else PrivacyAccount.create(tmp_path / "account.json")
        table = synth.fit(frames(), KEY, account=account).sample(5)
        assert table.shape == (5, 4)
        ledger = synth.privacy_ledger_
        assert (ledger is None) == (mechanism is None)
        assert account is None or account.entries == ledger.entries
        assert account is None or account.conditions == tuple(filter(None, [ledger.condition]))
        assert bool(ledger and ledger.condition) == (mechanism == "gs_wgan")
        return
    with pytest.raises(ParameterError, match=synthesizer) as raised:
        synth.fit(frames(), KEY)
    assert str(raised.value) == str(reason)
    if mechanism is not None:
        homes = [name for name in SYNTHESIZERS if mechanism in RUNS[name]]
        assert f"{MECHANISMS[mechanism].__name__} is for {' or '.join(homes)}" in str(reason)


@pytest.mark.filterwarnings("ignore::vflsynth.exceptions.NoPrivacyWarning")
@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize("synthesizer", SYNTHESIZERS)
def test_across_processes(synthesizer, mechanism):
    """What is made here runs in `tests/unit/federation/test_every_method.py`."""
    synth, job = make(synthesizer, mechanism), job_of(synthesizer, mechanism, sorted(frames()))
    reason = reason_against(synth, across_processes=True)
    assert (reason is None) == (mechanism in ACROSS.get(synthesizer, ()))
    if reason is not None:
        with pytest.raises(ParameterError) as raised:
            job.method_for_node()
        assert str(raised.value) == str(reason)
        return
    assert job.method_for_node() is not None


@pytest.mark.parametrize("classifier", CLASSIFIERS)
def test_classifiers_run_across_processes_unless_leakage_is_measured(classifier):
    model = CLASSIFIERS[classifier]()
    assert "monitor" in str(reason_against(model, across_processes=True))
    assert reason_against(model.set_params(monitor=False), across_processes=True) is None


def test_the_reason_says_what_would_do():
    with pytest.raises(ParameterError, match="no message that may carry rows"):
        raise reason_against(make("WGANGPSynthesizer", None), across_processes=True)


def test_what_has_no_effect_is_refused():
    synth = make("VFLGANSynthesizer", "dpsgd").set_params(evaluate_every=7)
    says = "evaluate_every=7 has no effect with DPSGD; it is for no privacy or FirstLayer"
    with pytest.raises(ParameterError, match=says):
        synth.fit(frames(), KEY)
    with pytest.raises(TypeError, match="n_shards"):
        MECHANISMS["dpsgd"](n_shards=7)
