# Targets that need ./.venv create it on first use and reuse it later.

PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
PY := $(BIN)/python
CLI := $(BIN)/convert-tf
READY := $(VENV)/.ready
PYTEST := $(PY) -m pytest --numprocesses auto --maxprocesses 4 --dist loadfile --no-loadscope-reorder
DEMO := demo
CLIENTS ?= .clients
RELEASE ?= release
LOWEST ?= .lowest
RELEASE_VENV := .release
PYTHONS ?= python3.10 python3.11 python3.12 python3.13 python3.14
ATTACKED ?= /tmp/convert_tf_attack
ATTACK ?=

.PHONY: demo papers web docs test test-python test-lowest test-slow test-cluster test-clients test-web attack release lint setup clean

setup: $(READY)

$(READY): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(PY) -m pip install --quiet --upgrade pip
	$(PY) -m pip install --quiet --constraint constraints.txt --editable '.[dev]'
	touch $(READY)

# All steps from dumps to a search, on generated sample dumps, followed by a search with a released
# module. This takes about a minute on two cores.
demo: $(READY)
	rm -rf $(DEMO)
	$(CLI) sample --output $(DEMO)/dumps
	$(CLI) prepare --input '$(DEMO)/dumps/RC_*.zst' --submissions '$(DEMO)/dumps/RS_*.zst' \
	    --output $(DEMO)/data --dev_fraction 0.05
	$(CLI) vocabulary --input $(DEMO)/data --output $(DEMO)/vocab.txt --min_count 5
	$(CLI) train --data $(DEMO)/data --vocab $(DEMO)/vocab.txt --model tiny \
	    --output $(DEMO)/runs/tiny --steps 600 --batch_size 128 --optimizer adam \
	    --learning_rate 0.003 --warmup_steps 50 --scale_start 20 --scale_end 20 --l2 0 \
	    --eval_every 200 --checkpoint_every 200 --eval_examples 400
	$(CLI) evaluate --encoder $(DEMO)/runs/tiny --data $(DEMO)/data
	$(CLI) export --encoder $(DEMO)/runs/tiny --output $(DEMO)/hub_modules/tiny/1
	$(CLI) index search --encoder $(DEMO)/hub_modules/tiny/1 --data $(DEMO)/data --top_k 3 \
	    --queries "How do I reset my password for gmail?"
	$(CLI) index search --encoder hub_modules/convert_small/3 \
	    --candidates benchmarks/responses.txt --top_k 1 \
	    --queries "how do I reset my password?" --queries "I got into Stanford!" \
	    --queries "My roommate keeps eating my food."

# Measure the cells of docs/papers.md that have no figures yet. This needs the files of the papers'
# tasks, which are not included: make papers DATA=tasks/ BERT=MiniLM/ CELLS='poly 7,poly 8'
papers: $(READY)
	$(PY) benchmarks/papers.py $(if $(DATA),--data '$(DATA)') $(if $(BERT),--bert '$(BERT)') \
	    $(if $(CELLS),--cells '$(CELLS)')

# Build the page in web/dist from packages on npm and the module convert_small. `convert-tf demo` serves it.
WEB_MODULE := hub_modules/convert_small/3
web: $(READY) web/dist/model.onnx.gz
	cd web && npm ci --no-audit --no-fund && npm run build

