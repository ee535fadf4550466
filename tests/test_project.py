"""The project keeps its own rules: where things are, how long they are, what is written about them."""

import ast
import importlib
import inspect
import io
import os
import re
import subprocess
import tokenize
import tomllib
import zipfile
from collections.abc import Iterator
from functools import cache
from itertools import chain
from pathlib import Path
from typing import get_args

import pytest
from hatchling.builders.wheel import WheelBuilder

import eddy
from eddy.topology.plan.node import Node, Role

ROOT = Path(__file__).resolve().parents[1]
TESTS = sorted(str(path.relative_to(ROOT)) for path in (ROOT / "tests").rglob("*.py"))
SOURCES = sorted(str(path.relative_to(ROOT)) for path in (ROOT / "eddy").rglob("*.py"))

MAX_FILE_LINES = 500
MAX_FUNCTION_LINES = 60  # of code; a docstring is read, not traced
PLACEHOLDER = re.compile(r"\b(todo|tbd|fixme|placeholder|docstring|coming soon|work in progress)\b", re.IGNORECASE)
BANNER = re.compile(r"#[\s#]*([-=*~_#])\1{2,}")
MACHINE_PATH = re.compile(r"(?<![\w.])/(?:work|root|home)/")
DEAD_STATEMENTS = (
    ast.Import,
    ast.ImportFrom,
    ast.Return,
    ast.Raise,
    ast.Assert,
    ast.Delete,
    ast.AugAssign,
    ast.If,
    ast.For,
    ast.While,
    ast.With,
    ast.FunctionDef,
    ast.ClassDef,
)


@cache
def text_of(source: str) -> str:
    return (ROOT / source).read_text(encoding="utf-8")


pytestmark = pytest.mark.xdist_group("project")  # files are parsed once, in one process
parsed = cache(ast.parse)


def tree_of(source: str) -> ast.Module:
    return parsed(text_of(source))


@pytest.fixture(scope="module", autouse=True)
def trees_are_forgotten() -> Iterator[None]:
    """Millions of objects, which the garbage collector would visit in all later tests of the process."""
    yield
    for each in (parsed, comments_of, docstrings_of, printed_of):
        each.cache_clear()


