"""The node agent: Pods as local processes.

`machine` decides (pure), `supervisor` starts and stops processes, `agent` connects both with the API through the
Client protocol. Here Pods run on the plain level: processes in their own session and directory, without namespaces.
"""
