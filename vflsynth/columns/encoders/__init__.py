"""Encoders: how the numbers of a column become what networks see.

Every module of this folder is imported here, so that its classes are found by name.
"""

import importlib
import pkgutil

for _module in pkgutil.iter_modules(__path__):
    importlib.import_module(f"{__name__}.{_module.name}")
