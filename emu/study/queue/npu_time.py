"""The account of a machine's NPU time: what each NPU did or waited for, so that all parts sum to the whole."""

from collections import Counter

# What the time of an NPU goes to, in the order of reports.
WORK, SAVING, STARTING, AGAIN, UNUSED = "work", "saving", "starting", "again", "unused"
FAULTY, OUT, FRAGMENTED, BLOCKED, IDLE = "faulty", "out", "fragmented", "blocked", "idle"
REASONS = {
    WORK: "work that lasts",
    SAVING: "checkpoints",
    STARTING: "starts from a checkpoint",
    AGAIN: "work lost to a fault and done again",
    UNUSED: "held by a job that asked for fewer NPUs, as its grid or box has more",
    FAULTY: "faulty",
    OUT: "without a fault, but out of service: backups, and hosts with a faulty NPU",
    FRAGMENTED: "free, and enough for the first job that waits, but not where it finds room",
    BLOCKED: "free, but too few for the first job that waits",
    IDLE: "free, and no job waits",
}


class NpuTime:
    """The NPU time of a machine by what it went to, in NPU-microseconds."""

    def __init__(self) -> None:
        self.spent_us: Counter[str] = Counter(dict.fromkeys(REASONS, 0))
        self._rate: dict[str, int] = {}
        self._since_us = 0

    def add(self, reason: str, npu_us: int) -> None:
        """Add time of NPUs that a job holds."""
        self.spent_us[reason] += npu_us

    def change(self, now_us: int, rate: dict[str, int]) -> None:
        """Add the time until now of the NPUs that no job holds, and note how many there are from now on, by reason."""
        for reason, npus in self._rate.items():
            self.spent_us[reason] += npus * (now_us - self._since_us)
        self._rate, self._since_us = rate, now_us
