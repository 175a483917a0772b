# Each Python version has its own environment, so that switching PYTHON never mixes packages.
PYTHON ?= python3
ARGS ?=

# A pyenv shim refuses a version that is installed but not activated; then take it from pyenv's own folder.
INTERPRETER := $(firstword $(shell $(PYTHON) -c 'import sys; print(sys.executable)' 2>/dev/null) \
                 $(wildcard $(shell pyenv root 2>/dev/null)/versions/*/bin/$(PYTHON)))
VERSION := $(if $(INTERPRETER),$(shell $(INTERPRETER) -c 'import sys; print("%d.%d" % sys.version_info[:2])'))
VENV := $(if $(filter python3,$(PYTHON)),.venv,.venv-$(VERSION))
BIN := $(VENV)/bin
INSTALL := $(BIN)/python -m pip install -qq --disable-pip-version-check -c constraints.txt
# The optional features are tested, so their packages come along.
EXTRAS := dev,sklearn,report,dask

.PHONY: help demo test test-fuzz lint format bench figures clean
.DEFAULT_GOAL := help

help: ## list the targets
	@echo "make TARGET [PYTHON=python3.13] [ARGS='options for the script or for pytest']"
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-9s %s\n", $$1, $$2 }' Makefile

demo: $(VENV)/.installed ## run the demo
	$(BIN)/python examples/demo.py $(ARGS)

# One BLAS thread: on small matrices more of them only wait for each other.
export OMP_NUM_THREADS = 1
export OPENBLAS_NUM_THREADS = 1

test: lint ## lint, check types, run all tests
	$(BIN)/python -m pytest -n 2 $(ARGS)

MINUTES ?= 10

test-fuzz: $(VENV)/.installed ## fit problems that nobody would choose, new ones each time, for MINUTES=10 or until one fails
	@end=$$(($$(date +%s) + 60 * $(MINUTES))); while [ $$(date +%s) -lt $$end ]; do \
	  FUZZ=long $(BIN)/python -m pytest -q -n 2 tests/test_fuzz.py $(ARGS) || exit 1; done

lint: $(VENV)/.installed ## check style and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(VENV)/.installed ## fix style
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(VENV)/.installed-bench ## compare with other packages
	$(BIN)/python examples/benchmarks/run.py $(ARGS)

figures: $(VENV)/.installed ## draw the figures of the documentation
	$(BIN)/python examples/figures.py $(ARGS)

clean: ## remove the environments, caches and builds
	rm -rf .venv .venv-* .hypothesis .mypy_cache .pytest_cache .ruff_cache build dist
	find sbl_ppl tests examples -name __pycache__ -prune -exec rm -rf {} +

$(VENV)/.installed: pyproject.toml constraints.txt
	@test -n "$(INTERPRETER)" || { echo "PYTHON=$(PYTHON) does not run: install it, or give its path"; exit 1; }
	@$(INTERPRETER) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "$(PYTHON) is Python $(VERSION), but 3.11 or newer is needed: try make PYTHON=python3.12"; exit 1; }
	@echo "Installing into $(VENV) with Python $(VERSION); the first time takes a minute or two."
	@$(INTERPRETER) -m venv $(VENV)
	@$(INSTALL) -e '.[$(EXTRAS)]'
	@touch $@

$(VENV)/.installed-bench: $(VENV)/.installed
	@$(INSTALL) -e '.[bench]'
	@touch $@
