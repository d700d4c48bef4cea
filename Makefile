# `make demo` and `make test` set ./.venv up once and reuse it.

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

# The whole road on sample dumps that the project makes, then the released module: about a minute
# on two cores.
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
	$(CLI) index search --encoder hub_modules/convert_small/2 \
	    --candidates benchmarks/responses.txt --top_k 1 \
	    --queries "how do I reset my password?" --queries "I got into Stanford!" \
	    --queries "My roommate keeps eating my food."

# The cells of docs/papers.md that are not measured yet, with the files of the papers' tasks, which
# are not included: make papers DATA=tasks/ BERT=MiniLM/ CELLS='poly 7,poly 8'
papers: $(READY)
	$(PY) benchmarks/papers.py $(if $(DATA),--data '$(DATA)') $(if $(BERT),--bert '$(BERT)') \
	    $(if $(CELLS),--cells '$(CELLS)')

# The page in web/dist, of npm's packages and the module convert_small; convert-tf demo serves it.
WEB_MODULE := hub_modules/convert_small/2
web: $(READY) web/dist/model.onnx.gz
	cd web && npm ci --no-audit --no-fund && npm run build

web/dist/model.onnx.gz: $(WEB_MODULE)/saved_model.pb scripts/web_assets.py \
    $(wildcard convert_tf/export/onnx/*.py convert_tf/text/*.py convert_tf/encoding/backends/onnx.py)
	$(PY) scripts/web_assets.py --encoder $(WEB_MODULE) --output web/dist

# The page in Chromium (Debian's package chromium), its ids against Python's on 100,000 texts.
test-web: web
	$(PY) scripts/web_cases.py --encoder $(WEB_MODULE) --output web/build --texts 100000
	cd web && PYTHON=$(abspath $(PY)) npm test

# The pages as a site in site/. Broken links and blocks that do not run are errors.
docs: $(READY)
	$(PY) -m pip install --quiet 'mkdocs-material>=9.5' 'mkdocstrings[python]>=0.27'
	$(PYTEST) -m 'slow or not slow' tests/docs tests/examples
	$(PY) -m mkdocs build --strict

# In three rounds: TensorFlow keeps much of the first files, and a worker may take 3 GB. The summary of
# each round says what its workers took.
ROUND_1 := tests/export tests/encoding tests/docs
ROUND_2 := tests/training tests/models tests/checkpoints tests/intents
test: $(READY)
	$(PYTEST) $(ROUND_1)
	$(PYTEST) $(ROUND_2)
	$(PYTEST) $(addprefix --ignore=,$(ROUND_1) $(ROUND_2))

# What needs minutes: other backends, several processes, kills, whole runs, each command by itself.
test-slow: $(READY)
	$(PYTEST) -m slow $(ROUND_1)
	$(PYTEST) -m slow $(ROUND_2)
	$(PYTEST) -m slow $(addprefix --ignore=,$(ROUND_1) $(ROUND_2))

# Spark in this process, then a master and two workers as processes, one of which is killed. It needs
# Java 17 and downloads PySpark, 450 MB. With both, it is part of test-slow.
test-cluster: $(READY)
	$(PY) -m pip install --quiet --constraint constraints.txt --editable '.[spark]'
	$(PYTEST) -rs -m slow tests/corpora/test_spark_cluster.py

# Real programs of others, with their own old TensorFlow: for every change of the exporter. It
# downloads 5 GB, once, and says which Python it has not found.
test-clients: $(READY)
	$(PY) tests/clients/real/run.py --environments $(CLIENTS)

# Wheels, archives of the modules and their checksums in release/, tried in empty environments: it
# downloads 1 GB and takes ten minutes. The page is among them where npm is there.
release: $(READY) $(if $(shell command -v npm),web)
	$(PY) scripts/release.py --output $(RELEASE) $(if $(TAG),--tag '$(TAG)')
	$(PY) scripts/try_release.py --release $(RELEASE)

# The commands of the base installation in an empty environment of each Python that is installed. It
# needs no TensorFlow.
test-python:
	$(PYTHON) -m venv $(RELEASE_VENV)
	$(RELEASE_VENV)/bin/python -m pip install --quiet '.[release]'
	$(RELEASE_VENV)/bin/python scripts/release.py --output $(RELEASE)
	for python in $(PYTHONS); do if command -v $$python > /dev/null; then \
	    $(RELEASE_VENV)/bin/python scripts/try_release.py --release $(RELEASE) --only base \
	    --python $$python || exit 1; fi; done

# The fast tests with the lowest versions that pyproject.toml allows. It downloads 1 GB.
test-lowest: $(LOWEST)/.lowest
	$(MAKE) test VENV=$(LOWEST)

$(LOWEST)/.lowest: pyproject.toml
	$(PYTHON) -m venv $(LOWEST)
	$(LOWEST)/bin/python -m pip install --quiet 'uv>=0.5'
	$(LOWEST)/bin/uv pip install --python $(LOWEST)/bin/python --resolution lowest-direct --editable '.[test]'
	touch $@ $(LOWEST)/.ready

# Two gigabytes of dump, twenty kills and an hour of fuzz: about two hours. Its options go into
# ATTACK, as in: make attack ATTACK='--gigabytes 0.1 --minutes 5 --kills 5'
attack: $(READY)
	$(PY) benchmarks/attack.py --folder $(ATTACKED) $(ATTACK)

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(PY) scripts/count_lines.py

clean:
	rm -rf $(VENV) $(LOWEST) $(RELEASE_VENV) $(DEMO) $(RELEASE) web/dist web/build web/node_modules site build *.egg-info
