"""What an installation takes: bytes to load and bytes on disk, with and without CUDA.

    python -m benchmarks.installed --way "without CUDA" --torch 2.13.0
    python -m benchmarks.installed --way "with CUDA" --torch 2.14.1

Wheels are loaded for an empty environment with the extra "report" and the newest versions that
``constraints.txt`` has, all but torch's; which of its builds comes is the index's to say. On disk
counts what wheels unpack to, without bytecode.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

from benchmarks import _results
from benchmarks._commands import parser

ROOT = Path(__file__).parents[1]


def main() -> None:
    """Load all wheels, weigh them, and keep the sums."""
    made = parser(__doc__)
    made.add_argument("--way", required=True, help="what the row is called")
    made.add_argument("--torch", required=True, help="its version")
    options = made.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        _results.put("installed", {"way": options.way, **weighed(options.torch, Path(folder))})


def weighed(torch: str, folder: Path) -> _results.Row:
    """Load the wheels of an installation, and add up what they weigh."""
    wanted = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    limits = folder / "constraints.txt"
    kept = [line for line in wanted if not line.startswith("torch==")]
    limits.write_text("\n".join([*kept, f"torch=={torch}"]), encoding="utf-8")
    pip = [sys.executable, "-m", "pip", "download", "-q", "-d", folder / "wheels", "-c", limits]
    subprocess.run([*pip, f"{ROOT}[report]"], check=True)
    found: dict[str, dict[str, float]] = {}
    for wheel in (folder / "wheels").iterdir():
        name = wheel.name.split("-")[0].lower()
        kind = "vflsynth" if name == "vflsynth" else "torch" if name == "torch" else "others"
        kind = "cuda" if name.startswith(("nvidia", "cuda", "triton")) else kind
        row = found.setdefault(kind, {"download_mb": 0.0, "installed_mb": 0.0, "wheels": 0})
        row["download_mb"] += wheel.stat().st_size / 1e6
        row["wheels"] += 1
        if wheel.suffix == ".whl":
            with zipfile.ZipFile(wheel) as archive:
                row["installed_mb"] += sum(each.file_size for each in archive.infolist()) / 1e6
    total = {key: sum(row[key] for row in found.values()) for key in found["torch"]}
    return {"torch": torch, "parts": found, **total}


if __name__ == "__main__":
    main()
