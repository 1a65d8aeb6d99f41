"""The verbs, one module each, imported on use."""
