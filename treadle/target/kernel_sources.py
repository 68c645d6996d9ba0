# SPDX-License-Identifier: Apache-2.0
"""Files of C with several kernels: each text that a back end prints for one stands by itself."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

PRELUDE = """\
#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct td_env td_env;
typedef int32_t (*td_body)(const td_env* env, void* closure, int64_t begin, int64_t end,
                           int32_t worker);
struct td_env {
  int32_t (*parallel)(const td_env* env, td_body body, void* closure, int64_t count);
  int32_t num_threads;
  int32_t reserved;
  void* pool;
};"""
"""What the text of each kernel declares after its first line: headers and the kernel ABI."""


def kernels_source(names: Sequence[str], texts: Sequence[str]) -> str:
    """Return the source of kernels, given the text of each, as one file."""
    return "\n\n".join([PRELUDE, *joined_kernels(names, texts)]) + "\n"


def joined_kernels(names: Sequence[str], texts: Sequence[str]) -> Iterator[str]:
    """Yield kernels without their prelude; helpers that several have stand there once."""
    seen: set[str] = set()
    for name, text in zip(names, texts, strict=True):
        chunks = text.replace(PRELUDE, "").strip().split("\n\n")
        own = next(i for i, c in enumerate(chunks) if i > 0 and re.search(rf"\b{name}", c))
        for chunk in filter(str.strip, chunks[1:own]):
            if chunk not in seen:
                seen.add(chunk)
                yield chunk.strip()
        yield "\n\n".join(chunks[own:])
