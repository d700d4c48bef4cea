# `make demo` and `make test` set ./.venv up once and reuse it.

PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
PY := $(BIN)/python
READY := $(VENV)/.ready
DEMO := demo
export TF_CPP_MIN_LOG_LEVEL ?= 3

.PHONY: demo test lint setup clean

setup: $(READY)

$(READY): setup.py constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(PY) -m pip install --quiet --upgrade pip
	$(PY) -m pip install --quiet --constraint constraints.txt --editable '.[dev]'
	touch $(READY)

# The whole road on sample dumps that the project makes, then the released module: about a minute
# on two cores.
demo: $(READY)
	rm -rf $(DEMO)
	$(PY) -m convert_tf.data.sample --output $(DEMO)/dumps
	$(PY) -m convert_tf.data.prepare --input '$(DEMO)/dumps/RC_*.zst' \
	    --submissions '$(DEMO)/dumps/RS_*.zst' --output $(DEMO)/data --dev_fraction 0.05
	$(PY) -m convert_tf.text.learn --input $(DEMO)/data --output $(DEMO)/vocab.txt --min_count 5
	$(PY) train.py --data $(DEMO)/data --vocab $(DEMO)/vocab.txt --model tiny \
	    --output $(DEMO)/runs/tiny --steps 600 --batch_size 128 --optimizer adam \
	    --learning_rate 0.003 --warmup_steps 50 --scale_start 20 --scale_end 20 --l2 0 \
	    --eval_every 200 --checkpoint_every 200 --eval_examples 400
	$(PY) -m convert_tf.evaluate --checkpoint $(DEMO)/runs/tiny --data $(DEMO)/data
	$(PY) export.py --checkpoint $(DEMO)/runs/tiny --output $(DEMO)/hub_modules/tiny/1
	$(PY) -m convert_tf.nearest --module $(DEMO)/hub_modules/tiny/1 --data $(DEMO)/data \
	    --queries "How do I reset my password for gmail?"
	$(PY) -m convert_tf.nearest --module hub_modules/convert/1 \
	    --candidates benchmarks/responses.txt --top_k 1 \
	    --queries "how do I reset my password?" --queries "I got into Stanford!" \
	    --queries "My roommate keeps eating my food."

test: $(READY)
	$(PY) -m pytest --numprocesses auto --maxprocesses 4 --dist loadfile

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

clean:
	rm -rf $(VENV) $(DEMO) build *.egg-info
