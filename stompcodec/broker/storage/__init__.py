"""Storage: what outlives the process: messages, bodies, their folder and their checks."""
