# SPDX-License-Identifier: Apache-2.0
"""Operators of more than tensors: calls, control flow, variables, lists; and their table."""

from __future__ import annotations

from collections.abc import Mapping

from treadle.frontend.tensorflow.context import SpecialFn
from treadle.frontend.tensorflow.control import CONTROL
from treadle.frontend.tensorflow.lists import LISTS
from treadle.frontend.tensorflow.variables import VARIABLES

SPECIAL: Mapping[str, SpecialFn] = {**CONTROL, **LISTS, **VARIABLES}
"""The operators that converters of tensors alone cannot express."""
