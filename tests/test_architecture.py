"""The shape of the package: who imports whom, what is public, and whether it is described."""

import ast
import functools
import graphlib
import importlib
import inspect
import pkgutil
import re
from pathlib import Path

import vflsynth

PACKAGE = Path(vflsynth.__file__).parent
ROOT = PACKAGE.parent
MODULES = sorted(file for file in PACKAGE.rglob("*.py") if "__pycache__" not in file.parts)


def layers() -> list[str]:
    """The table of CONTRIBUTING.md, top to bottom: folders and modules without their endings."""
    table = (ROOT / "CONTRIBUTING.md").read_text().partition("| where |")[2].partition("\n\n")[0]
    return [re.sub(r"/$|\.py$", "", name) for name in re.findall(r"^\| `([^`]+)`", table, re.M)]


LAYERS = layers()
FORBIDDEN = {
    "joblib.dump",
    "joblib.load",
    "np.load",
    "torch.load",
    "torch.save",
}
ALLOWED = "np.random.default_rng"  # a generator of its own, not the global one


def layer_of(module: str) -> str | None:
    """``vflsynth.frames.io`` → ``frames``; None for the private modules beside the folders."""
    name = module.split(".")[1]
    return None if name.startswith("_") or name == "exceptions" else name


def name_of(file: Path) -> str:
    parts = file.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@functools.cache
def imports_of(file: Path) -> set[str]:
    """Full names of everything of this package that a module imports, be it for types only."""
    found = set()
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{file} imports relatively"
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    return {name for name in found if name.startswith("vflsynth.")}


def module_of(name: str, known: set[str]) -> str:
    """The module that a full name of a module or of something in one stands for."""
    return name if name in known else name.rpartition(".")[0]


def circle(edges: dict[str, set[str]]) -> list[str]:
    """Names of a circle, if there is one."""
    try:
        list(graphlib.TopologicalSorter(edges).static_order())
    except graphlib.CycleError as error:
        return list(error.args[1])
    return []


def private_parts(module: str, imported: str) -> list[str]:
    """Private names in what a module imports from another folder."""
    folders = imported.split(".")[1:]
    if folders[0].startswith("_") or module.split(".")[1:2] == folders[:1]:
        return []  # a small module beside the folders is everybody's; a folder's own are its own
    return [part for part in folders if part.startswith("_") and not part.startswith("__")]


def test_every_folder_and_public_module_is_in_the_table():
    there = {layer_of(name_of(file)) for file in MODULES if file.parent != PACKAGE}
    there |= {
        layer_of(f"vflsynth.{file.stem}")
        for file in PACKAGE.glob("*.py")
        if file.stem != "__init__"
    }
    assert there - {None} == set(LAYERS)


def test_imports_point_upwards():
    wrong = []
    for file in MODULES:
        module = name_of(file)
        if module in ("vflsynth", "vflsynth.__main__"):  # they hold up what is below all
            continue
        own = layer_of(module)
        allowed = [None, *LAYERS[: LAYERS.index(own) + 1]] if own else [None]
        there = imports_of(file)
        wrong += [f"{module} imports {name}" for name in there if layer_of(name) not in allowed]
    assert not wrong


def test_the_check_would_see_a_wrong_import(tmp_path):
    file = tmp_path / "module.py"
    file.write_text("def f():\n    from vflsynth.run import run\n")
    assert imports_of(file) == {"vflsynth.run.run"}
    assert LAYERS.index("run") > LAYERS.index("networks")


def test_no_two_modules_import_each_other():
    known = {name_of(file) for file in MODULES}
    edges = {
        name_of(file): {module_of(name, known) for name in imports_of(file)} - {name_of(file)}
        for file in MODULES
    }
    assert not circle(edges)


def test_a_circle_would_be_found(tmp_path):
    file = tmp_path / "module.py"
    file.write_text("if TYPE_CHECKING:\n    from vflsynth.b import B\n")
    assert imports_of(file) == {"vflsynth.b.B"}
    assert circle({"vflsynth.b": {"vflsynth.a"}, "vflsynth.a": {"vflsynth.b"}})


def test_no_private_name_crosses_folders():
    wrong = []
    for file in MODULES:
        module = name_of(file)
        wrong += [f"{module} imports {n}" for n in imports_of(file) if private_parts(module, n)]
    assert not wrong


