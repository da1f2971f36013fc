"""Fresh processes of Python without the seconds that importing other people's libraries takes.

They are forks of one process that has imported those and nothing of ours; nothing of ours may be
imported here either.
"""

import multiprocessing
import os
import runpy
import sys
from pathlib import Path

LIBRARIES = ["dp_accounting.pld", "dp_accounting.rdp", "pandas", "pyarrow.parquet"]
LIBRARIES += ["sklearn.ensemble", "sklearn.neural_network", "torch"]


def run_python(arguments, paths, folder):
    """Run ``python -c code ...`` or ``python -m module ...``.

    Returns the exit code and what it wrote to standard output and then to standard error.
    """
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(LIBRARIES)  # if no other test has begun one
    files = [Path(folder, name) for name in (".stdout", ".stderr")]
    process = context.Process(target=_run, args=(arguments, paths, folder, files))
    process.start()
    process.join()
    return process.exitcode, "".join(file.read_text() for file in files)


def _run(arguments, paths, folder, files):
    for descriptor, file in enumerate(files, start=1):
        os.dup2(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), descriptor)
    os.chdir(folder)
    if "vflsynth" in sys.modules:  # another test began the server that forks, and loaded it there
        os.environ["PYTHONPATH"] = os.pathsep.join(paths)
        os.execv(sys.executable, [sys.executable, *arguments])
    sys.path[:0] = paths
    option, what, *rest = arguments
    sys.argv = [option, *rest]
    if option == "-m":
        runpy.run_module(what, run_name="__main__", alter_sys=True)
    else:
        exec(compile(what, "<string>", "exec"), {"__name__": "__main__"})
