# `make` lists the targets. Everything runs in .venv, which is made on first use and renewed when
# pyproject.toml or constraints.txt change. `make run` puts into it only what the command needs.

VENV ?= .venv
# An interpreter to prefer; else the first one found that is new enough.
PYTHON ?=
# How long to fuzz.
SECONDS ?= 60
# Tests wait for processes more than they compute, so there are twice as many as cores.
WORKERS ?= $(shell echo $$(( $$(getconf _NPROCESSORS_ONLN) * 2 )))
# How many sessions `make soak` runs.
SESSIONS ?= 2000
# The version of Claude Code that `make canary` tries.
VERSION ?= latest
# More arguments for pytest: make test ARGS="-k framing -x"
ARGS ?=
# AGENT=no: do without Claude Code, which the tests install from npm. APT=yes: install PostgreSQL, Redis
# and Chromium with apt-get where they are missing, as CI does.
AGENT ?= yes
APT ?= $(if $(CI),yes,no)

BIN := $(VENV)/bin
PY := $(BIN)/python
# The name holds the folder's checksum: an environment that was copied or moved along with its checkout
# would still import the old one, so it counts as absent and is made anew.
PLACE := $(shell pwd | cksum | cut -d' ' -f1)
STAMP := $(VENV)/.installed-$(PLACE)
COMMAND_STAMP := $(VENV)/.command-$(PLACE)
FUZZ_STAMP := .venv-fuzz/.installed-$(PLACE)
DOCS_STAMP := .venv-docs/.installed-$(PLACE)

# What the type checkers read; folders that are absent are left out. fuzz/ is: atheris is not installed here.
TYPED := $(wildcard src tests scripts benchmarks)

PIP_INSTALL = $(PY) -m pip --disable-pip-version-check install -qq --constraint constraints.txt
# Without it, pip would build with the newest hatchling. Not for the first call: older pips do not know it.
PINNED_BUILD = --build-constraint constraints.txt

# The pinned wheel brings its own pyright; these could replace it by another version or another node.
unexport PYRIGHT_PYTHON_FORCE_VERSION
unexport PYRIGHT_PYTHON_PYLANCE_VERSION
export PYRIGHT_PYTHON_GLOBAL_NODE := off
export PYRIGHT_PYTHON_IGNORE_WARNINGS := 1

# The checks announce themselves in a fixed order and share a few cores: -j would only mix their output.
.NOTPARALLEL:
.DEFAULT_GOAL := help

.PHONY: help
help: ## list the targets
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "  make %-11s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

.PHONY: run
run: $(COMMAND_STAMP) ## show a live session: no key, no network
	@$(BIN)/outrider demo

# The program that Outrider drives, for the tests that need it; where it cannot be had, they are skipped.
.PHONY: agent
agent: $(STAMP)
	@$(PY) scripts/agent_program.py $(if $(filter no,$(AGENT)),--without)

# PostgreSQL and Redis, for the tests of the stores, which start their own; Chromium, and with npm axe-core, for
# those of pages. Where they cannot be had, these are skipped.
AXE := build/axe
.PHONY: servers
servers: $(STAMP)
	@$(PY) scripts/test_servers.py $(if $(filter yes,$(APT)),--apt)
	@test -e $(AXE) || ! command -v npm >/dev/null || npm install --silent --no-audit --no-fund \
		--fetch-retries=1 --prefix $(AXE) axe-core@4.14.0 >/dev/null || echo "axe-core cannot be had"

# Of the tests that need Claude Code itself, a few are among these; `make conformance` has all of them. Of a test
# with several cases, each runs on one event loop: ARGS=--every-loop runs it on all of them.
.PHONY: test
test: $(STAMP) agent servers ## run the tests, in parallel and in random order
	@echo "== tests on $$($(PY) -c 'import platform; print("Python", platform.python_version())')"
	@$(PY) -m pytest -n $(WORKERS) -m "not real or smoke" $(ARGS)

# macOS has no /proc. Some of these are among all others.
.PHONY: test-psutil
test-psutil: $(STAMP) ## run the tests of processes and their endings with psutil in the place of /proc
	@OUTRIDER_PROCESS_TABLE=psutil $(PY) -m pytest -n $(WORKERS) tests/transports tests/attacks/test_endings.py \
		tests/attacks/test_forks.py $(ARGS)

# The last before 2.0: its servers have another inside. With the newest one these tests are among all others.
.PHONY: test-mcp1
test-mcp1: ## run the tests of the bridge to servers of the `mcp` library with an older one
	@$(MAKE) --no-print-directory .venv-mcp1/.installed-$(PLACE) VENV=.venv-mcp1
	@.venv-mcp1/bin/python -m pip --disable-pip-version-check install -qq 'mcp<2'
	@.venv-mcp1/bin/python -m pytest tests/handlers/test_mcp_bridge.py tests/handlers/real/test_mcp.py $(ARGS)

