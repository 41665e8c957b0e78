SHELL := /bin/bash
.DEFAULT_GOAL := help
export LANDFALL_HOME := $(abspath $(or $(LANDFALL_HOME),.landfall))
BIN := $(LANDFALL_HOME)/venv/bin
CACHES := RUFF_CACHE_DIR=$(LANDFALL_HOME)/cache/ruff MYPY_CACHE_DIR=$(LANDFALL_HOME)/cache/mypy
TYPED := $(wildcard plugins spark_jobs)
# The tests find Java, Spark's jars and Airflow's home as the commands do.
PYTEST := . bin/env && python -m pytest -o cache_dir=$(LANDFALL_HOME)/cache/pytest \
  -n 2 --dist loadfile --no-loadscope-reorder
V ?=
DATASET ?= retail_transactions

.PHONY: help
help:  ## list the commands
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: setup
setup:  ## set up all that is needed, once (Python packages, Java, Spark's jars, Airflow's database)
	@bin/setup

.PHONY: demo
demo:  ## set up, land example data and load it (DATASET=taxi_trips: the upsert; V=1 shows the logs)
	@bin/setup && bin/landfall demo $(DATASET) $(if $(V),--verbose)

.PHONY: up
up:  ## run the whole stack on this machine (S3, Spark, Airflow and its page) until Ctrl-C
	@bin/setup && exec bin/landfall up

.PHONY: down
down:  ## stop the stack, or what a crash has left of it
	@bin/landfall down

.PHONY: test
test:  ## set up and run all tests (ARGS="-k name" chooses)
	@bin/setup --for-tests && $(PYTEST) tests $(ARGS)

.PHONY: test-fast
test-fast:  ## the tests that need neither Spark nor Airflow, in under a minute
	@bin/setup && $(PYTEST) -m "not slow" tests $(ARGS)

.PHONY: lint
lint:  ## ruff and mypy
	@bin/setup
	@$(CACHES) $(BIN)/ruff check .
	@$(CACHES) $(BIN)/ruff format --check .
	@$(CACHES) $(BIN)/mypy $(TYPED)

.PHONY: format
format:  ## let ruff sort the imports and format the code
	@bin/setup
	@$(CACHES) $(BIN)/ruff check --fix --quiet . ; $(CACHES) $(BIN)/ruff format .

.PHONY: lock
lock:  ## write requirements.lock anew from requirements.txt and requirements-dev.txt
	@UV_CACHE_DIR=$(LANDFALL_HOME)/cache/uv $(BIN)/uv pip compile --quiet --generate-hashes --universal --no-annotate \
	  --python-version 3.11 --custom-compile-command "make lock" --output-file requirements.lock requirements-dev.txt

.PHONY: lock-jars
lock-jars:  ## write spark_jobs/jars.sha256 anew from its package lines
	@bin/setup --relock-jars

.PHONY: clean
clean:  ## stop the stack and the local S3 server, and remove all state
	@if [ -x $(BIN)/python ]; then bin/landfall down; fi
	@if [ -x $(BIN)/python ]; then PYTHONPATH=plugins $(BIN)/python -c \
	  'from landfall import local_s3, settings; local_s3.stop(settings.load_settings().s3_dir)'; fi
	@rm -rf $(LANDFALL_HOME)
