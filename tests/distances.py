"""How far apart two columns are."""

import pandas as pd


def total_variation(one: pd.Series, other: pd.Series) -> float:
    """Half the differences between the shares of values, added up; missing ones do not count."""
    shares = [column.value_counts(normalize=True) for column in (one, other)]
    return float(shares[0].sub(shares[1], fill_value=0.0).abs().sum() / 2)
