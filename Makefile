# `make demo` and `make test` set ./.venv up once and reuse it.

PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
DEMO ?= demo
export TF_CPP_MIN_LOG_LEVEL ?= 3

.PHONY: demo test lint setup clean

setup: $(READY)

$(READY): setup.py constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[dev]'
	touch $(READY)

demo: $(READY)
	PATH="$(abspath $(BIN)):$$PATH" bash demo.sh "$(DEMO)"

test: $(READY)
	$(BIN)/python -m pytest

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

clean:
	rm -rf $(VENV) $(DEMO) build *.egg-info
