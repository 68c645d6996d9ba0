# SPDX-License-Identifier: Apache-2.0
"""What pyproject.toml cannot say: the wheel fits any Python 3, but one platform."""

from setuptools import Distribution, setup
from setuptools.command.bdist_wheel import bdist_wheel


class PlatformDistribution(Distribution):
    """A distribution with machine code in it, though with no extension module."""

    def has_ext_modules(self) -> bool:
        """Say that the wheel holds machine code."""
        return True


class PlatformWheel(bdist_wheel):
    """Tags the wheel py3-none-<platform>: the native library knows nothing of CPython's ABI."""

    def get_tag(self) -> tuple[str, str, str]:
        """Return the tag without a Python version and ABI."""
        return ("py3", "none", super().get_tag()[2])


setup(distclass=PlatformDistribution, cmdclass={"bdist_wheel": PlatformWheel})
