"""The conformance suite, to be run on any codec or broker."""
