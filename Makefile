# `make` lists the targets; `make VENV=…` uses another environment, `make PYTHON=…` makes it with
# another interpreter (3.11 or newer).

VENV   ?= .venv
PYTHON ?= python3
JOBS   ?= 2

PY      := $(VENV)/bin/python
RUN     := $(PY) -m kvsim.experiments
RESULTS := results
HTML    := _build/html/index.html

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help setup data repro validate belady characterize gap ttl ablation compare liveness regimes compression provider picture book chapters html \
        links pdf pages lint types unit notebooks test verify fuzz bench clean

help: ## list the targets
	@awk -F ':[^#]*## ' '/^[a-z]+:.*## / { printf "  %-14s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

# --- environment ---------------------------------------------------------------------------------

setup: $(VENV)/.installed ## make the environment: exact versions, from the package index

$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	    || { echo "$(PYTHON) is too old: kvsim needs Python 3.11 or newer (make PYTHON=python3.12)"; exit 1; }
	$(PYTHON) -m venv $(VENV)

$(VENV)/.installed: pyproject.toml constraints.txt | $(VENV)/bin/python
	$(PY) -m pip install --quiet --constraint constraints.txt --editable '.[book,test]'
	@touch $@

$(VENV)/.installed-bench: pyproject.toml constraints.txt $(VENV)/.installed
	$(PY) -m pip install --quiet --constraint constraints.txt --editable '.[bench]'
	@touch $@

# --- traces and experiments ----------------------------------------------------------------------

data: setup ## fetch the public traces into data/raw (FROM=dir: from a local mirror)
	$(VENV)/bin/kvsim fetch $(if $(FROM),--from '$(FROM)')

repro: validate characterize gap ablation ttl belady compare liveness regimes compression provider book ## run every experiment, render the book
	@echo "results in $(RESULTS)/, the book in $(HTML)"

validate: setup ## published hit rates beside ours
	$(RUN) validate --results $(RESULTS)

belady: setup ## is OPT above every policy, and which harness slips break that
	$(RUN) belady --results $(RESULTS)

characterize: setup ## sessions, gaps, duty, chains, working sets of each trace
	$(RUN) characterize --results $(RESULTS)

gap: setup ## where recompute comes from, by the gap before the request
	$(RUN) gap --results $(RESULTS)

ttl: setup ## from which capacity on a TTL matters
	$(RUN) ttl --results $(RESULTS)

ablation: setup ## TTL, LFU and the hazard, cost and coherence ideas against LRU and OPT
	$(RUN) ablation --results $(RESULTS)

compare: setup ## every policy at every capacity
	$(RUN) compare --results $(RESULTS)

regimes: setup ## what binds at every capacity and TTL
	$(RUN) regimes --results $(RESULTS)

liveness: setup ## our own policy beside LRU and OPT at 60 capacities
	$(RUN) liveness --results $(RESULTS)

compression: setup ## r times the blocks in the same memory: hits and recompute, by pressure
	$(RUN) compression --results $(RESULTS)

provider: setup ## bills at a provider's prices, and when keep-alive pings pay
	$(RUN) provider --results $(RESULTS)

picture: setup ## draw the picture of the README from the committed results
	$(PY) book/picture.py $(RESULTS)/hit_ratio.png

# --- book ----------------------------------------------------------------------------------------

book: chapters ## execute the chapters that are stale (FORCE=1: all of them) and render the book
	@$(MAKE) --no-print-directory html

chapters: setup
	$(PY) book/build.py --jobs $(JOBS) $(if $(FORCE),--force)

html: setup
	$(VENV)/bin/jupyter-book build . --all -W -n --keep-going --quiet
	@echo "book: $(HTML)"

links: html
	$(PY) book/check_links.py

pdf: html ## print the whole book into _build/kvsim.pdf (needs Chromium)
	$(PY) book/pdf.py _build/kvsim.pdf

pages: html ## look at the rendered pages in a browser: errors, weight, accessibility, phone, print
	$(PY) -m pytest -n $(JOBS) tests/test_pages.py

# --- checks --------------------------------------------------------------------------------------

test: lint types links unit notebooks verify ## everything that guards the project
	@echo "all checks passed"

lint: setup
	$(PY) -m ruff check .
	$(PY) -m ruff format --check .

types: setup
	$(PY) -m mypy

unit: $(VENV)/.installed-bench
	$(PY) -m pytest -n $(JOBS) --dist loadgroup

notebooks: setup
	$(PY) -m pytest -n $(JOBS) --dist loadscope --nbval --nbval-current-env \
	    --nbval-sanitize-with book/nbval.cfg book

verify: setup ## recompute the committed results of every trace at hand and compare (FULL=1: every row)
	$(RUN) verify --results $(RESULTS) $(if $(FULL),--full)

fuzz: setup ## the property tests with at least 5,000 examples each
	$(PY) -m pytest -n $(JOBS) -m property --hypothesis-profile fuzz

bench: $(VENV)/.installed-bench ## speed, beside libcachesim and kvcache-simulator
	$(PY) -m benchmarks

clean: ## remove what was built (the environment and data/raw stay)
	rm -rf _build .hypothesis .mypy_cache .pytest_cache .ruff_cache
	find . -name __pycache__ -not -path './$(VENV)/*' -prune -exec rm -rf {} +
