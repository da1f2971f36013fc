"""Party frames that are full of exact relations."""

import numpy as np
import pandas as pd


def make_structured_frames(n_records, random_state):
    """Generate tables of two parties that are full of exact relations; the key is `record_id`.

    Within the hospital ``discharge`` is ``admission`` plus ``stay`` days, ``bmi`` is weight by
    height squared, ``ward`` is one of some 40 codes that are scattered over the floors ``x`` and
    ``y`` they stand for, ``diastolic`` is never above ``systolic``, ``reason`` is missing exactly
    where ``outcome`` is "home", ``weekday`` is that of ``admission``, and ``rest``, ``walking`` and
    ``sports`` are shares of a hundred. Within the insurer ``total`` is ``net`` plus ``tax``,
    ``paid`` is ``rate`` times ``periods``, ``grade`` and ``points`` say the same, ``grade``
    determines ``class``, ``visits`` is zero exactly where ``minutes`` is, ``until`` is ``since``
    and ``term`` months, and ``band`` says where ``net`` lies. Across both, ``billed`` is ``paid``
    plus the hospital's ``fee``.
    """
    rng, n = np.random.default_rng(random_state), n_records
    u = rng.standard_normal(n)
    admission = np.datetime64("2022-01-01", "us") + rng.integers(0, 700, n).astype("m8[D]")
    stay = rng.poisson(np.exp(1 + 0.5 * u))
    height, weight = rng.normal(1.72, 0.1, n).round(2), rng.normal(75, 12, n).round(1)
    place, codes = rng.integers(0, 40, n), 101 + rng.permutation(900)[:40]
    systolic = rng.normal(125 + 5 * u, 12, n).round()
    outcome = np.array(["home", "moved", "died"])[np.digitize(u + rng.normal(size=n), [0, 1.5])]
    reason = np.array(["heart", "lung", "other"], dtype=object)[rng.integers(0, 3, n)]
    reason[outcome == "home"] = None
    fee = rng.gamma(3, 20, n).round(2)
    grade = np.clip(np.floor(4 + 1.5 * u + rng.normal(size=n)), 0, 8).astype("int64")
    net, tax = rng.gamma(4, 50, n).round(2), rng.gamma(2, 10, n).round(2)
    rate, periods = rng.gamma(5, 3, n).round(2), rng.integers(2, 37, n)
    minutes = np.where(u + rng.normal(size=n) < -0.7, 0, rng.poisson(40, n) + 1)
    shares = rng.multinomial(100, rng.dirichlet([2, 3, 1], n))
    since, term = admission + rng.integers(-900, 900, n).astype("m8[D]"), rng.choice([6, 12, 24], n)
    until = [
        pd.Timestamp(one) + pd.DateOffset(months=int(months)) for one, months in zip(since, term)
    ]
    hospital = {
        "admission": admission,
        "discharge": admission + stay.astype("m8[D]"),
        "stay": stay,
        "height": height,
        "weight": weight,
        "bmi": (weight / (height * height)).round(1),
        "ward": codes[place],
        "x": (place % 8 + rng.random(n)).round(3),
        "y": (place // 8 + rng.random(n)).round(3),
        "systolic": systolic,
        "diastolic": systolic - rng.gamma(3, 8, n).round(),
        "outcome": outcome,
        "reason": pd.Series(reason, dtype="str"),
        "fee": fee,
        "weekday": pd.Series(admission).dt.day_of_week.to_numpy(),
        **dict(zip(("rest", "walking", "sports"), shares.T)),
    }
    insurer = {
        "net": net,
        "tax": tax,
        "total": (net + tax).round(2),
        "rate": rate,
        "periods": periods,
        "paid": (rate * periods).round(2),
        "grade": np.array([f"grade {letter}" for letter in "abcdefghi"])[grade],
        "points": 10 * (grade + 3),
        "class": np.array(["low", "middle", "high"])[grade // 3],
        "minutes": minutes,
        "visits": np.where(minutes == 0, 0, 1 + rng.poisson(1 + minutes / 20)),
        "billed": (rate * periods + fee).round(2),
        "since": since,
        "term": term,
        "until": np.array(until, "M8[us]"),
        "band": np.array(["small", "usual", "large"])[np.digitize(net, [120, 250])],
    }
    keys = 1000 + rng.permutation(n)
    frames = {"hospital": pd.DataFrame(hospital), "insurer": pd.DataFrame(insurer)}
    for frame in frames.values():
        frame.insert(0, "record_id", keys)
    return {
        party: frame.sample(frac=1, random_state=rng, ignore_index=True)
        for party, frame in frames.items()
    }
