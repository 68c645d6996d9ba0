# SPDX-License-Identifier: Apache-2.0
"""Builds the native runtime into treadle/_native/ (used by the package build and by hand).

python scripts/build_native.py [--strict] [--compiler "zig cc"] [--output PATH]
"""

from __future__ import annotations

import argparse
import importlib.util
import shlex
import sys
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).resolve().parent.parent


def load_native_build() -> ModuleType:
    """Load treadle/runtime/native_build.py without importing the package around it."""
    path = ROOT / "treadle" / "runtime" / "native_build.py"
    spec = importlib.util.spec_from_file_location("treadle_native_build", path)
    if spec is None or spec.loader is None:
        raise SystemExit(f"cannot load {path}")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def main() -> int:
    """Build unless the library is up to date; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--strict", action="store_true", help="warnings are errors")
    parser.add_argument("--compiler", help="command to use, for example 'zig cc'")
    default = ROOT / "treadle" / "_native" / "libtreadle.so"
    parser.add_argument("--output", type=Path, default=default)
    options = parser.parse_args()
    native_build = load_native_build()
    sources = ROOT / "native"
    named = [shlex.split(options.compiler)] if options.compiler else None
    if not options.strict and not named and native_build.is_current(options.output, sources):
        print(f"up to date  {options.output}")
        return 0
    try:
        native_build.build(options.output, sources=sources, compilers=named, strict=options.strict)
    except native_build.BuildFailed as error:
        print(error, file=sys.stderr)
        return 1
    print(f"built  {options.output}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
