"""The verbs, one module each, imported when a verb runs."""
