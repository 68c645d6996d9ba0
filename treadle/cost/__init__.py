# SPDX-License-Identifier: Apache-2.0
"""What loops cost on a machine: formulas over the facts of a target, without facts of their own.

Schedules choose by them, and estimates of a method are made with the same functions.
"""