web/dist/model.onnx.gz: $(WEB_MODULE)/saved_model.pb scripts/web_assets.py \
    $(wildcard convert_tf/export/onnx/*.py convert_tf/text/*.py convert_tf/text/*.json) \
    convert_tf/encoding/backends/onnx.py
	$(PY) scripts/web_assets.py --encoder $(WEB_MODULE) --output web/dist

# Test the page in Chromium (Debian's package chromium), and compare its token ids with those of Python
# on 100,000 texts.
test-web: web
	$(PY) scripts/web_cases.py --encoder $(WEB_MODULE) --output web/build --texts 100000
	cd web && PYTHON=$(abspath $(PY)) npm test

# Build the documentation as a website in site/. Broken links and code blocks that fail are errors.
docs: $(READY)
	$(PY) -m pip install --quiet 'mkdocs-material>=9.5' 'mkdocstrings[python]>=0.27'
	$(PYTEST) -m 'slow or not slow' tests/docs tests/examples
	$(PY) -m mkdocs build --strict

# The tests run in three rounds, because TensorFlow does not free all memory and a worker may reach 3 GB.
# The summary of each round reports the memory of its workers.
ROUND_1 := tests/export tests/encoding tests/docs
ROUND_2 := tests/training tests/models tests/checkpoints tests/intents
test: $(READY)
	$(PYTEST) $(ROUND_1)
	$(PYTEST) $(ROUND_2)
	$(PYTEST) $(addprefix --ignore=,$(ROUND_1) $(ROUND_2))

# Tests that take minutes: other backends, several processes, killed processes, whole runs, and each
# command by itself.
test-slow: $(READY)
	$(PYTEST) -m slow $(ROUND_1)
	$(PYTEST) -m slow $(ROUND_2)
	$(PYTEST) -m slow $(addprefix --ignore=,$(ROUND_1) $(ROUND_2))

# Test Spark in one process, and then with a master and two workers, one of which is killed. This needs
# Java 17 and downloads PySpark (450 MB). If both are installed, test-slow includes these tests.
test-cluster: $(READY)
	$(PY) -m pip install --quiet --constraint constraints.txt --editable '.[spark]'
	$(PYTEST) -rs -m slow tests/corpora/test_spark_cluster.py

# Test modules in other programs, with the old versions of TensorFlow that these programs need. Run this
# after every change to the exporter. The first run downloads 5 GB. Missing versions of Python are listed.
test-clients: $(READY)
	$(PY) tests/clients/real/run.py --environments $(CLIENTS)

# Write wheels, archives of the modules and their checksums to release/, and test them in empty
# environments. This downloads 1 GB and takes ten minutes. The page is included if npm is installed.
release: $(READY) $(if $(shell command -v npm),web)
	$(PY) scripts/release.py --output $(RELEASE) $(if $(TAG),--tag '$(TAG)')
	$(PY) scripts/try_release.py --release $(RELEASE)

# Test the commands of the base installation in an empty environment, for each installed version of
# Python. This needs no TensorFlow.
test-python:
	$(PYTHON) -m venv $(RELEASE_VENV)
	$(RELEASE_VENV)/bin/python -m pip install --quiet '.[release]'
	$(RELEASE_VENV)/bin/python scripts/release.py --output $(RELEASE)
	for python in $(PYTHONS); do if command -v $$python > /dev/null; then \
	    $(RELEASE_VENV)/bin/python scripts/try_release.py --release $(RELEASE) --only base \
	    --python $$python || exit 1; fi; done

# Run the fast tests with the lowest versions that pyproject.toml allows. This downloads 1 GB.
test-lowest: $(LOWEST)/.lowest
	$(MAKE) test VENV=$(LOWEST)

$(LOWEST)/.lowest: pyproject.toml
	$(PYTHON) -m venv $(LOWEST)
	$(LOWEST)/bin/python -m pip install --quiet 'uv>=0.5'
	$(LOWEST)/bin/uv pip install --python $(LOWEST)/bin/python --resolution lowest-direct --editable '.[test]'
	touch $@ $(LOWEST)/.ready

# Stress test with a dump of two gigabytes, twenty killed processes and an hour of fuzzing, in about two
# hours. To change its options, set ATTACK: make attack ATTACK='--gigabytes 0.1 --minutes 5 --kills 5'
attack: $(READY)
	$(PY) benchmarks/attack.py --folder $(ATTACKED) $(ATTACK)

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(PY) scripts/count_lines.py

clean:
	rm -rf $(VENV) $(LOWEST) $(RELEASE_VENV) $(DEMO) $(RELEASE) web/dist web/build web/node_modules site build *.egg-info
