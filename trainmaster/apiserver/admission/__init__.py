"""What looks at a write besides the kind's own declaration: one module for each plug-in."""
