# One line a job; `make` alone prints them. PYTHON needs to be 3.11, 3.12 or 3.13.
PYTHON ?= python3
TRACE ?= lte
ARGS ?=
VENV_PYTHON = .venv/bin/python

.PHONY: help setup emulate test check

help:            ## print this list
	@grep -hE '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*##/\t/' | expand -t 12

setup:           ## system packages, .venv, model and profile; nothing to do the second time
	@$(PYTHON) testbed/bootstrap.py

emulate:         ## the main job: TTFT of each method over TRACE=lte; more flags in ARGS="--slo-ms 3000"
	@$(PYTHON) testbed/run.py --trace '$(TRACE)' $(ARGS)

test: setup      ## all tests
	$(VENV_PYTHON) -m pytest

check: setup     ## formatting, lint and types
	$(VENV_PYTHON) -m ruff format --check .
	$(VENV_PYTHON) -m ruff check .
	$(VENV_PYTHON) -m mypy
