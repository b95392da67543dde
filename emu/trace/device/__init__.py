"""How long a computation takes on one NPU."""
