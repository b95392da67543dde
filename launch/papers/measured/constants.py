"""Which constants of a device are fitted on published runs: at most four, none of a model or a row.

What is expected of them: the share of peak that large products sustain where power limits the clock, and that of flash
attention, as vendors and papers tell them; a tenth of a product's bytes not hidden; 0.4 % for each doubling of nodes.
"""

from emu.study.training.fitted import Constant
from launch.data.fitted import DATA

TRAINING = DATA / "training.csv"
COMMAND = "emu repro measured --fit FILE.json"

CONSTANTS = (
    Constant("gemm_share", 0.7, 0.1, 0.3, 1.0),
    Constant("attention_efficiency", 0.6, 0.1, 0.2, 1.0),
    Constant("unhidden_share", 0.1, 0.1, 0.0, 1.0),
    Constant("jitter", 0.004, 0.002, 0.0, 0.02),
)
