# Everything that a person or CI does with this clone. `make` alone lists the targets.

SHELL := /bin/bash
.DEFAULT_GOAL := help
BIN := .venv/bin
# The files of the tests go where they are taken away afterwards, however the run ends.
PYTEST := export TMPDIR=$$(mktemp -d) && trap 'rm -rf "$$TMPDIR"' EXIT && $(BIN)/python -m pytest
# Tests of a file stay together: they share a private systemd, which mostly waits.
PARALLEL := -n 4 --dist loadfile
export PYTHON SYSTEM_PACKAGES

.PHONY: help setup demo test test-unit test-external test-install test-containers deb test-browser lint format bench docs lock clean as-root

help:  ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { name[++n] = $$1; text[n] = $$2; if (length($$1) > w) w = length($$1) } END { \
	  for (i = 1; i <= n; i++) { \
	    line = sprintf("  make %-" w "s ", name[i]); \
	    for (k = 1; k <= split(text[i], word, " "); k++) { \
	      if (length(line) + 1 + length(word[k]) > 79) { print line; line = sprintf("%" w + 8 "s", "") } \
	      line = line " " word[k] } \
	    print line } }' $(MAKEFILE_LIST)

setup:  ## make .venv with the command sglang-watchdog; installs missing Debian packages when run as root
	@packaging/setup.sh

demo: as-root  ## watch the watchdog find and cure a hang, under a private systemd (root)
	@$(BIN)/python packaging/demo.py

test: as-root lint  ## lint, then all tests, those under a private systemd too (root)
	@$(PYTEST) $(PARALLEL)

test-unit: setup  ## the tests that need neither root nor systemd
	@$(PYTEST) $(PARALLEL) -m "not box"

test-external: as-root  ## the tests with a real Prometheus, Alertmanager and Apprise (root; fetched into .cache)
	@packaging/external.sh
	@$(PYTEST) tests/external/external_*.py

test-browser: as-root  ## the tests of the status page in a real Chromium (Debian's, installed if missing)
	@command -v chromium >/dev/null || apt-get -q -y install --no-install-recommends chromium
	@$(PYTEST) tests/browser/browser_*.py

deb:  ## build the Debian package for this release of Debian: dist/sglang-watchdog_VERSION_ARCH.deb
	@packaging/deb.sh

test-install: as-root  ## install, set up, upgrade and purge the package in a fresh Debian root; SUITE=trixie: in another (root, network)
	@tests/install/run.sh deb $(SUITE)

test-containers: as-root  ## watch servers in podman's containers, in a fresh Debian root; SUITE= as above (root, network)
	@tests/install/run.sh containers $(SUITE)

lint: setup  ## ruff and mypy --strict
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy watchdog

format: setup  ## mend what ruff can mend, and lay out the code
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .

bench: as-root  ## measure speed and size (root)
	@for file in tests/bench/bench_*.py; do $(BIN)/python -m tests.bench.$$(basename $$file .py) || exit 1; done

docs: setup  ## write the references in docs/, the default configuration and the dashboard from the code
	@$(BIN)/python packaging/write_docs.py
	@$(BIN)/python packaging/grafana/make_dashboard.py

lock: setup  ## choose the newest dependencies and pin them with their hashes
	@packaging/lock.sh

clean:  ## remove all that make made inside this clone
	@rm -rf .venv .cache .mypy_cache .ruff_cache .pytest_cache .hypothesis .coverage build dist
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +

as-root:
	@packaging/setup.sh --as-root