# The oldest that is supported. With the newest one these tests are among all others.
.PHONY: test-ray240
test-ray240: ## run the tests of clusters with the oldest Ray that will do
	@$(MAKE) --no-print-directory .venv-ray240/.installed-$(PLACE) VENV=.venv-ray240
	@.venv-ray240/bin/python -m pip --disable-pip-version-check install -qq 'ray==2.40.*'
	@.venv-ray240/bin/python -m pytest tests/fleet/ray $(ARGS)

# What the reference does is kept in tests/compat; this asks it again. Then it runs programs and tests that others
# wrote for the reference with both packages, and prints both numbers.
.PHONY: parity
parity: $(STAMP) agent ## compare `outrider.compat` with the reference SDK itself, installed in build/
	@reference=$$($(PY) -m benchmarks.reference) && \
	OUTRIDER_REFERENCE="$$reference" $(PY) -m pytest -n $(WORKERS) tests/compat $(ARGS) && \
	$(PY) scripts/reference_programs.py --check && \
	$(PY) scripts/reference_runs.py && \
	$(PY) scripts/reference_suites.py

.PHONY: test-all
test-all: test ## run the tests on every other Python from 3.11 on, too
	@pythons=$$($(PY) scripts/other_pythons.py) || exit 1; \
	test -n "$$pythons" || { echo "== no other Python from 3.11 on was found"; exit 0; }; \
	printf '%s\n' "$$pythons" | while IFS= read -r python; do \
		$(MAKE) --no-print-directory test VENV=".venv-$${python##*python}" PYTHON="$$python" \
			ARGS="--every-loop $(ARGS)" </dev/null || exit 1; \
	done

.PHONY: check
check: lint layers types api dist docs test conformance ## what CI runs: style, layers, types, API, packages, site, tests

.PHONY: lint
lint: $(STAMP) ## check format, style, spelling and workflows
	@echo "== ruff format"
	@$(BIN)/ruff format --check .
	@echo "== ruff check"
	@$(BIN)/ruff check .
	@echo "== typos"
	@$(BIN)/typos
	@echo "== zizmor"
	@$(BIN)/zizmor --offline --no-progress --quiet --persona=pedantic .github

.PHONY: layers
layers: $(STAMP) ## check that imports keep to the layers
	@echo "== import-linter"
	@$(BIN)/lint-imports --no-logo

.PHONY: types
# Side by side, because each of them uses one core.
types: $(STAMP) ## check the types with mypy and pyright
	@mkdir -p build
	@$(PY) -m pyright --pythonpath $(PY) $(TYPED) >build/pyright.log 2>&1 & pyright=$$!; \
	trap 'kill $$pyright 2>/dev/null' EXIT; \
	echo "== mypy" && $(PY) -m mypy $(TYPED) && \
	echo "== pyright" && { wait $$pyright; code=$$?; cat build/pyright.log; exit $$code; }

.PHONY: api
api: $(STAMP) ## check that the changelog names what breaks programs written for the last release
	@echo "== public names"
	@$(PY) scripts/api_changes.py

.PHONY: dist
dist: $(STAMP) ## build the wheel and the sdist into dist/, and check them
	@echo "== packages"
	@$(PY) scripts/distributions.py

