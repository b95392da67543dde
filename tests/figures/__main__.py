"""Keep the figures of today: `python -m tests.figures [WORDS ...]`, from the root of the repository, after a meant change.

With WORDS, only the questions whose names contain one of them are asked, and the figures of the others stay as they are kept.
"""

import argparse
import json

from tests.figures.questions import KEPT, kept, questions

if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m tests.figures", description=__doc__)
    parser.add_argument("words", nargs="*", metavar="WORDS", help="words in the names of the questions to ask; none: all")
    words, before = parser.parse_args().words, kept()
    found = {
        name: question() if not words or any(word in name for word in words) else before[name]
        for name, question in questions().items()
    }
    lines = [f"{json.dumps(name)}: {json.dumps(figures)}" for name, figures in found.items()]
    KEPT.write_text("{\n" + ",\n".join(lines) + "\n}\n")
