"""The parts of `inspect`: its data, its page, its screen."""