def code_lines(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    documented = ast.get_docstring(function, clean=False) is not None
    first = function.body[0]
    docstring = first.end_lineno - first.lineno + 1 if documented else 0
    return function.end_lineno - function.lineno + 1 - docstring


@cache
def comments_of(source: str) -> list[str]:
    tokens = tokenize.generate_tokens(io.StringIO(text_of(source)).readline)
    return [token.string for token in tokens if token.type == tokenize.COMMENT]


def is_dead_code(comment: str) -> bool:
    """Say whether a comment is a statement. A formula such as `X = seed + op(X)` is not dead code."""
    line = comment.lstrip("# ")
    for candidate in (line, f"{line} pass"):
        try:
            return any(isinstance(node, DEAD_STATEMENTS) for node in ast.parse(candidate).body)
        except SyntaxError:
            continue
    return False


def make(*arguments: str) -> list[str]:
    # Under `make test` the outer make's flags (such as -j) would reach this one.
    environment = {name: value for name, value in os.environ.items() if name not in {"MAKEFLAGS", "MAKELEVEL"}}
    run = subprocess.run(["make", *arguments], cwd=ROOT, env=environment, capture_output=True, text=True, check=True)
    return run.stdout.splitlines()


def tracked_files() -> list[Path]:
    """List what git tracks or would add: `.gitignore` is honoured."""
    listing = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    if listing.returncode:
        pytest.skip(f"not a git checkout: {listing.stderr.strip()}")
    return [path for name in listing.stdout.split("\0") if name and (path := ROOT / name).is_file()]


def test_modules_say_what_they_are() -> None:
    docstrings = {source: ast.get_docstring(tree_of(source)) or "" for source in SOURCES}
    summaries = {source: docstring.partition("\n\n")[0] for source, docstring in docstrings.items()}
    assert {
        source: said for source, said in summaries.items() if len(said.split()) < 4 or PLACEHOLDER.search(said)
    } == {}


@pytest.mark.parametrize("folder", ["", "files/", "loops/", "source/", "verification/"])
def test_maps_of_the_spark_package_name_each_module(folder: str) -> None:
    path = f"eddy/connectors/spark/{folder}"
    named = set(re.findall(r"\w+", ast.get_docstring(tree_of(f"{path}__init__.py")) or ""))
    modules = {Path(source).stem for source in SOURCES if Path(source).parent == Path(path)} - {"__init__"}
    assert modules
    assert modules - named == set()


def test_files_hold_one_idea() -> None:
    vague = {"utils.py", "util.py", "helpers.py", "common.py", "misc.py"}
    assert [source for source in SOURCES if Path(source).name in vague] == []
    lines = {source: text_of(source).count("\n") for source in SOURCES}
    too_long = {source: count for source, count in lines.items() if count > MAX_FILE_LINES}
    assert too_long == {}, f"at most {MAX_FILE_LINES} lines a file. Divide it by idea."


def test_functions_can_be_seen_at_once() -> None:
    too_long = [
        f"{source}:{node.lineno} {node.name}: {lines} lines"
        for source in SOURCES
        for node in ast.walk(tree_of(source))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and (lines := code_lines(node)) > MAX_FUNCTION_LINES
    ]
    assert too_long == []


def test_comments_are_sentences() -> None:
    bad = [
        f"{source}: {comment}"
        for source in SOURCES
        for comment in comments_of(source)
        if BANNER.match(comment) or is_dead_code(comment)
    ]
    assert bad == [], "banners or commented-out code"


@pytest.mark.parametrize(
    ("comment", "dead"),
    [
        ("# import os", True),
        ("# if weight:", True),
        ("# return frontier", True),
        ("# X = seed + op(X)", False),
        ("# return the rows that are left", False),
        ("# With one owner nothing is in flight.", False),
    ],
)
def test_dead_code_is_told_from_prose(comment: str, dead: bool) -> None:
    assert is_dead_code(comment) is dead


@cache
def docstrings_of(source: str) -> list[str]:
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    return [ast.get_docstring(node) or "" for node in ast.walk(tree_of(source)) if isinstance(node, documented)]


@pytest.mark.parametrize(("word", "most"), [("what", 2.0), ("behind", 0.1)])
def test_docstrings_name_things(word: str, most: float) -> None:
    """At most so many in 1,000 words: "what is sent" has a name, and what comes "behind" a step is downstream of it."""
    words = {source: re.findall(r"[a-z']+", " ".join(docstrings_of(source)).lower()) for source in SOURCES}
    found = {source: count for source in SOURCES if (count := words[source].count(word))}
    allowed = most * sum(map(len, words.values())) / 1_000
    assert sum(found.values()) <= allowed, f"'{word}' in docstrings: {found}"


@cache
def printed_of(source: str) -> list[str]:
    """The texts of messages: strings of four words or more that are no docstrings."""
    steps = list(ast.walk(tree_of(source)))
    documented = {id(step.value) for step in steps if isinstance(step, ast.Expr)}
    texts = (step for step in steps if isinstance(step, ast.Constant) and isinstance(step.value, str))
    return [text.value for text in texts if id(text) not in documented and len(text.value.split()) >= 4]


THAT_OF = r"(?:that|those) of"
MOVEMENT = r"go|goes|going|gone|went|come|comes|coming|came|stay|stays|stayed|stand|stands|stood|leave|leaves|leaving"


@pytest.mark.parametrize(
    ("texts", "pattern", "most"),
    [
        ("docstrings", THAT_OF, 0.3),
        ("comments", THAT_OF, 0.3),
        ("messages", THAT_OF, 0.3),
        ("docstrings", MOVEMENT, 1.0),
        ("comments", MOVEMENT, 1.5),
        ("messages", MOVEMENT, 1.5),
    ],
)
def test_prose_repeats_nouns_and_uses_the_verbs_of_the_field(texts: str, pattern: str, most: float) -> None:
    """At most so many in 1,000 words: "that of" has a noun, and rows are sent, stored or removed."""
    texts_of = {"docstrings": docstrings_of, "comments": comments_of, "messages": printed_of}[texts]
    words, found = 0, {}
    for source in SOURCES:
        text = " ".join(texts_of(source))
        words += len(re.findall(r"[A-Za-z']+", text))
        if count := len(re.findall(rf"\b(?:{pattern})\b", text, re.IGNORECASE)):
            found[source] = count
    assert sum(found.values()) <= most * words / 1_000, f"in {texts}: {found}"


def test_public_names_are_documented() -> None:
    def documented(name: str) -> bool:
        thing = getattr(eddy, name)
        if not (inspect.isclass(thing) or inspect.isroutine(thing) or inspect.ismodule(thing)):
            return True  # a constant: its type is documented, or it is a plain value
        docstring = thing.__dict__.get("__doc__") if inspect.isclass(thing) else thing.__doc__
        return bool(docstring) and not docstring.startswith(f"{name}(")  # what a dataclass writes by itself

    assert [name for name in eddy.__all__ if not documented(name)] == []


def test_make_help_lists_a_dozen_targets_at_most_that_exist() -> None:
    targets = [line.split()[1] for line in make("help")]
    assert {"demo", "test", "bench", "help"} <= set(targets)
    assert len(targets) <= 12
    make("--dry-run", *targets)  # fails on a target that has no rule


def test_make_lets_processes_keep_their_bytecode(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A command of eddy starts in half of the time where its bytecode is there."""
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    (tmp_path / "more").write_text("told:\n\t@printenv PYTHONDONTWRITEBYTECODE || echo unset\n")
    assert make("-f", "Makefile", "-f", str(tmp_path / "more"), "told") == ["unset"]


def test_ci_runs_what_contributors_run() -> None:
    script = ROOT / ".ci" / "run"
    assert os.access(script, os.X_OK)
    assert "exec make test\n" in script.read_text(encoding="utf-8")


INSTALLS = re.compile(r"pip install(?: +-\S+)*((?: +'[^']+')+| +\.?\w[\w.-]*(?:\[[^\]]*\])?)")
"""What is to be installed, in a message, a page or a recipe: requirements in quotes, or one without."""
REQUIREMENT = re.compile(r" ('?)([\w.-]+)(?:\[([^\]]*)\])?")


def test_every_pip_install_that_we_advise_works() -> None:
    """Extras exist and are quoted, since a shell reads brackets; other packages are among our dependencies."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    names = {REQUIREMENT.match(f" {line}")[2] for line in chain(project["dependencies"], *extras.values())}  # type: ignore[index]
    advised = 0
    for path in tracked_files():
        if path.suffix in {".png", ".gz"} or path.is_relative_to(ROOT / "tests"):
            continue
        for requirements in INSTALLS.findall(path.read_text(encoding="utf-8")):
            for quote, name, chosen in REQUIREMENT.findall(requirements):
                said = f"{path.relative_to(ROOT)}: pip install{requirements}"
                assert name in {".", *names, project["name"]}, f"{said}: {name} is no dependency of ours"
                assert quote or not chosen, f"{said}: a shell reads the brackets; quotes are needed"
                if name in {".", project["name"]} and chosen:
                    assert {*chosen.split(",")} <= {*extras}, f"{said}: an extra is missing"
                    advised += 1
    assert advised > 10


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("pip install 'eddy-streams[http]'", " 'eddy-streams[http]'"),
        ("pip install -q -e '.[http,kafka]' now", " '.[http,kafka]'"),
        ("pip install eddy-streams[nothing]", " eddy-streams[nothing]"),
        ('Upgrade: pip install -U eddy-streams"', " eddy-streams"),
        ("pip install --no-cache-dir 'pandas>=2.2,<3' 'pyarrow>=18'", " 'pandas>=2.2,<3' 'pyarrow>=18'"),
    ],
)
def test_installs_are_found(text: str, found: str) -> None:
    assert INSTALLS.findall(text) == [found]


