"""The client of a command that shows a job: its view and its logs share the watches of the objects that both follow."""

from __future__ import annotations

from trainmaster.client.follow import SharesFollows
from trainmaster.client.http import HttpClient
from trainmaster.client.kubeconfig import ClusterConfig


class SharingClient(SharesFollows, HttpClient):
    def __init__(self, config: ClusterConfig, *, carried: bool) -> None:
        """`carried`: over one connection, which the server of a home has and a cluster does not."""
        SharesFollows.__init__(self)
        HttpClient.__init__(self, config, carried=carried)
