"""Which constants of a device are fitted on published runs: two, none of a model or a row; all others are of measured kernels.

What is expected of them: a clock somewhat below that at which a kernel is measured by itself, as a step loads the whole server;
and the share of the memory's bandwidth that kernels reach which were measured by themselves.
"""

from emu.study.training.device_fit import Constant
from launch.data.fitted import DATA

TRAINING = DATA / "training.csv"
PREDICTED = DATA / "predicted.csv"  # runs that are in no fit
COMMAND = "emu repro measured --fit FILE.json"

CONSTANTS = (
    Constant("clock", 0.85, 0.1, 0.3, 1.3),
    Constant("hbm_efficiency", 0.8, 0.1, 0.3, 1.0),
)
DRAWS, SEED = 10, 29  # halves of the models that the constants are fitted on, for the other halves
