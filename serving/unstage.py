"""The door of ``serving.triton.unstage``: a version without traffic leaves the server."""

import sys

from artifacts.step import step
from serving.contract import UnstageSpec
from serving.triton import unstage

if __name__ == "__main__":
    sys.exit(step(unstage, UnstageSpec))
