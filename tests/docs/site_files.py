"""The files that the site is made of."""

import importlib
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
NOTEBOOKS = sorted((ROOT / "docs" / "notebooks").glob("*.ipynb"))
sys.path.insert(0, str(ROOT / "docs" / "site"))  # as mkdocs loads its hooks
notebook_pages = importlib.import_module("notebook_pages")
