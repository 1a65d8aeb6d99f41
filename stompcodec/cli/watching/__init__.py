"""The parts of `stompcodec top`: questions to a broker's management, its screen, and its keys."""
