# SPDX-License-Identifier: Apache-2.0
"""The library of intrinsics: the instructions that schedules and lowering passes use."""
