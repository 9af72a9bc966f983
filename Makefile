# Main targets: `make demo` and `make test`. Both install what they need in .venv.

PYTHON ?= python3
VENV := .venv
RUN := $(VENV)/bin/python

# Workers and the hundreds of processes that they start share compiled modules.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo test quick check setup test-setup system-packages lock clean

# Five blocks of so small a network take 25 seconds, in which the speed of a shared computer hardly
# shows how it changes: ten.
demo: setup
	$(RUN) cli.py profile --device local --model dscnn --batch 32 --blocks 10
	$(RUN) cli.py solve --profile local --model dscnn --batch 32 --ram-budget 50% \
		--time-limit 60 --pictures results/pictures --out results/schedules/demo.json
	$(RUN) cli.py run --schedule results/schedules/demo.json --device local

# Everything: the quick tests first, then emulated boards and slow tests, five at a time, since many
# wait for time limits and boards. Tests of a module, which share what they build, mostly stay together.
test: quick
	$(RUN) -m pytest -n 5 --dist worksteal -m "emulated or slow"

# Tests that boot no emulated board and are not slow. Many wait for a port or a process: three at a
# time keep two cores busy.
quick: test-setup system-packages
	$(RUN) -m pytest -n 3 --dist worksteal -m "not emulated and not slow"

# The checks that CI runs besides the tests.
check: test-setup
	$(RUN) -m ruff check .
	$(RUN) -m ruff format --check .
	git ls-files '*.c' '*.h' | xargs $(VENV)/bin/clang-format --dry-run --Werror
	git ls-files | xargs $(VENV)/bin/codespell
	$(RUN) -m mypy
	$(VENV)/bin/lint-imports
	$(RUN) tools/structure.py

setup: $(VENV)/.locked
test-setup: $(VENV)/.locked-dev

$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
		|| { echo "Python 3.11 or newer is needed; $(PYTHON) is $$($(PYTHON) -V)" >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip' 2>/dev/null \
		|| { echo "the venv module is missing: sudo apt install python3-venv" >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)

$(VENV)/.locked: requirements.lock | $(VENV)/bin/python
	$(RUN) -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements.lock
	@command -v cc >/dev/null \
		|| { echo "a C compiler is missing: sudo apt install gcc libc6-dev" >&2; exit 1; }
	@touch $@

$(VENV)/.locked-dev: requirements-dev.lock | $(VENV)/.locked
	$(RUN) -m pip install --quiet --disable-pip-version-check --require-hashes \
		-r requirements-dev.lock
	@touch $@

# The tests connect to a real SSH server on loopback, boot emulated boards and open a report in a
# browser; no PyPI package provides these programs.
system-packages:
	@tools/system-packages openssh-server openssh-client gcc libc6-dev qemu-system-arm \
		gcc-arm-none-eabi libnewlib-arm-none-eabi gcc-aarch64-linux-gnu libc6-dev-arm64-cross \
		e2fsprogs bc xz-utils chromium-headless-shell poppler-utils

lock:
	$(PYTHON) -m uv pip compile --quiet --universal --generate-hashes --no-emit-index-url \
		--python-version 3.11 pyproject.toml -o requirements.lock
	$(PYTHON) -m uv pip compile --quiet --universal --generate-hashes --no-emit-index-url \
		--python-version 3.11 --group dev pyproject.toml -o requirements-dev.lock

clean:
	rm -rf $(VENV)
