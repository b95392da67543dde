"""Keep the figures of today: `python -m tests.figures`, from the root of the repository, after a change that was meant."""

import json

from tests.figures.questions import KEPT, figures_of, questions

if __name__ == "__main__":
    lines = [f"{json.dumps(name)}: {json.dumps(figures_of(question))}" for name, question in questions().items()]
    KEPT.write_text("{\n" + ",\n".join(lines) + "\n}\n")
