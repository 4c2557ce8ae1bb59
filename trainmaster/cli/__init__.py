"""The command line. Each command is one module that parses its arguments, calls other parts and prints the result."""
