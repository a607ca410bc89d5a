# `make demo` and `make test` do all set-up themselves, inside .venv and .build of this checkout.
SHELL := /bin/bash
.DELETE_ON_ERROR:
.DEFAULT_GOAL := help
# Without Python's caches each of the processes that tests start compiles what it imports anew.
unexport PYTHONDONTWRITEBYTECODE

PY := .venv/bin/python
# The machine's Python: the first that is new enough.
PYTHON ?= $(shell for python in python3.11 python3.12 python3.13 python3; do \
	"$$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo "$$python" && break; done)

.PHONY: help
help: ## list the targets
	@sed -nE 's/^([a-z]+):.*## (.*)/  make \1\t\2/p' Makefile

SETUP = test -n "$(PYTHON)" || { echo "set-up failed: no Python 3.11 or newer found; install it, or name it: make $(MAKECMDGOALS) PYTHON=/path/to/python3"; exit 1; }; \
	$(PYTHON) .setup/bootstrap.py

.PHONY: setup setup-demo setup-demo-iceberg setup-demo-kafka setup-packages setup-quick
setup: ## bring everything needed into .venv and .build
	@$(SETUP) all
setup-demo setup-demo-iceberg setup-demo-kafka setup-packages setup-quick:
	@$(SETUP) $(@:setup-%=%)

.PHONY: demo
demo: setup-demo$(addprefix -,$(filter iceberg kafka,$(PART))) ## run the main job on real data, kill it, recover, check; with PART=mirror a mirror, PART=kafka topics, PART=pipeline stages, PART=iceberg a table
	@$(PY) -m tests.demo $(PART)

.PHONY: test
test: setup ## run the tests, in five lanes (half an hour on two free cores)
	@$(PY) -m tests.lanes && echo "make test: all tests passed" || { echo "make test: FAILED"; exit 1; }

# In memory, if there is enough of it: many of these tests would wait for a disk otherwise. `make test` has those of files and stores on one.
MEMORY = $(shell df --output=avail /dev/shm 2>/dev/null | awk 'NR == 2 && $$1 > 2000000 { print "/dev/shm" }')

.PHONY: quick
quick: setup-quick ## run the tests that need no service and no Spark, and take less than half a second each (two minutes)
	@PYTEST_DEBUG_TEMPROOT=$(MEMORY) $(PY) -m pytest -n 2 --dist worksteal -m "not slow and not soak" -q && echo "make quick: passed" || { echo "make quick: FAILED"; exit 1; }

.PHONY: durations
durations: setup ## run the tests, and keep how long each file took in tests/durations.json
	@$(PY) -m tests.lanes --record

.PHONY: soak
soak: setup ## run the long tests
	@$(PY) -m pytest -m soak --timeout=0 && echo "make soak: all tests passed" || { echo "make soak: FAILED"; exit 1; }

.PHONY: bench
bench: setup ## measure against the peers, and write tests/benchmarks/results.md (an hour on two free cores; needs rclone and rsync)
	@$(PY) -m tests.benchmarks && echo "make bench: tests/benchmarks/results.md is written" || { echo "make bench: FAILED"; exit 1; }

.PHONY: proofs
proofs: setup ## run the proofs of exactly-once whole, and write tests/benchmarks/proofs.md (half a day on two free cores); with PART=matrix that part, with REST=1 what has no line of this commit
	@$(PY) -m tests.proofs $(PART) $(if $(REST),--rest) && echo "make proofs: tests/benchmarks/proofs.md is written" || { echo "make proofs: FAILED"; exit 1; }

.PHONY: check
check: setup-packages ## format, lint and types
	@$(PY) -m ruff format --check --quiet . || { echo "make check: not formatted; run: $(PY) -m ruff format ."; exit 1; }
	@$(PY) -m ruff check .
	@$(PY) -m mypy
	@echo "make check: clean"

.PHONY: wheel
wheel: setup-packages ## build the wheel into dist/
	@.build/uv/bin/uv build --quiet --wheel --python $(PY) --out-dir dist

COMPILE = .build/uv/bin/uv pip compile --quiet --universal --python-version 3.11 --no-annotate --no-header

.PHONY: pins
pins: setup-packages ## resolve .setup/pins.txt and .setup/pins-demo.txt anew
	@$(COMPILE) --upgrade --all-extras --group dev --constraints .setup/pins.in pyproject.toml --output-file .setup/pins.txt
	@$(COMPILE) --extra sql --group demo --constraints .setup/pins.txt pyproject.toml --output-file .setup/pins-demo.txt

.PHONY: clean
clean: ## remove everything that set-up, tests and builds made
	@rm -rf .venv .build dist