def test_readme_fits_on_a_few_pages() -> None:
    assert 0 < text_of("README.md").count("\n") <= 150


def test_licence_is_the_one_that_pyproject_names() -> None:
    assert tomllib.loads(text_of("pyproject.toml"))["project"]["license"] == "Apache-2.0"
    assert "Apache License\n                           Version 2.0, January 2004" in text_of("LICENSE")


def test_builds_hold_only_the_package() -> None:
    targets = tomllib.loads(text_of("pyproject.toml"))["tool"]["hatch"]["build"]["targets"]
    assert targets["wheel"]["packages"] == ["eddy"]
    included = [name for name in targets["sdist"]["include"] if not (ROOT / name.lstrip("/")).is_file()]
    assert included == ["/eddy"]


def test_wheel_says_that_the_package_is_typed(tmp_path: Path) -> None:
    """Without `py.typed` in it type checkers take every name of the package for Any."""
    (built,) = WheelBuilder(str(ROOT)).build(directory=str(tmp_path), versions=["standard"])
    with zipfile.ZipFile(built) as wheel:
        names = wheel.namelist()
    assert "eddy/py.typed" in names
    assert {name.split("/")[0] for name in names if ".dist-info/" not in name} == {"eddy"}


def test_no_tracked_file_names_a_path_of_one_machine() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()[:80]}"
        for path in tracked_files()
        if b"\0" not in (content := path.read_bytes())[:8192]
        for number, line in enumerate(content.decode(errors="replace").splitlines(), start=1)
        if MACHINE_PATH.search(line)
    ]
    assert found == []


