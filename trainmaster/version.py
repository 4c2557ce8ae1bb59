"""Which version this is, and where the package is. Every program that imports `trainmaster` loads this module."""

import os

__version__ = "0.1.0"

PACKAGE = os.path.dirname(__file__)
