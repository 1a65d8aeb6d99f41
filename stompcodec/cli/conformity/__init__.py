"""The conformance suite, run on any codec."""
