# Floodmark: everything a newcomer runs. `make` alone lists it.
SHELL := /bin/bash
.DEFAULT_GOAL := help
VENV ?= .venv
export VENV
PY := $(VENV)/bin/python
export PYTHONUNBUFFERED := 1

.PHONY: help setup run run-lake run-sources up down check check-pythons test test-spark test-sources test-emulator test-one test-tutorial test-clients torture torture-histories bench bench-peers fuzz format docs reference clean
.PHONY: check-lint check-types check-units check-every-unit
help: ## this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

setup: $(VENV)/.synced ## install the locked packages into .venv
$(VENV)/.synced: pyproject.toml compact_tracking/pyproject.toml emulator/pyproject.toml uv.lock bin/setup
	@bin/setup

# Spark starts in half the time from recorded classes, and without them all the same. The tests run on the wheel's Java.
CLASSES := $(VENV)/.classes
$(CLASSES) $(CLASSES)-of-the-wheel: $(VENV)/.synced
	@echo "setup: recording the classes of Spark, once" >&2
	@$(if $(filter %wheel,$@),JAVA_HOME=/nowhere) $(VENV)/bin/floodmark archive-classes --only-missing > /dev/null \
	  || echo "setup: Spark starts without them, in twice the time" >&2
	@touch $@

# The jars of a lake, from a Maven repository or the folder in FLOODMARK_JARS; with -s3 also that for a bucket.
JARS := $(VENV)/.jars
$(JARS) $(JARS)-s3: $(VENV)/.synced src/floodmark/spark/launch/jars.py
	@$(VENV)/bin/floodmark fetch-jars $(if $(filter %-s3,$@),--s3) > /dev/null
	@touch $@

run: setup $(CLASSES) ## the main job on embedded defaults, from first load to a row-by-row comparison
	@$(PY) -m floodmark_laptop run

run-lake: setup $(CLASSES) $(JARS) ## the main job into a lake of Iceberg tables
	@$(PY) -m floodmark_laptop run-lake

run-sources: setup $(CLASSES) ## the same for change tracking, an event stream, and a fleet of devices
	@$(PY) -m floodmark_laptop run-sources

up: setup $(CLASSES) ## the same, left running with the workload going
	@$(PY) -m floodmark_laptop up

down: setup ## stop what `make up` started
	@$(PY) -m floodmark_laptop down

check: setup ## lint, types, import contracts, unit tests
	@$(MAKE) --no-print-directory --jobs=2 $(filter --output-sync,$(.FEATURES:%=--%)) check-types check-lint check-units

check-lint:
	@$(VENV)/bin/ruff check --no-cache .
	@$(VENV)/bin/ruff format --check .
	@$(VENV)/bin/lint-imports
	@$(VENV)/bin/lint-imports --config compact_tracking/pyproject.toml
	@$(VENV)/bin/lint-imports --config emulator/pyproject.toml

check-types:
	@$(VENV)/bin/mypy

check-units:
	@$(PYTEST) tests/unit

check-every-unit: setup
	@$(PYTEST) tests/unit compact_tracking/tests/unit emulator/tests/unit

check-pythons: ## all unit tests on every Python of 3.11 to 3.13 that the machine has
	@bin/check-pythons

# Two cores are kept busy by three processes: stories wait for servers. A file stays in one process.
PYTEST := $(PY) -m pytest -q -n 3 --dist loadfile --no-loadscope-reorder -c pyproject.toml

# Spark with the jars of a lake, with a server or with workers of its own; and sources other than CDC.
SPARK := tests/contract/ports/lake tests/contract/test_connect_server.py \
  $(addprefix tests/story/test_,lake_runs.py spark_cluster.py spark_connect.py)
