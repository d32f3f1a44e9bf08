# Two commands on a fresh machine: `make demo` and `make test`. Each builds the virtual environment it needs, the second
# with all that tests, docs and federations take. `make quick` tests what breaks most often, in under a minute.
# `make bench` times losac against other libraries, each in its own environment (docs/speed.md).
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
WORKERS := 2
# Modules are compiled when they are first imported: most of the 27,000 that the tests' packages bring never are.
INSTALL := $(BIN)/pip install --quiet --disable-pip-version-check --no-compile -c constraints.txt

.PHONY: demo test quick suite lint style types docs notebooks site bench federation clean

$(VENV)/.demo: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(INSTALL) -e .
	touch $@

$(VENV)/.ready: $(VENV)/.demo reproduction/pyproject.toml
	$(INSTALL) -e '.[dev]' -e ./reproduction
	touch $@

demo: $(VENV)/.demo
	$(BIN)/losac compare --out demo --overwrite

# Types are checked while the tests run: mypy alone would leave a core idle.
test: style
	$(MAKE) --no-print-directory --jobs=2 suite types

suite: $(VENV)/.ready
	$(BIN)/pytest -n $(WORKERS) --dist worksteal

quick: $(VENV)/.ready
	$(BIN)/ruff check src tests
	$(BIN)/pytest -n $(WORKERS) --dist worksteal -m quick

lint: style types

style: $(VENV)/.ready
	$(BIN)/ruff check src tests reproduction benchmarks examples docs
	$(BIN)/ruff format --check src tests reproduction benchmarks examples docs

types: $(VENV)/.ready
	$(BIN)/mypy

docs: $(VENV)/.ready
	$(BIN)/python docs/generate_algorithms.py
	$(BIN)/python docs/generate_results.py

notebooks: $(VENV)/.ready
	$(BIN)/python docs/execute_notebooks.py

site: $(VENV)/.ready
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict --quiet
	@echo "open site/index.html"

bench: $(VENV)/.ready
	$(BIN)/python benchmarks/build.py
	$(BIN)/python benchmarks/floor.py
	$(BIN)/python benchmarks/profile_round.py
	$(BIN)/python benchmarks/run.py

federation: $(VENV)/.ready
	$(BIN)/losac deploy demo

clean:
	rm -rf $(VENV) site benchmarks/.envs benchmarks/.work demo .pytest_cache .mypy_cache .ruff_cache .hypothesis