.PHONY: test-sdist
test-sdist: dist ## run the tests of the sdist, unpacked elsewhere with an environment of its own
	@folder=$$(mktemp -d) && trap 'rm -rf "$$folder"' EXIT && \
	tar -xzf dist/*.tar.gz -C "$$folder" --strip-components=1 && \
	$(MAKE) --no-print-directory -C "$$folder" test

# Not part of `check`: on Python 3.11 it makes the tests take two to three times as much CPU.
.PHONY: coverage
coverage: $(STAMP) agent servers ## run the tests with branch coverage; fails below the limit
	@echo "== tests with branch coverage"
	@$(PY) -m pytest -n $(WORKERS) --cov --cov-report=term --cov-report=html:build/coverage $(ARGS)

.PHONY: conformance
conformance: $(STAMP) agent ## run all tests with Claude Code itself: every scene, example, program and session
	@echo "== tests with Claude Code itself"
	@$(PY) -m pytest -n $(WORKERS) -m real $(ARGS)

# Not part of `check`: it installs six versions from npm. docs/versions.md shows what it prints: --write.
.PHONY: versions
versions: $(STAMP) ## play scenes with old versions of Claude Code and the newest: ARGS="--write", ARGS="2.1.50"
	@$(PY) -m scripts.versions $(ARGS)

.PHONY: canary
canary: $(STAMP) ## try another version of Claude Code, and print what changed: VERSION=latest
	@$(PY) -m scripts.canary $(VERSION) -n $(WORKERS) $(ARGS)

.PHONY: attacks
attacks: $(STAMP) agent ## run what docs/security.md promises: hostile models, repositories, children, users, readers
	@$(PY) -m pytest -n $(WORKERS) tests/attacks $(ARGS)

.PHONY: soak
soak: $(STAMP) ## run short sessions under random faults: SESSIONS=2000, ARGS="--agent process"
	@$(PY) scripts/soak.py --sessions $(SESSIONS) $(ARGS)

.PHONY: fleet
fleet: $(STAMP) agent ## run thousands of tasks under faults, with killed runners and a Ray cluster; takes minutes
	@OUTRIDER_LONG=1 $(PY) -m pytest -v tests/fleet/test_map_faults.py tests/fleet/test_map_agents.py \
		tests/fleet/test_queue_faults.py \
		tests/fleet/ray/test_cluster.py $(ARGS)

.PHONY: bench
bench: $(STAMP) servers ## measure speed
	@$(PY) benchmarks/run.py $(ARGS)

.PHONY: fuzz
fuzz: $(FUZZ_STAMP) ## fuzz the wire format for SECONDS (60)
	@mkdir -p build/fuzz
	@.venv-fuzz/bin/python fuzz/fuzz_wire.py -max_total_time=$(SECONDS) -artifact_prefix=build/fuzz/ $(ARGS)

# Markdown links and anchors are among the tests too, which takes less than a second; this takes half a minute.
.PHONY: docs
docs: $(DOCS_STAMP) ## build the documentation site into build/site, from nothing, and check it
	@.venv-docs/bin/python -m scripts.documentation.build

.PHONY: format
format: $(STAMP) ## format the code and repair what ruff can
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .

.PHONY: clean
clean: ## remove environments, the real program, caches and reports
	@rm -rf .venv .venv-* .agent build dist .cache .coverage .coverage.* .hypothesis .import_linter_cache \
		.mypy_cache .pytest_cache .ruff_cache
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +

# Prints the first interpreter that is new enough and can make environments. It is run, not only looked up,
# because a version manager's shim may stand for nothing and some systems ship Python without ensurepip.
FIND_PYTHON = \
	for python in $(if $(PYTHON),"$(PYTHON)",python3 python3.14 python3.13 python3.12 python3.11 \
			"$${PYENV_ROOT:-$$HOME/.pyenv}"/versions/3.1[1-9]*/bin/python3); do \
		if "$$python" -c 'import sys, ensurepip; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; then \
			printf '%s\n' "$$python"; exit 0; \
		fi; \
	done; \
	echo "Outrider needs Python 3.11 or newer, with venv and ensurepip, and found none." >&2; \
	echo "Install one, or name it: make PYTHON=python3.12 ..." >&2; \
	exit 1

# Without a stamp of this place the environment is absent, half made or moved: start over.
define MAKE_VENV
@python=$$($(FIND_PYTHON)) || exit 1; \
echo "== $(if $(wildcard $@),renewing,making) $(VENV) with $$("$$python" -V)"; \
if ! test -e $@ || ! $(PY) -c '' 2>/dev/null; then "$$python" -m venv --clear $(VENV); fi
@$(PIP_INSTALL) --upgrade pip
endef

$(COMMAND_STAMP): pyproject.toml constraints.txt
	$(MAKE_VENV)
	@echo "== installing Outrider and what its command needs: a few seconds"
	@$(PIP_INSTALL) $(PINNED_BUILD) --editable '.[app]'
	@touch $@

$(STAMP): $(COMMAND_STAMP)
	@echo "== installing what the tests and checks need, about 400 MB: up to a minute"
	@$(PIP_INSTALL) $(PINNED_BUILD) --editable . --group dev
	@touch $@

$(FUZZ_STAMP): VENV := .venv-fuzz
$(FUZZ_STAMP): BIN = $(VENV)/bin
$(FUZZ_STAMP): PY = $(BIN)/python
$(FUZZ_STAMP): pyproject.toml constraints.txt fuzz/requirements.txt
	$(MAKE_VENV)
	@$(PIP_INSTALL) $(PINNED_BUILD) --editable . --requirement fuzz/requirements.txt
	@touch $@

$(DOCS_STAMP): VENV := .venv-docs
$(DOCS_STAMP): BIN = $(VENV)/bin
$(DOCS_STAMP): PY = $(BIN)/python
$(DOCS_STAMP): pyproject.toml constraints.txt
	$(MAKE_VENV)
	@echo "== installing what builds the site, 150 MB: some seconds"
	@$(PIP_INSTALL) $(PINNED_BUILD) --editable . --group docs
	@touch $@
