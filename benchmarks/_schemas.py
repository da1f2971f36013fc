"""Public schemas of the benchmark tables: what their documentation says, not their records.

Categories are those of the data sets' descriptions at the UCI repository, whether or not they
occur. Bounds are physical or legal ranges, or round numbers well beyond anything plausible; none
was chosen by looking at a column's smallest or largest value, but those of "small-tight".
"""

from __future__ import annotations

from dataclasses import replace

from benchmarks._data import BenchmarkTable
from vflsynth.privacy import PublicSchema

WINE = PublicSchema(
    dtypes="given",
    bounds={
        "fixed acidity": (0, 20),  # g/l tartaric acid
        "volatile acidity": (0, 3),  # g/l acetic acid; above the legal limit it is vinegar
        "citric acid": (0, 2),  # g/l; the law allows 1
        "residual sugar": (0, 100),  # g/l, dry to sweet
        "chlorides": (0, 1),  # g/l
        "free sulfur dioxide": (0, 300),  # mg/l
        "total sulfur dioxide": (0, 500),  # mg/l; the law allows 400 at most
        "density": (0.95, 1.05),  # g/ml, from alcohol-rich to sugar-rich
        "pH": (2, 5),
        "sulphates": (0, 3),  # g/l potassium sulphate
        "alcohol": (5, 20),  # % by volume
    },
    categories={"quality": tuple(range(11))},  # graded from 0 to 10
)

# adult.names
ADULT = PublicSchema(
    dtypes="given",
    bounds={
        "age": (0, 100),
        "fnlwgt": (0, 2_000_000),
        "education-num": (1, 16),
        "capital-gain": (0, 100_000),
        "capital-loss": (0, 10_000),
        "hours-per-week": (0, 100),
    },
    categories={
        "workclass": (
            *("Private", "Self-emp-not-inc", "Self-emp-inc", "Federal-gov", "Local-gov"),
            *("State-gov", "Without-pay", "Never-worked"),
        ),
        "education": (
            *("Bachelors", "Some-college", "11th", "HS-grad", "Prof-school", "Assoc-acdm"),
            *("Assoc-voc", "9th", "7th-8th", "12th", "Masters", "1st-4th", "10th", "Doctorate"),
            *("5th-6th", "Preschool"),
        ),
        "marital-status": (
            *("Married-civ-spouse", "Divorced", "Never-married", "Separated", "Widowed"),
            *("Married-spouse-absent", "Married-AF-spouse"),
        ),
        "occupation": (
            *("Tech-support", "Craft-repair", "Other-service", "Sales", "Exec-managerial"),
            *("Prof-specialty", "Handlers-cleaners", "Machine-op-inspct", "Adm-clerical"),
            *("Farming-fishing", "Transport-moving", "Priv-house-serv", "Protective-serv"),
            "Armed-Forces",
        ),
        "relationship": (
            *("Wife", "Own-child", "Husband", "Not-in-family", "Other-relative", "Unmarried"),
        ),
        "race": ("White", "Asian-Pac-Islander", "Amer-Indian-Eskimo", "Other", "Black"),
        "sex": ("Female", "Male"),
        "native-country": (
            *("United-States", "Cambodia", "England", "Puerto-Rico", "Canada", "Germany"),
            *("Outlying-US(Guam-USVI-etc)", "India", "Japan", "Greece", "South", "China", "Cuba"),
            *("Iran", "Honduras", "Philippines", "Italy", "Poland", "Jamaica", "Vietnam", "Mexico"),
            *("Portugal", "Ireland", "France", "Dominican-Republic", "Laos", "Ecuador", "Taiwan"),
            *("Haiti", "Columbia", "Hungary", "Guatemala", "Nicaragua", "Scotland", "Thailand"),
            *("Yugoslavia", "El-Salvador", "Trinadad&Tobago", "Peru", "Hong"),
            "Holand-Netherlands",
        ),
        "income": ("<=50K", ">50K"),
    },
)

_MAY_BE_UNKNOWN = ("workclass", "occupation", "native-country")
ADULT_WITH_UNKNOWN = PublicSchema(
    dtypes="given",
    bounds=ADULT.bounds,
    categories={
        name: (*values, "?") if name in _MAY_BE_UNKNOWN else values
        for name, values in ADULT.categories.items()
    },
)
"""Of all rows of Adult, in which ``?`` is a label."""

