# Needs make and Python 3.11 or newer; everything else goes into .venv.
# The first Python that is new enough; `make PYTHON=/path/to/python3.12 …` names another.
PYTHON ?= $(or $(shell for python in python3 python3.13 python3.12 python3.11; do \
  $$python -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$python && break; done),python3)
BIN := .venv/bin

# Tests and demos start many processes; where bytecode is not kept each of them compiles all of eddy again.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help demo demo-kafka demo-live test quick checks test-stress test-long torture bench format venv clean screenshots

help: ## list these targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-11s %s\n", $$1, $$2 }' Makefile

demo: .venv/.core ## count all descendants of WordNet's nouns, while they move
	@$(BIN)/python examples/wordnet/demo.py

demo-kafka: .venv/.kafka ## the same on Kafka, with two workers and a crash; needs Java 17
	@$(BIN)/python examples/wordnet/demo_kafka.py

demo-live: .venv/.http ## trees in the browser: WordNet while subtrees move, and permissions, until Ctrl-C
	@$(BIN)/python examples/demo_live.py

# A test process that crashes ends the run: with groups of tests, xdist would wait for ever for another one.
PARALLEL = --dist loadgroup --max-worker-restart=0

test: checks .venv/.compiled ## check format, lint, types and layers, then run the tests
	$(BIN)/pytest -n 6 $(PARALLEL) --turns

quick: checks ## the same with the tests that need one process alone, and few examples; two minutes
	EDDY_EXAMPLES=10 EDDY_STORIES=2 $(BIN)/pytest -q -n 3 $(PARALLEL) --quick -rfE

checks: .venv/.dev # format, lint, types and layers
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

test-stress: .venv/.dev ## run TESTS, TIMES alone and TIMES four at once: TIMES=20 TESTS=tests/faust
	@$(BIN)/python -m tests.stress $(or $(TIMES),20) $(or $(TESTS),tests/connectors tests/faust tests/cli)

test-long: .venv/.dev ## run the long form of every law; more than an hour
	EDDY_ALL_PROGRAMS=1 $(BIN)/pytest -n 4 $(PARALLEL) -m long --turns
	EDDY_ALL_PROGRAMS=1 $(BIN)/pytest tests/client
	EDDY_EXAMPLES=200 $(BIN)/pytest -n 2 tests/operators tests/sql tests/state tests/topology
	$(BIN)/python -m tests.torture

torture: .venv/.dev ## kill workers and brokers, over and over, and compare; some 20 minutes
	$(BIN)/python -m tests.torture

bench: .venv/.dev ## measure, and print the figures
	$(BIN)/python -m benchmarks

format: .venv/.dev ## format the code and mend what ruff can mend
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

venv: .venv/.dev # make .venv with all that development needs

clean: ## remove .venv, caches and builds
	rm -rf .venv build dist .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

screenshots: .venv/.dev # save pictures of the pages in build/screenshots; needs Chromium
	mkdir -p build/screenshots
	EDDY_ALL_PROGRAMS=1 EDDY_SCREENSHOTS=build/screenshots $(BIN)/pytest -q tests/client

# What the demo needs is quick to install; what development needs includes it, and what Kafka needs.
.venv/.core: $(BIN)/python pyproject.toml
	$(BIN)/python -m pip install --quiet -e .
	@touch $@

.venv/.http: .venv/.core
	$(BIN)/python -m pip install --quiet -e '.[http]'
	@touch $@

.venv/.kafka: .venv/.core
	@"$${JAVA_HOME:+$$JAVA_HOME/bin/}java" -version >/dev/null 2>&1 || { \
	  echo "no Java runtime was found; a Kafka broker needs one, 17 or later." \
	    "On Debian: apt-get install openjdk-17-jre-headless; or name its folder: make JAVA_HOME=DIR $(MAKECMDGOALS)" >&2; exit 1; }
	$(BIN)/python -m pip install --quiet -e '.[http,kafka,spark]'
	@touch $@

.venv/.dev: $(BIN)/python pyproject.toml
	$(BIN)/python -m pip install --quiet -e '.[dev]'
	@touch .venv/.core .venv/.http .venv/.kafka $@

# Once in a new venv, one process compiles all tests; else each of the six would.
.venv/.compiled: .venv/.dev
	@$(BIN)/pytest -q --collect-only >/dev/null || true
	@touch $@

$(BIN)/python:
	@found="$$($(PYTHON) -c 'import platform; print(platform.python_version())' 2>/dev/null)"; \
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
	  echo "PYTHON=$(PYTHON): found $${found:-no Python}; Python 3.11 or newer is needed." \
	    "Name one: make PYTHON=python3.11 $(MAKECMDGOALS)" >&2; exit 1; }
	@$(PYTHON) -m venv .venv || { rm -rf .venv; \
	  echo "PYTHON=$(PYTHON): cannot make a venv; its module venv is needed. On Debian: apt-get install python3-venv" >&2; exit 1; }