NAMES_OF_OTHERS = {"os", "sys", "KafkaError"}
"""Their names that begin with an underscore are documented."""


def private_names(code: str) -> list[tuple[int, str]]:
    """The lines that name something private that the code does not define itself, without a reason beside it.

    `# private: <reason>` is beside it at the end of the line, or of the head of a function or class around it.
    """
    tree, lines = parsed(code), code.splitlines()
    reasons = {number for number, line in enumerate(lines, start=1) if re.search(r"# private: \w", line)}
    own: set[str] = set()
    found: list[tuple[int, str]] = []
    for step in ast.walk(tree):
        match step:
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                own.add(step.name)
                if reasons.intersection(range(step.lineno, step.body[0].lineno)):
                    reasons.update(range(step.lineno, step.end_lineno + 1))
            case ast.Name(ctx=ast.Store()):
                own.add(step.id)
            case ast.Attribute(value=ast.Name("self"), ctx=ast.Store()):
                own.add(step.attr)
            case ast.Attribute(value=ast.Name(id=base)) if base in NAMES_OF_OTHERS:
                pass
            case ast.Attribute():
                found.append((step.lineno, step.attr))
            case ast.ImportFrom():
                found += [(step.lineno, alias.name) for alias in step.names]
            case ast.Call(func=ast.Attribute(attr=called) | ast.Name(id=called)) if called.endswith("attr"):
                texts = [given.value for given in step.args[:2] if isinstance(given, ast.Constant)]
                found += [(step.lineno, name) for text in texts for name in str(text).split(".")]
    return [
        (line, name)
        for line, name in sorted(found)
        if re.match(r"_(?!_|replace$).*[^_]$", name) and name not in own and line not in reasons
    ]


def test_tests_name_private_things_with_a_reason() -> None:
    """Tests use the names that others may use; each other name has `# private: <reason>` beside it."""
    found = {source: names for source in TESTS if (names := private_names(text_of(source)))}
    assert found == {}


@pytest.mark.parametrize(
    ("code", "found"),
    [
        ("worker._consumer.poll()", ["_consumer"]),
        ("worker._consumer.poll()  # private: each second one is lost", []),
        ("worker._consumer.poll()  # private:", ["_consumer"]),
        ("def test_it():  # private: planted\n    monkeypatch.setattr(Step, '_group', None)", []),
        ("monkeypatch.setattr('eddy.serve.server._ANSWER_S', 1)", ["_ANSWER_S"]),
        ("from eddy.serve.server import _ANSWER_S", ["_ANSWER_S"]),
        ("class Rig:\n    def __init__(self):\n        self._log = 1\n        self._log.__class__", []),
        ("os._exit(0), row._replace(key=1), view._repr_html_()", []),
    ],
)
def test_private_names_are_found(code: str, found: list[str]) -> None:
    assert [name for _, name in private_names(code)] == found


