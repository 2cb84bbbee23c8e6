# One line a job; `make` alone prints them. PYTHON needs to be 3.11, 3.12 or 3.13.
PYTHON ?= python3
TRACE ?= lte
TOPOLOGY ?= single_link
SECONDS ?= 600
BASE ?=
NEW ?=
REQUESTS ?= 1000
# a text of a source that no profile is made from
BENCH_TEXT ?= /usr/share/common-licenses/GPL-3
ARGS ?=
VENV_PYTHON = .venv/bin/python

.PHONY: help setup emulate virtual selftest bench compare test test-netem check fuzz soak

help:            ## print this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*##/\t/' | expand -t 12

setup:           ## system packages, .venv, model and profile; nothing to do the second time
	@$(PYTHON) testbed/bootstrap.py

emulate:         ## the main job: TTFT of each method over TRACE=lte TOPOLOGY=dumbbell; more flags in ARGS="--slo-ms 3000"
	@$(PYTHON) testbed/run.py --trace '$(TRACE)' --topology '$(TOPOLOGY)' $(ARGS)

virtual: setup   ## the controllers over all traces, objectives and lengths on a virtual clock: runs/virtual
	@rm -rf runs/virtual
	$(VENV_PYTHON) -m testbed.virtual_run -o runs/virtual $(ARGS)

selftest: setup  ## how exact the emulated link is on this machine; 3 minutes, or ARGS=--quick; runs/selftest.json
	@$(VENV_PYTHON) -m testbed.selftest $(ARGS)

bench: setup     ## size, harm and speed of every encoding on BENCH_TEXT: docs/results.md; minutes
	@test -r '$(BENCH_TEXT)' || { echo 'make bench: no $(BENCH_TEXT), which Debian and Ubuntu have; BENCH_TEXT=FILE names another text' >&2; exit 2; }
	$(VENV_PYTHON) -m cachegen bench --text '$(BENCH_TEXT)' --json docs/results.json --overwrite $(ARGS)
	$(VENV_PYTHON) -m cachegen.benchmark docs/results.json docs

compare: setup   ## whether the runs in NEW=runs/b regressed against those in BASE=runs/a: verdicts and exit status
	@$(VENV_PYTHON) -m testbed.compare $(BASE) $(NEW) $(ARGS)

# a selection in ARGS may leave nothing for one of the two: pytest then says 5
test:            ## all tests; ARGS="-k words tests/FILE" selects
	@$(PYTHON) testbed/bootstrap.py --tests
	OMP_NUM_THREADS=1 $(VENV_PYTHON) -m pytest -n logical --maxprocesses 4 --dist loadfile -m "not alone" $(ARGS) \
	  || { [ $$? = 5 ] && [ -n '$(ARGS)' ]; }
	$(VENV_PYTHON) -m pytest -m alone $(ARGS) || { [ $$? = 5 ] && [ -n '$(ARGS)' ]; }

test-netem: setup ## tests of the netem backend in a guest kernel that has it (needs user-mode-linux); a minute
	$(VENV_PYTHON) tests/guest/boot.py

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
