"""Writing: rows become SEND frames, and a task's connection sends them."""