def pauses(code: str) -> list[int]:
    """The lines that sleep without a reason at their end. `asyncio.sleep(0)` lets others run, and waits for nothing."""
    lines = code.splitlines()
    steps = ast.walk(parsed(code)) if "sleep" in code else ()
    return [
        step.lineno
        for step in steps
        if isinstance(step, ast.Call)
        and ast.unparse(step.func) in {"time.sleep", "asyncio.sleep", "sleep"}
        and ast.unparse(step) != "asyncio.sleep(0)"
        and not re.search(r"# pause: \w", lines[step.lineno - 1])
    ]


def test_tests_sleep_with_a_reason() -> None:
    """Tests wait for a condition, by `tests/waiting.py`; each other sleep has `# pause: <reason>` beside it."""
    sources = [source for source in TESTS if source != "tests/waiting.py"]
    found = {source: lines for source in sources if (lines := pauses(text_of(source)))}
    assert found == {}


@pytest.mark.parametrize(
    ("code", "found"),
    [
        ("time.sleep(1)", [1]),
        ("\nasync def f():\n    await asyncio.sleep(0.05)", [3]),
        ("async def f():\n    await asyncio.sleep(0)", []),
        ("time.sleep(1)  # pause: a random moment", []),
        ("time.sleep(1)  # a random moment", [1]),
        ("program = 'time.sleep(600)'", []),
    ],
)
def test_pauses_are_found(code: str, found: list[int]) -> None:
    assert pauses(code) == found


NODE_MODULES = {
    f"eddy.topology.plan.{name}"
    for name in ("node", "topic_steps", "transforms", "joins", "reductions", "recursions", "graph")
}
"""The modules of the steps of a plan; `eddy.topology.plan.plan` has all their names, too."""


def node_classes() -> set[str]:
    """The classes of steps. `Node` is not among them: whether something is a step at all may be asked."""
    for module in NODE_MODULES:
        importlib.import_module(module)
    found: set[str] = set()
    todo = Node.__subclasses__()
    while todo:
        kind = todo.pop()
        todo += kind.__subclasses__()
        if kind.__module__ in NODE_MODULES:
            found.add(kind.__name__)
    return found


def test_a_reader_can_hold_a_step_in_mind() -> None:
    sizes = {
        base.__name__: len([name for name in {*vars(base), *inspect.get_annotations(base)} if name[0] != "_"])
        for base in Node.__mro__[:-1]
    }
    assert sizes["Node"] <= 40
    assert max(size for name, size in sizes.items() if name != "Node") <= 15, sizes


def test_each_role_is_of_one_kind_of_step() -> None:
    importlib.import_module("eddy.topology.plan.plan")  # it imports all steps
    roles: dict[str, list[type[Node]]] = {}
    todo: list[type[Node]] = Node.__subclasses__()
    while todo:
        kind = todo.pop()
        todo += kind.__subclasses__()
        if "role" in vars(kind):
            roles.setdefault(kind.role, []).append(kind)
    assert {role: kinds for role, kinds in roles.items() if len(kinds) > 1} == {}
    assert {*roles, "step"} == set(get_args(Role)), "a role that no step has"


def asked_types(tree: ast.Module, classes: set[str]) -> list[int]:
    """The lines that ask whether something is of one of these classes of steps, in any of Python's ways."""
    names: set[str] = set()
    for step in ast.walk(tree):
        if isinstance(step, ast.ImportFrom) and step.module in {
            *NODE_MODULES,
            "eddy.topology.plan.plan",
            "eddy.topology.plan",
        }:
            names |= {alias.asname or alias.name for alias in step.names if alias.name in {*classes, "plan"}}

    def is_node_class(of: ast.AST) -> bool:
        return (isinstance(of, ast.Name) and of.id in names) or (
            isinstance(of, ast.Attribute)
            and of.attr in classes
            and isinstance(of.value, ast.Name)
            and of.value.id in names
        )

    def asks(step: ast.AST) -> list[ast.AST]:
        match step:
            case ast.Call(func=ast.Name(id="isinstance" | "issubclass"), args=[_, kinds]):
                return [kinds]
            case ast.Dict():
                return [key for key in step.keys if key is not None]
            case ast.Compare():
                return [step.left, *step.comparators]
            case ast.MatchClass():
                return [step.cls]
            case ast.FunctionDef(decorator_list=[_, *_]) if any("register" in ast.dump(d) for d in step.decorator_list):
                return [arg.annotation for arg in step.args.args if arg.annotation is not None]
        return []

    return sorted(
        {
            found.lineno
            for step in ast.walk(tree)
            for asked in asks(step)
            for found in ast.walk(asked)
            if is_node_class(found)
        }
    )


