# All tasks of this repository. `make help` lists them.
# PYTHON is only used to create .venv; everything else runs inside it.

PYTHON ?= python3
RUN := .venv/bin/python

.DEFAULT_GOAL := help
.PHONY: help setup venv demo test heavy check sim fuzz format bench dist image distcheck clean

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-9s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

venv: ## Create .venv with the package and its test tools (other targets do this first)
	@$(PYTHON) tools/bootstrap.py

setup: ## Create .venv and everything for the tests: control plane, training frameworks (once, about 15 minutes)
	@$(PYTHON) tools/bootstrap.py --tools

demo: ## Train a PyTorch model on two nodes and clean up (DEMO=numpy: without torch)
	@$(PYTHON) tools/bootstrap.py --package-only
	@$(RUN) tools/demo.py

test: setup ## Run all tests, tier by tier (TIERS="unit wire" for some, ARGS="-x -k name" for pytest)
	@$(RUN) tools/testrun.py $(TIERS) -- $(ARGS)

heavy: setup ## Run the slow tests: FSDP, DeepSpeed, elastic jobs, frameworks of v1 jobs; without ARGS also 200 kills and distcheck (25 minutes)
	@$(RUN) tools/frameworks.py paddle mxnet || true
	@$(RUN) tools/toolbox.py ensure heavy
	@$(RUN) tools/scrub.py $(RUN) -m pytest -q tests/node/heavy_frameworks.py tests/node/heavy_v1_examples.py $(ARGS)
	@$(RUN) tools/scrub.py $(RUN) -m pytest -q tests/seam/heavy_failover.py tests/seam/heavy_outages.py tests/cluster/heavy_torch.py $(ARGS)
	@$(RUN) tools/scrub.py $(RUN) -m pytest -q tests/seam/heavy_kueue.py tests/seam/heavy_gangs.py $(ARGS)
	@TRAINMASTER_OLDER_KUBERNETES=true $(RUN) tools/scrub.py $(RUN) -m pytest -q -m kube tests/seam/test_admission.py tests/seam/test_same_objects.py tests/seam/test_v1_cluster.py tests/flow/test_trainjob_flow.py $(ARGS)
	@$(if $(ARGS),,TRAINMASTER_CHAOS_KILLS=100 $(RUN) tools/scrub.py $(RUN) -m pytest -q -s tests/crash/test_chaos.py)
	@$(if $(ARGS),,$(RUN) tools/distcheck.py)

check: venv ## Run the quick checks: format, lint, types, imports and unit tests (under 2 minutes)
	@$(RUN) tools/testrun.py --quick -- $(ARGS)

SEEDS ?= 2000
sim: venv ## Simulate SEEDS=n seeds with faults (ARGS="--from 7000", or ARGS="--seed 4711" for one with its timeline)
	@$(RUN) tools/sim.py --seeds $(SEEDS) $(ARGS)

MINUTES ?= 20
SECONDS ?= $$(( $(MINUTES) * 60 ))
SEED ?=
fuzz: venv ## Run generated attacks for MINUTES=n or SECONDS=n (SEED=n to repeat; ARGS="--replay FILE"); needs root
	@$(RUN) tools/fuzz.py --seconds $(SECONDS) $(if $(SEED),--seed $(SEED)) $(ARGS)

format: venv ## Format the code and sort imports
	@$(RUN) -m ruff check --quiet --fix --select I .
	@$(RUN) -m ruff format --quiet .

bench: setup ## Run all benches and write docs/performance.md (ARGS="startup cli": some, without the page; --resume, --anyway)
	@$(RUN) tools/benchrun.py $(ARGS)

dist: ## Build wheel, sdist and checksums of the current commit in dist/; the same commit gives the same bytes
	@$(PYTHON) tools/bootstrap.py --package-only
	@$(RUN) tools/dist.py

image: dist ## Write the image of the current commit to dist/, without a container engine (on Debian; NAME=registry/name:tag)
	@$(RUN) tools/image.py dist/trainmaster-*.whl $(if $(NAME),--name $(NAME))

distcheck: setup ## Install the wheel into an empty environment and run the e2e tests with it (ARGS="-x -k name" for pytest)
	@$(RUN) tools/distcheck.py $(ARGS)

clean: ## Remove everything these targets created in this checkout (not the cache in your home)
	@rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache build dist
