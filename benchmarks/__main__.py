"""``python -m benchmarks NAME ...`` runs ``benchmarks.NAME``; without a name it lists them."""

from __future__ import annotations

import ast
import runpy
import sys
from pathlib import Path

SCRIPTS = {
    path.stem: (ast.get_docstring(ast.parse(path.read_text("utf-8"))) or "").partition("\n")[0]
    for path in sorted(Path(__file__).parent.glob("[!_]*.py"))
}


def main() -> None:
    """Run a script as if it had been named with the package."""
    if len(sys.argv) < 2 or sys.argv[1] not in SCRIPTS:
        wide = max(map(len, SCRIPTS))
        lines = [f"  {name:<{wide}}  {summary}" for name, summary in SCRIPTS.items()]
        sys.exit("\n".join(["usage: python -m benchmarks NAME [OPTIONS]", "", *lines]))
    del sys.argv[0]
    runpy.run_module(f"benchmarks.{sys.argv[0]}", run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
