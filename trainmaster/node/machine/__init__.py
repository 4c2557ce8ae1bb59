"""The Pod state machine: from what is known about a Pod to what should happen next. Pure: no clock, no processes, no
API.

    model      what a Pod object asks for, read once
    state      what was seen of it: containers, probes, hooks; functions that note an observation
    steps      what should be done, as data
    outcome    phases, restarts and how a Pod ends
    probes     when a probe is due, and what its answers add up to
    stopping   hook, polite signal, kill, in the right order and time
    decide     returns the instructions for the agent

The agent keeps one `PodState` per Pod, feeds it observations, and after each change asks `decide` for instructions.
Instructions are recorded in the state, so asking again without news returns none twice. Each attempt of a container is
started at most once, and terminal phases are never left.
"""