def test_only_steps_know_their_types() -> None:
    """Compilers, checks, pictures, traces and Spark ask a step for a property, so that a new step is one class."""
    classes = node_classes()
    outside = [source for source in SOURCES if source.removesuffix(".py").replace("/", ".") not in NODE_MODULES]
    readers = [source for source in outside if "eddy.topology" in text_of(source)]
    found = {source: lines for source in readers if (lines := asked_types(tree_of(source), classes))}
    assert found == {}, "lines that ask for the type of a step"


@pytest.mark.parametrize(
    ("code", "asks"),
    [
        ("isinstance(x, Source | Sink)", True),
        ("isinstance(x, (int, nodes.Source))", True),
        ("type(x) is Sink", True),
        ("{Source: 1}[type(x)]", True),
        ("match x:\n    case Source(): pass", True),
        ("@f.register\ndef g(self, node: nodes.Sink): pass", True),
        ("isinstance(x, Other)", False),
        ("def g(self, node: nodes.Sink): return cast('Source', add(Source))", False),
    ],
)
def test_questions_for_types_are_found(code: str, asks: bool) -> None:
    imports = "from eddy.topology.plan.plan import Sink, Source\nfrom eddy.topology.plan import plan as nodes\n"
    assert bool(asked_types(ast.parse(imports + code), node_classes())) is asks


FEATURES = {
    "eddy.topology.plan": "a step of a plan and its operator have the name of their feature",
    "eddy.topology.sql.algebra": "SQL's algebra has the names of relational algebra, as plans have",
    "eddy.live.query.syntax": "the syntax of live queries has them, too",
}
"""Where a class may have the name of an operator, or of a class in another of these, each with the reason."""


def test_no_two_classes_share_a_name_but_for_features() -> None:
    found: dict[str, list[str]] = {}
    for source in SOURCES:
        module = source.removesuffix(".py").replace("/", ".")
        for step in tree_of(source).body:
            if isinstance(step, ast.ClassDef):
                found.setdefault(step.name, []).append(module)
    shared = {}
    for name, modules in found.items():
        others = [module for module in modules if not module.startswith(tuple(FEATURES))]
        features = len(modules) - len(others)
        if len(others) > 1 or (features and any(not other.startswith("eddy.operators.") for other in others)):
            shared[name] = modules
    assert not shared


IMPLEMENTATIONS = {
    "consumer.py": "of the port `eddy/connectors/log.py`, in the package of each log",
    "follower.py": "of the same port",
    "log.py": "of the same port, which has the name itself",
    "producer.py": "of the same port",
}
"""Names of files that the packages of `eddy/connectors`, and `eddy/faust`, may share, each with the reason."""


def test_no_two_files_share_a_name_but_for_implementations_of_a_port() -> None:
    found: dict[str, list[str]] = {}
    for source in SOURCES:
        if Path(source).name != "__init__.py":
            found.setdefault(Path(source).name, []).append(source)
    shared = {name: sources for name, sources in found.items() if len(sources) > 1}
    packages = ("eddy/connectors/", "eddy/faust/")
    connectors = {name for name, sources in shared.items() if all(each.startswith(packages) for each in sources)}
    assert {name: sources for name, sources in shared.items() if name not in IMPLEMENTATIONS.keys() & connectors} == {}
    assert IMPLEMENTATIONS.keys() <= shared.keys(), "names that are shared no more"
