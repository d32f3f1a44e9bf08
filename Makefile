# Two commands on a fresh machine: `make demo` and `make test`. Each builds the virtual environment it needs, the second
# with all that tests, docs and federations take.
# `make bench` times losac beside other libraries, each in an environment of its own (docs/speed.md).
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

.PHONY: demo test lint docs notebooks site bench federation clean

$(VENV)/.demo: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e .
	touch $@

$(VENV)/.ready: $(VENV)/.demo
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	touch $@

demo: $(VENV)/.demo
	$(BIN)/losac compare --out demo --overwrite

test: $(VENV)/.ready lint
	$(BIN)/pytest -n 2 --dist worksteal

lint: $(VENV)/.ready
	$(BIN)/ruff check src tests benchmarks examples docs
	$(BIN)/ruff format --check src tests benchmarks examples docs
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
