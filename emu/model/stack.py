"""The software that a job runs on, as far as it changes time and traffic and not results: a value apart from the plan."""

from dataclasses import dataclass, fields

from emu.dtypes import item_bytes
from emu.registry import unknown

SOFTWARE = ("pytorch",)


@dataclass(frozen=True, slots=True)
class Precision:
    """The dtype of each role that a tensor plays; names as torch has them."""

    weight: str = "bfloat16"
    activation: str = "bfloat16"
    gradient: str = "float32"
    moment: str = "float32"  # each of AdamW's two

    def __post_init__(self) -> None:
        for field in fields(self):
            item_bytes(getattr(self, field.name))


EXECUTED = Precision("float32", "float32", "float32", "float32")  # what Emu's own ranks train in


@dataclass(frozen=True, slots=True)
class Stack:
    """Settings of one software; `pytorch` asks for what PyTorch's own pieces ask for."""

    software: str = "pytorch"
    precision: Precision = Precision()

    def __post_init__(self) -> None:
        if self.software not in SOFTWARE:
            raise unknown("software of a stack", self.software, SOFTWARE)
