"""What the processes of a container are doing at this moment: their states, and the Python stacks of their threads.

Runs in a process that the shim forks for it and that belongs to the Pod: its user, its namespaces (`visiting`).
"""
