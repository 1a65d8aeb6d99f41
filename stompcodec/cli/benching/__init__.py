"""The measurements of `bench`, and the display of their figures."""
