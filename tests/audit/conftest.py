"""The tables of what is audited are those of benchmarks/."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[2]))
