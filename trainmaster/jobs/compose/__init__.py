"""From what somebody asks for to the objects that are created: one compiler behind `run` and both REST APIs."""
