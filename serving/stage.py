"""The door of ``serving.rehearsal.stage_rehearsed``: a package goes into the server, without traffic."""

import sys

from artifacts.step import step
from serving.contract import StageSpec
from serving.rehearsal import stage_rehearsed

if __name__ == "__main__":
    sys.exit(step(stage_rehearsed, StageSpec))
