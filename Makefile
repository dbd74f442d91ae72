# Every target sets itself up: it makes .venv, installs what it needs, and does nothing when nothing changed.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP_INSTALL := $(BIN)/python -m pip install -qq --disable-pip-version-check -c requirements.lock

.PHONY: demo test test-all test-matrix test-matrix-short check format bench lock clean help
.DEFAULT_GOAL := help

help:  ## list the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 20

demo: $(VENV)/.run  ## the main job on a built-in corpus
	@$(BIN)/trafo demo --config configs/demo.yaml

# Two cores halve the time; a file stays with one process, which keeps what its tests share. The
# order is that of tests/conftest.py: by the number of tests, the longest files would come last.
PYTEST := $(BIN)/python -m pytest -n auto --maxprocesses 4 --dist loadfile --no-loadscope-reorder

# Ray takes a node that waits too long for a core or the disk for dead, so its tests have the machine
# to themselves, after the others' files are written.
CLUSTER := $(BIN)/python -m pytest --timeout 300 tests/cluster

test: $(VENV)/.dev  ## the test suite, in minutes
	@$(PYTEST) -m 'not slow and not cluster'
	@sync; $(CLUSTER) -m 'not slow and cluster'

test-all: $(VENV)/.dev  ## the slow tests too, and new random examples
	@$(PYTEST) -m 'not cluster' --hypothesis-profile=random
	@$(CLUSTER) -m cluster --hypothesis-profile=random

test-matrix: $(VENV)/.dev  ## a built wheel on every Python, with locked, newest and oldest packages
	@$(BIN)/python tests/matrix/run.py

test-matrix-short: $(VENV)/.dev  ## the same on one other Python, with the newest packages
	@$(BIN)/python tests/matrix/run.py --short

check: $(VENV)/.dev  ## format, lint, types, layers
	@echo "format  ruff format --check"; $(BIN)/ruff format --quiet --check . || { echo "run 'make format'"; exit 1; }
	@echo "lint    ruff check";          $(BIN)/ruff check --quiet .
	@echo "types   mypy --strict";       $(BIN)/mypy
	@echo "layers  import-linter";       $(BIN)/lint-imports --no-cache >$(VENV)/layers.log || { cat $(VENV)/layers.log; exit 1; }

format: $(VENV)/.dev  ## rewrite the sources in the house style
	@$(BIN)/ruff format --quiet .
	@$(BIN)/ruff check --quiet --fix .

bench: $(VENV)/.dev  ## the table of docs/benchmarks.md, trafo and its peers alternating
	@$(BIN)/python benchmarks/run.py

lock: $(VENV)/.dev  ## write requirements.lock anew from what is installed
	@$(BIN)/python -m pip freeze --exclude-editable | sed 's/+cpu$$//' >requirements.lock

clean:  ## remove .venv, caches and results
	@rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis runs
	@find src tests benchmarks -name __pycache__ -type d -prune -exec rm -rf {} +

$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "trafo needs Python 3.11 or newer; set PYTHON=/path/to/python3.11"; exit 2; }
	@echo "setup   making $(VENV)"
	@$(PYTHON) -m venv $(VENV)

$(VENV)/.run: pyproject.toml requirements.lock | $(VENV)/bin/python
	@echo "setup   installing trafo into $(VENV)"
	@$(PIP_INSTALL) -e '.[train,serve]'
	@touch $@

$(VENV)/.dev: $(VENV)/.run
	@echo "setup   installing the test tools and the peers"
	@$(PIP_INSTALL) -e '.[train,serve,parquet,gguf,cluster,peers,dev]'
	@touch $@
