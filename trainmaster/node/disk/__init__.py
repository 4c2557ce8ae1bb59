"""The machine's disk: who takes how much, who has to go, and what jobs leave behind on purpose."""
