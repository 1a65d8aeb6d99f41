"""The command line: `python -m stompcodec` does the same as the command `stompcodec`."""

from stompcodec.cli import main

if __name__ == "__main__":
    main()
