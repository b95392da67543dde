# Two commands for a user: `make demo` and `make test`. Each is enough alone on a fresh machine.
# PYTHON is any Python of 3.11 or above, e.g. `make demo PYTHON=python3.12`.

PYTHON ?= python3
BIN := .venv/bin
JOBS := --numprocesses auto --maxprocesses 4 --dist worksteal

.PHONY: demo test slow check format fidelity clean

demo: .venv/ready
	$(BIN)/emu train --model llama-tiny --plan dp=4,tp=4 --topology ub-mesh:rack --steps 5

test: .venv/ready
	$(BIN)/python -m pytest $(JOBS)

slow: .venv/ready
	$(BIN)/python -m pytest -m slow

check: .venv/ready
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports

# Minutes, and ns-3 besides: Emu against packet simulation, the kernel's TCP, linear programs, networkx and NCCL on a node.
fidelity: .venv/ready
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[fidelity]'
	$(BIN)/python -m benchmarks.fidelity

format: .venv/ready
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

.venv/ready: pyproject.toml constraints.txt
	@sh .ci/setup $(PYTHON)

clean:
	rm -rf .venv build *.egg-info
