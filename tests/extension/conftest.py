"""The example package has tests of its own, which are run where it is installed."""

collect_ignore = ["package"]
