"""The measurements of `bench`, and the output of their figures."""
