"""The parts of `proxy`: what passes is observed without I/O, checked, shown, recorded, and changed by faults."""
