# SPDX-License-Identifier: Apache-2.0
"""Default schedules per operator class; each is also the tuning template."""
