"""Smaller tables and quicker judges, for tests that do not depend on more."""

from sklearn.ensemble import (
    HistGradientBoostingClassifier,
    RandomForestClassifier,
    RandomForestRegressor,
)

from vflsynth.evaluation import detection, train_test


def narrow(frames, *kinds):
    """Keep the key and the columns of some kinds of tables of `make_party_frames`."""
    return {
        name: frame[[c for c in frame if c == "record_id" or c.split("_")[0] in kinds]]
        for name, frame in frames.items()
    }


def judge_by_few_trees(patch, n_trees, *, n_rounds=None, modules=(train_test,)):
    """Have forests of some modules, and boosting that tells rows apart, make few trees."""
    for kind in (RandomForestClassifier, RandomForestRegressor):
        for module in modules:
            patch.setattr(module, kind.__name__, _with(kind, n_estimators=n_trees))
    if n_rounds is not None:
        few_rounds = _with(HistGradientBoostingClassifier, max_iter=n_rounds)
        patch.setattr(detection, "HistGradientBoostingClassifier", few_rounds)


def _with(kind, **fixed):
    return lambda **given: kind(**given | fixed)