SOURCES := $(sort $(wildcard $(foreach kind,tracking stream kafka compact fleet,tests/*/test_*$(kind)*.py)))

test: check $(CLASSES)-of-the-wheel ## tests of CDC into a warehouse, and whether the emulator answers as SQL Server does
	@$(PYTEST) $(addprefix --ignore=,tests/unit $(SPARK) $(SOURCES)) tests emulator/tests/conformance

test-spark: setup $(CLASSES)-of-the-wheel $(JARS)-s3 ## tests of lakes, of Spark clusters and of Spark Connect servers
	@$(PYTEST) $(SPARK)

test-sources: setup $(CLASSES)-of-the-wheel ## tests of change tracking, event streams and fleets of devices
	@$(PYTEST) $(SOURCES)

# The clients that `make test-clients` sets up.
SET_UP := debian go java node python rust

test-emulator: setup $(CLASSES)-of-the-wheel ## all tests of the emulator and of compact_tracking
	@$(PYTEST) --ignore=emulator/tests/conformance $(addprefix --ignore=emulator/tests/clients_external/,$(SET_UP)) emulator/tests compact_tracking/tests

test-one: setup ## one test or file, as in: make test-one T=tests/contract/test_reload.py. Its servers stay for the next
	@FLOODMARK_STANDING_SERVERS=1 $(PY) -m pytest -q -c pyproject.toml $(if $(T),'$(T)',$(error T names the test))

test-tutorial: setup ## the tutorial, followed line by line in a fresh clone, which it sets up
	@FLOODMARK_TEST_TUTORIAL=1 $(PY) -m pytest -q tests/story/test_tutorial.py

test-clients: setup ## tests with clients that are no packages of Python, which it sets up
	@bin/test-clients

KILLS := tests/story/test_kills.py tests/story/test_tracking_and_stream_kills.py

torture: setup $(CLASSES)-of-the-wheel ## 500 kills and troubles in between, then 100 with Spark and 20 of Airflow's processes: some hours
	@export FLOODMARK_TORTURE_SEED=$${FLOODMARK_TORTURE_SEED:-$$(date +%Y%m%d)} FLOODMARK_TORTURE_WRITES=$${FLOODMARK_TORTURE_WRITES:-20}; \
	  FLOODMARK_TORTURE_KILLS=$${FLOODMARK_TORTURE_KILLS:-500} $(PY) -m pytest -q -s $(KILLS) && \
	  export FLOODMARK_TORTURE_SPARK=1 FLOODMARK_TORTURE_KILLS=$${FLOODMARK_SPARK_KILLS:-100} \
	    FLOODMARK_AIRFLOW_KILLS=$${FLOODMARK_AIRFLOW_KILLS:-20} && \
	  $(PY) -m pytest -q -s $(KILLS) tests/story/test_airflow_kills.py

torture-histories: setup ## 10,000 random histories of runs, operators and losses, call by call: FLOODMARK_INTERLEAVING_SEED is the first
	@export FLOODMARK_INTERLEAVING_SEED=$${FLOODMARK_INTERLEAVING_SEED:-$$(date +%Y%m%d0000)} \
	  FLOODMARK_INTERLEAVING_SEEDS=$${FLOODMARK_INTERLEAVING_SEEDS:-10000} \
	  FLOODMARK_INTERLEAVING_PROCESSES=$${FLOODMARK_INTERLEAVING_PROCESSES:-2}; \
	  $(PY) -m pytest -q -s -c pyproject.toml --timeout 0 tests/contract/test_interleavings.py

bench: setup $(CLASSES) $(JARS) ## the benchmark report in benchmarks/
	@$(PY) -m benchmarks

bench-peers: setup $(CLASSES) ## Floodmark next to Debezium, which it fetches; needs a JDK
	@$(PY) -m benchmarks.peers

fuzz: setup ## random bytes for everything that reads a client's, for FUZZ_SECONDS (60)
	@$(PY) -c "import atheris" 2>/dev/null || bin/setup --group fuzz
	@PYTHONPATH=emulator $(PY) -m fuzz

docs: setup ## build the site of the documents into build/site
	@$(PY) -m documents site

reference: setup ## write the pages that are generated from the code
	@$(PY) -m documents reference

format: setup ## put the code into its form
	@$(VENV)/bin/ruff check --no-cache --fix .
	@$(VENV)/bin/ruff format .

clean: ## remove what builds, tests and checks have written; .venv and the data of `make up` stay
	@rm -rf build dist .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .hypothesis
	@find . -name __pycache__ -type d -not -path './.venv*' -not -path './.uv/*' -prune -exec rm -rf {} +
