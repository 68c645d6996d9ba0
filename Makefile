# SPDX-License-Identifier: Apache-2.0
# `make demo` and `make test` need nothing but Python 3.10 or later; each sets up what it uses.

.PHONY: help demo compiled test test-avx2 test-aarch64 check clean

help:
	@echo "make demo   set up, compile a digit classifier, compare it with onnxruntime"
	@echo "make test   set up, run the tests"
	@echo "make test-avx2"
	@echo "            set up, run the tests of what the CPU decides, as on one with AVX2 (x86 only)"
	@echo "make test-aarch64"
	@echo "            set up, run the quick tests on AArch64, in QEMU (Debian only)"
	@echo "make check  set up, run what every commit must pass: format, lint, types, quick tests"
	@echo "make clean  remove .venv, .venv-aarch64 and all build output"

demo:
	@scripts/setup
	@.venv/bin/python -m examples.digits.demo

# Processes that tests start import what is compiled once, also where PYTHONDONTWRITEBYTECODE is set.
compiled:
	@.venv/bin/python -m compileall -q treadle tests benchmarks examples scripts

test:
	@scripts/setup
	@$(MAKE) --no-print-directory compiled
	@echo "==> Running the tests"
	@.venv/bin/python -m pytest -n auto -m "not slow and not torch and not conformance"

test-avx2:
	@scripts/setup
	@$(MAKE) --no-print-directory compiled
	@echo "==> Running the tests of what the CPU decides, as on one with AVX2"
	@TREADLE_HOST_CPU=haswell .venv/bin/python -m pytest -n auto \
		-m "not slow and not torch and not conformance" \
		tests/build tests/examples tests/ops/schedules tests/optimize tests/runtime tests/target

test-aarch64:
	@scripts/setup
	@scripts/setup_aarch64
	@echo "==> Running the quick tests on AArch64, in QEMU"
	@.venv-aarch64/bin/python -m pytest -n auto -m tiny

check:
	@scripts/setup
	@PYTHON=.venv/bin/python scripts/check

clean:
	rm -rf .venv .venv-aarch64 build dist treadle/_native *.egg-info
	rm -rf .pytest_cache .mypy_cache .ruff_cache .hypothesis
