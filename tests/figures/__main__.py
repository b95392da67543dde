"""Keep the figures of today: `python -m tests.figures`, from the root of the repository, after a change that was meant."""

import argparse
import json

from tests.figures.questions import KEPT, questions

if __name__ == "__main__":
    argparse.ArgumentParser(prog="python -m tests.figures", description=__doc__).parse_args()
    lines = [f"{json.dumps(name)}: {json.dumps(question())}" for name, question in questions().items()]
    KEPT.write_text("{\n" + ",\n".join(lines) + "\n}\n")
