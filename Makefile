# One line a job; `make` alone prints them. PYTHON needs to be 3.11, 3.12 or 3.13.
PYTHON ?= python3
TRACE ?= lte
SECONDS ?= 600
REQUESTS ?= 1000
# a text of a source that no profile is made from
BENCH_TEXT ?= /usr/share/common-licenses/GPL-3
ARGS ?=
VENV_PYTHON = .venv/bin/python

.PHONY: help setup emulate bench test check fuzz soak

help:            ## print this list
	@grep -hE '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*##/\t/' | expand -t 12

setup:           ## system packages, .venv, model and profile; nothing to do the second time
	@$(PYTHON) testbed/bootstrap.py

emulate:         ## the main job: TTFT of each method over TRACE=lte; more flags in ARGS="--slo-ms 3000"
	@$(PYTHON) testbed/run.py --trace '$(TRACE)' $(ARGS)

bench: setup     ## size, harm and speed of every encoding on BENCH_TEXT: docs/results.md; minutes
	@test -r '$(BENCH_TEXT)' || { echo 'make bench: no $(BENCH_TEXT), which Debian and Ubuntu have; BENCH_TEXT=FILE names another text' >&2; exit 2; }
	$(VENV_PYTHON) -m cachegen bench --text '$(BENCH_TEXT)' --json docs/results.json --overwrite $(ARGS)
	$(VENV_PYTHON) -m cachegen.benchmark docs/results.json docs

test:            ## all tests
	@$(PYTHON) testbed/bootstrap.py --tests
	$(VENV_PYTHON) -m pytest $(ARGS)

check: setup     ## formatting, lint and types
	$(VENV_PYTHON) -m ruff format --check .
	$(VENV_PYTHON) -m ruff check .
	$(VENV_PYTHON) -m mypy

fuzz: setup      ## hostile bytes for SECONDS=600 each: containers, profiles, manifests; findings land in runs/fuzz
	@for kind in container profile manifest; do mkdir -p runs/fuzz/$$kind && \
	  $(VENV_PYTHON) tests/fuzz/fuzz.py $$kind runs/fuzz/$$kind/corpus -max_total_time=$(SECONDS) \
	  -artifact_prefix=runs/fuzz/$$kind/ || exit 1; done

soak: setup      ## REQUESTS=1000 beside writers, eviction and random faults: no wrong token, no leak, nothing stuck
	$(VENV_PYTHON) -m bench.soak --requests $(REQUESTS) $(ARGS)
