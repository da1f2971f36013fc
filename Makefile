# Two commands do all the set-up on a fresh machine: `make demo` and `make test`.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
# One thread per process: tests run in parallel processes, and the networks are small.
ONE    := OMP_NUM_THREADS=1 MKL_NUM_THREADS=1
PYTEST := $(ONE) $(BIN)/python -m pytest -q
# Tests start processes: one that has to compile all that it imports takes four times as long.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help demo test check format lint types doctest notebooks docs serve-docs slow browser release clean

help:            ## show this help
	@grep -hE '^[a-z-]+: .*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 14

# The pip that came with Python takes twice as long, which will do where no other is to be had.
$(BIN)/python:
	$(PYTHON) -m venv $(VENV)
	-$(BIN)/python -m pip install -q --upgrade -c constraints.txt pip

$(VENV)/.run: $(BIN)/python pyproject.toml constraints.txt
	$(BIN)/python -m pip install -q -c constraints.txt -e '.[report]'
	@touch $@

# Without bytecode, which takes a minute: most of it is never imported, the rest gets it then.
$(VENV)/.dev: $(BIN)/python pyproject.toml constraints.txt
	$(BIN)/python -m pip install -q --no-compile -c constraints.txt -e '.[dev]'
	@touch $(VENV)/.run $@

demo: $(VENV)/.run  ## two parties' real tables -> one synthetic table and a report (demo-output/)
	$(ONE) $(BIN)/vflsynth demo --output demo-output

# In three processes: those of a federation mostly wait. In the order of `tests/conftest.py`: by
# number of tests, as files go to processes otherwise, those of few long ones come last.
test: $(VENV)/.dev  ## the tests that CI runs
	$(PYTEST) -n 3 --dist loadfile --no-loadscope-reorder -m 'not slow and not browser' --ignore=tests/notebooks --ignore=tests/documentation

# Three at a time, long ones first; tests alone, as some wait for other processes.
check: $(VENV)/.dev  ## everything CI runs
	$(MAKE) -j 3 --output-sync=target notebooks doctest types docs lint
	$(MAKE) test

format: $(VENV)/.dev  ## format the code in place
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

lint: $(VENV)/.dev  ## formatting and lint rules, without changing anything
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .

types: $(VENV)/.dev  ## mypy --strict
	$(BIN)/mypy

# Pages first: processes of the tutorial mostly wait.
doctest: $(VENV)/.dev  ## the examples in docstrings, in README.md and in docs/, tutorials too
	$(PYTEST) -n 2 --dist worksteal -m 'not slow' --doctest-modules tests/documentation vflsynth

notebooks: $(VENV)/.dev  ## execute every notebook, and compare with its outputs
	$(PYTEST) -n 2 -m 'not slow' tests/notebooks

docs: $(VENV)/.dev  ## build the documentation into site/; warnings and broken links are errors
	$(ONE) NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet

serve-docs: $(VENV)/.dev  ## show the documentation while you write it
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs serve

$(VENV)/.release: $(VENV)/.run
	$(BIN)/python -m pip install -q -c constraints.txt -e '.[release]'
	@touch $@

release: $(VENV)/.release  ## build, check and try out wheel and sdist (dist/); publishes nothing
	$(BIN)/python tools/release.py $(if $(PYTHONS),--pythons $(PYTHONS))

slow: $(VENV)/.dev  ## the long tests, and mutants of the core
	$(PYTEST) -n 2 --dist loadfile -m slow
	$(ONE) $(BIN)/python -m tools.mutate

browser: $(VENV)/.dev  ## open the report in headless Chromium
	$(PYTEST) -m browser

clean:           ## remove what make created
	rm -rf $(VENV) demo-output site dist .mypy_cache .ruff_cache .pytest_cache .hypothesis
