"""How long jobs may run and how long they are kept: the installation's policy, and the terms in force for one job."""