def test_a_private_name_would_be_seen():
    assert private_parts("vflsynth.audit.game", "vflsynth.evaluation._columns.numbers")
    assert private_parts("vflsynth.audit.game", "vflsynth.evaluation.columns._numbers")
    assert not private_parts("vflsynth.audit.game", "vflsynth.audit.findings._mean")


def importable() -> list[str]:
    """Modules whose optional dependencies are there."""
    names = []
    for info in pkgutil.walk_packages(vflsynth.__path__, "vflsynth."):
        if not info.name.endswith("__main__"):
            names.append(info.name)
    return ["vflsynth", *names]


def test_all_names_exist_and_are_described():
    """Whatever a package exports has a docstring whose parameters are those of the signature."""
    for name in importable():
        module = importlib.import_module(name)
        assert module.__doc__, name
        for exported in getattr(module, "__all__", []):
            check_described(getattr(module, exported), f"{name}.{exported}")


def check_described(thing: object, name: str) -> None:
    """A class or function that is exported has a docstring, and so have a class's methods."""
    if name.rpartition(".")[2].startswith("__"):
        return
    if not (inspect.isclass(thing) or inspect.isfunction(thing)):
        return
    assert inspect.getdoc(thing), name
    if not inspect.isclass(thing):
        check_parameters(thing, thing)
        return
    if thing.__init__ is object.__init__ or issubclass(thing, (BaseException, tuple)):
        return
    if getattr(thing, "_is_protocol", False) or inspect.isabstract(thing):
        return
    check_parameters(thing, thing.__init__)
    for attribute, method in vars(thing).items():
        if inspect.isfunction(method) and not attribute.startswith("_"):
            assert inspect.getdoc(method), f"{name}.{attribute}"


def documented_parameters(text: str) -> set[str] | None:
    """Names under the heading Parameters, None where there is none."""
    section = re.search(r"^Parameters\n-+\n(.*?)(?=^\w[\w ]*\n-+\n|\Z)", text, re.S | re.M)
    if section is None:
        return None
    heads = re.findall(r"^(\*{0,2}\w[\w, *]*?)(?: :.*)?$", section[1], re.M)
    return {name.strip() for head in heads for name in head.split(",")}


def check_parameters(thing: object, function: object) -> None:
    """Documented parameters are parameters, and none is left out if any is documented."""
    signature = set(inspect.signature(function).parameters) - {"self", "cls", "args", "kwargs"}
    documented = documented_parameters(inspect.getdoc(thing) or "")
    if documented is None:
        return
    name = getattr(thing, "__qualname__", thing)
    own = {parameter for parameter in documented if not parameter.startswith("*")}
    assert own <= signature, f"{name} documents {own - signature}"
    if own == documented:  # else ``**shared`` stands for what another class documents
        assert signature <= own, f"{name} leaves out {signature - own}"


def test_the_root_exports_what_a_user_needs():
    assert set(vflsynth.__all__) >= {"VFLGANSynthesizer", "EarlyStopping", "PartyModel", "preset"}
    assert (PACKAGE / "py.typed").is_file()


def test_nothing_uses_pickle_or_global_random_state():
    """Written as imports and attribute look-ups, so that words in docstrings do not count."""
    for file in MODULES:
        if file == PACKAGE / "testing" / "laws.py":
            continue  # has a law about global random state
        for node in ast.walk(ast.parse(file.read_text())):
            names = []
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                names = [str(node.module)]
            for name in names:
                assert name.split(".")[0] not in {"pickle", "shelve", "random"}, file
            if isinstance(node, ast.Attribute):
                used = ast.unparse(node)
                assert used not in FORBIDDEN, f"{file} uses {used}"
                if used == "torch.manual_seed":  # only on borrowed state
                    assert "torch.random.fork_rng" in file.read_text(), file
                assert not re.fullmatch(r"np\.random\.[a-z]\w+", used.replace(ALLOWED, "")), file


def test_docstrings_have_no_roles():
    """Pages are Markdown, which shows them as they are."""
    assert not [f for f in MODULES if re.search(r":(attr|class|func|meth|mod):`", f.read_text())]


def test_no_fixture_is_of_a_package():
    """Folders of tests are no packages: such a fixture would last to the end of the session."""
    tests = ROOT / "tests"
    packages = {file.relative_to(tests).parts[0] for file in tests.rglob("__init__.py")}
    assert packages <= {"extension"}
    for file in [ROOT / "conftest.py", *tests.rglob("*.py")]:
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.keyword) and node.arg == "scope":
                assert ast.literal_eval(node.value) != "package", file
