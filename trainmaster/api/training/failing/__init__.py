"""Why training jobs fail, in one line; how their failures compare, and what to do about them. Pure."""
