"""The page of results is that of the recorded results."""

from benchmarks.all_results import PAGE, page


def test_the_page_of_results_is_up_to_date():
    assert PAGE.read_text(encoding="utf-8") == page(), "run: python -m benchmarks.all_results"
