# SPDX-License-Identifier: Apache-2.0
"""Loop nests: statements, their text, and their construction from a schedule."""