# The data set's own table of codes.
_CODES = {
    "status": (1, 4),
    "credit_history": (0, 4),
    "purpose": (0, 10),
    "savings": (1, 5),
    "employment_duration": (1, 5),
    "installment_rate": (1, 4),
    "personal_status_sex": (1, 4),
    "other_debtors": (1, 3),
    "present_residence": (1, 4),
    "property": (1, 4),
    "other_installment_plans": (1, 3),
    "housing": (1, 3),
    "number_credits": (1, 4),
    "job": (1, 4),
    "people_liable": (1, 2),
    "telephone": (1, 2),
    "foreign_worker": (1, 2),
    "credit_risk": (0, 1),
}
SOUTH_GERMAN_CREDIT = PublicSchema(
    dtypes="given",
    bounds={"duration": (0, 120), "amount": (0, 25_000), "age": (18, 100)},  # months, DM, years
    categories={name: tuple(range(low, high + 1)) for name, (low, high) in _CODES.items()},
)

_SYMPTOMS = (
    *("Fever", "Nausea/Vomting", "Headache", "Diarrhea", "Fatigue & generalized bone ache"),
    *("Jaundice", "Epigastric pain"),
)
_TRANSAMINASES = (
    *("AST 1", "ALT 1", "ALT4", "ALT 12", "ALT 24", "ALT 36", "ALT 48", "ALT after 24 w"),
)
HCV = PublicSchema(
    dtypes="given",
    bounds={
        "Age": (18, 100),
        "BMI": (10, 60),
        "WBC": (0, 50_000),  # per microlitre
        "RBC": (0, 10_000_000),
        "HGB": (0, 25),  # g/dl
        "Plat": (0, 1_000_000),
        **dict.fromkeys(_TRANSAMINASES, (0, 500)),  # U/l
        **dict.fromkeys(("RNA Base", "RNA 4", "RNA 12", "RNA EOT", "RNA EF"), (0, 10_000_000)),
        "Baseline histological Grading": (0, 18),  # Ishak
    },
    categories={
        "Gender": (1, 2),
        **dict.fromkeys(_SYMPTOMS, (1, 2)),
        "Baselinehistological staging": (0, 1, 2, 3, 4),  # F0 to F4
    },
)

SMALL_MIXED = PublicSchema(
    dtypes="given",
    bounds={"age": (18, 100), "income": (0, 500_000), "bmi": (10, 60), "visits": (0, 50)},
    categories={
        "region": ("north", "south", "east", "west"),
        "smoker": ("yes", "no"),
        "ill": ("yes", "no"),
    },
)

SMALL_TIGHT = replace(
    SMALL_MIXED,
    bounds={"age": (18, 90), "income": (0, 150_000), "bmi": (14, 40), "visits": (0, 20)},
)
"""Of the same records, by somebody who knows how far they reach."""

_PUBLIC = {
    "red-wine": (WINE, 5e-4, 1_600),
    "white-wine": (WINE, 2e-4, 4_900),
    "adult": (ADULT, 1e-5, 43_000),
    "south-german-credit": (SOUTH_GERMAN_CREDIT, 1e-3, 1_000),
    "hcv": (HCV, 8e-4, 1_400),
    "small-mixed": (SMALL_MIXED, 5e-4, 1_000),
    "small-tight": (SMALL_TIGHT, 5e-4, 1_000),
}
SCHEMAS = {name: schema for name, (schema, _, _) in _PUBLIC.items()}
DELTAS = {name: delta for name, (_, delta, _) in _PUBLIC.items()}
"""The paper's (Table 1), but for the generated table."""

N_RECORDS = {name: n for name, (_, _, n) in _PUBLIC.items()}
"""Rough public sizes, of which DP-SGD's sample rates are computed."""


def schema_of(table: BenchmarkTable) -> PublicSchema:
    """Return a table's public schema; of Adult, according to whether `?` is a label there."""
    if table.name == "adult" and (table.joined()["workclass"] == "?").any():
        return ADULT_WITH_UNKNOWN
    return SCHEMAS[table.name]
