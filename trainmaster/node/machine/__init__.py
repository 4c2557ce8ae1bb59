"""The Pod machine: from what is known of a Pod to what should happen next. Pure: no clock, no processes, no API.

    model      what a Pod object asks for, read once
    state      what was seen of it: containers, probes, hooks; functions that note an observation
    steps      what should be done, as data
    outcome    phases, restarts and how a Pod ends
    probes     when a probe is due, and what its answers add up to
    stopping   hook, polite signal, kill, in the right order and time
    decide     the one question that the agent asks

The agent keeps one `PodState` per Pod, feeds it observations, and after each change asks `decide` for instructions.
Asking twice without news gives no instruction twice: what is handed out is noted in the state. Each attempt of a
container is started at most once, and terminal phases are never left.
"""
