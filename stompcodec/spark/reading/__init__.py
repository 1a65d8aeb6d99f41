"""Reading captures and streams of frames into rows."""
