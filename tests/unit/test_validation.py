import numpy as np
import pytest

from vflsynth.exceptions import ParameterError
from vflsynth.registry import Choice, Map, Number, Optional, Pair, Sizes, check_parameters


@pytest.mark.parametrize(
    ("rule", "good", "bad"),
    [
        (
            Number(0),
            [0, 1.5, np.float32(2), np.int8(3)],
            [-1, np.nan, np.inf, "1", None, True, 10**400],
        ),
        (Number(2, whole=True), [2, np.int64(9)], [1, 2.0, np.float64(2), True]),
        (Number(0, 1, closed=(False, True)), [0.5, 1], [0, 1.1]),
        (Number(0, 1, closed=(True, False)), [0, 0.99], [1, -0.1]),
        (Choice(("a", "b")), ["a"], ["c", None, 1]),
        (Choice((True, False)), [True], [1, 0, "True", None]),
        (Sizes(), [(1,), [4, np.int64(2)]], [(), 3, "12", (0,), (1.5,), None]),
        (Sizes(at_least=0), [()], [3]),
        (Pair(Number(0)), [(0, 1), [0.5, 2]], [(1,), (1, 2, 3), "ab", (-1, 1), 3]),
        (Optional(Number(1)), [None, 3], [0, "None"]),
        (Map("column to kind"), [{}, {"x": 3}], [None, [], "x"]),
        (Map("party to columns", list), [{}, {"x": [3]}], [{"x": 3}, {"x": "ab"}]),
    ],
    ids=str,
)
def test_rules(rule, good, bad):
    for value in good:
        check_parameters("Thing", {"x": value}, {"x": rule})
    for value in bad:
        with pytest.raises(ParameterError) as caught:
            check_parameters("Thing", {"x": value}, {"x": rule})
        assert str(caught.value) == f"Thing: x must be {rule}, got {value!r}"


def test_rules_read_as_english():
    assert str(Number(1, whole=True)) == "a whole number ≥ 1"
    assert str(Number(0, 1, closed=(False, True))) == "a number in (0, 1]"
    assert str(Number(0, closed=(False, True))) == "a number > 0"
    assert str(Optional(Choice(("a", "b")))) == "None or 'a' or 'b'"
    assert str(Sizes(2)) == "a sequence of at least 2 whole numbers ≥ 1"
    assert str(Pair(Number(0))) == "a pair, each a number ≥ 0"


def test_an_error_can_be_caught_as_a_value_error():
    with pytest.raises(ValueError, match="Thing"):
        check_parameters("Thing", {"x": -1}, {"x": Number(0)})
