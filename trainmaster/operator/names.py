"""What an installation is called, so that several on one cluster have names of their own.

Objects in its namespace are named after the product alone. What has no namespace ends with the instance, if there is
one: the ClusterRoles and both webhook configurations.
"""

from __future__ import annotations

from trainmaster.operator.templating.nodes import Text, Tree, Value, When

NAME = "trainmaster-operator"
NAMESPACE = "trainmaster-system"
INSTANCE = Value("instance")


def describe_cluster_name(name: str) -> Text:
    """For all installations."""
    ending: Tree = When(INSTANCE, Text("-", INSTANCE), "")
    return Text(name, ending)


def name_on_cluster(name: str, instance: str) -> str:
    """The same for one."""
    return f"{name}-{instance}" if instance else name
