# Two commands for a user: `make demo` and `make test`. Each is enough alone on a fresh machine.
# PYTHON is any Python of 3.11 or above, e.g. `make demo PYTHON=python3.12`.

PYTHON ?= python3
BIN := .venv/bin
JOBS := --numprocesses auto --maxprocesses 4 --dist worksteal

.PHONY: demo test slow check docs format fidelity conformance clean

demo: .venv/ready
	@echo "1 of 3: a small Llama learns on 8 emulated NPUs of a UB-Mesh rack: tensor, pipeline and data parallel (some 10 s)"
	$(BIN)/emu train --model llama-tiny --plan tp=2,pp=2,dp=2 --topology ub-mesh:rack --steps 3
	@echo && echo "2 of 3: a small GPT with experts, on 8: tensor, expert and data parallel (some 15 s)"
	$(BIN)/emu train --model gpt-moe-tiny --plan tp=2,ep=2,dp=4 --topology ub-mesh:rack --steps 3
	@echo && echo "3 of 3: Llama 3 70B on the 1,024 NPUs of a UB-Mesh pod: nothing runs, its step is generated and timed (some 10 s)"
	$(BIN)/emu estimate --model llama3-70b --plan tp=8,sp,pp=4,dp=32,sharding=zero1 --topology ub-mesh:pod --global-batch 1024 --seq 8192

# Bytecode is kept, whatever the environment says: a hundred processes start, and each would compile Emu and its tests anew.
test: .venv/ready
	env -u PYTHONDONTWRITEBYTECODE $(BIN)/python -m pytest $(JOBS)

slow: .venv/ready
	$(BIN)/python -m pytest -m slow -o faulthandler_timeout=3600

check: .venv/ready
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports

# Some 2 minutes: the site, in build/site. It needs no network and no server: open index.html.
docs: .venv/ready
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet
	@echo "open build/site/index.html"

# Minutes, and ns-3 besides: Emu against packet simulation, the kernel's TCP, linear programs, networkx and NCCL on a node.
fidelity: .venv/ready
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[fidelity]'
	$(BIN)/python -m benchmarks.fidelity

# Some 10 minutes: PyTorch's own tests of distributed training on emulated ranks, and beside them on gloo.
conformance: .venv/ready
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[conformance]'
	OMP_NUM_THREADS=1 $(BIN)/python -m benchmarks.conformance

format: .venv/ready
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

.venv/ready: pyproject.toml constraints.txt
	@sh .ci/setup $(PYTHON)

clean:
	rm -rf .venv build *.egg-info
