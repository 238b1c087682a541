"""The door of ``serving.triton.stage``: a package goes into the server, without traffic."""

import sys

from artifacts.step import step
from serving.contract import StageSpec
from serving.triton import stage

if __name__ == "__main__":
    sys.exit(step(stage, StageSpec))
