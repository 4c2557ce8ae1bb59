"""Installs the operator: values, the objects that follow from them, and what the chart is made of.

read_values(mapping) -> Values      refuses what is unknown, of a wrong type or contradictory
build_objects(values, namespace)    all objects, in an order in which they can be applied
"""

from trainmaster.operator.install.building import build_objects
from trainmaster.operator.install.reading import ValuesError, read_values
from trainmaster.operator.install.values import Values

__all__ = ["Values", "ValuesError", "build_objects", "read_values"]
