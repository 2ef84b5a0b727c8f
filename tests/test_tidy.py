"""Style that is itself a test: each rule names the offenders when it fails."""

import ast
import gc
import re
import subprocess
from collections import Counter, defaultdict
from functools import cache
from pathlib import Path
from typing import get_args

import pytest

from steno.journal import facts
from steno.journal.history import Entry

ROOT = Path(__file__).resolve().parent.parent
FUNCTION_LINES_MAX = 75
MODULE_LINES_MAX = 800
SMALL_MODULE_LINES = 40
PACKAGE_MODULES_MAX = 15
BROAD_EXCEPTS_PER_1000_LINES_MAX = 2
PROMISE_MAX = 78

FACTS = {
    kind.__name__
    for kind in (*vars(facts).values(), *get_args(Entry))
    if isinstance(kind, type) and (issubclass(kind, facts.Fact) or kind in get_args(Entry))
}
"""Facts, their groups, and the entries that a model is told."""

# Spelled in pieces, so that this file passes its own rules.
UNFINISHED = re.compile(r"\b(" + "|".join(["TO" + "DO", "FIX" + "ME", "X" * 3]) + r")\b")
MACHINE_PATH = re.compile(r"(?<![\w.])/(" + "|".join(["work", "root", "home"]) + ")/")

# What would make a test another one on another day. All chance comes from tests/chance.py.
CALENDAR = re.compile(
    "|".join(
        [
            r"datetime\.(now|today|utcnow)|date\.today|toordinal",
            r"// *86_?400\b",
            r"os\.urandom|secrets\.|uuid[14]",
            r"\brandom\.(?!Random\(\d)|\bRandom\(\)",
            "rotating",
        ]
    )
)


def python_files(folder: str) -> list[Path]:
    return sorted((ROOT / folder).rglob("*.py"))


def project_files() -> list[Path]:
    """Every file that is, or with the next commit can be, part of the project."""
    listing = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        check=False,
    )
    if listing.returncode != 0:
        pytest.skip("not a git checkout")
    names = listing.stdout.decode().split("\0")
    return [ROOT / name for name in names if name and (ROOT / name).is_file()]


def matching_lines(pattern: re.Pattern[str], files: list[Path]) -> list[str]:
    return [
        f"{place(file)}:{number}: {line.strip()}"
        for file in files
        for number, line in enumerate(file.read_text(errors="replace").splitlines(), start=1)
        if pattern.search(line)
    ]


def place(file: Path) -> str:
    return file.relative_to(ROOT).as_posix()


@cache
def nodes(file: Path) -> tuple[ast.AST, ...]:
    """Python up to 3.11.7 can fail to make a tree while the garbage collector runs code of
    others."""
    gc.disable()
    try:
        return tuple(ast.walk(ast.parse(file.read_text(), filename=str(file))))
    finally:
        gc.enable()


def line_count(file: Path) -> int:
    return len(file.read_text().splitlines())


def is_broad(handler: ast.ExceptHandler) -> bool:
    match handler.type:
        case None:
            return True
        case ast.Tuple(elts=caught):
            pass
        case single:
            caught = [single]
    return any(
        isinstance(kind, ast.Name) and kind.id in {"Exception", "BaseException"} for kind in caught
    )


def lines_of(node: ast.stmt) -> int:
    return (node.end_lineno or node.lineno) - node.lineno + 1


def test_functions_are_short() -> None:
    """A function that is one match is a table, as long as there are kinds."""
    long = [
        f"{place(file)}:{node.lineno}: {node.name}"
        for file in python_files("src")
        for node in nodes(file)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and lines_of(node) - sum(lines_of(one) for one in node.body if isinstance(one, ast.Match))
        > FUNCTION_LINES_MAX
    ]
    assert long == []


def test_modules_are_short() -> None:
    assert [
        place(file) for file in python_files("src") if line_count(file) > MODULE_LINES_MAX
    ] == []


def test_packages_are_small() -> None:
    """A package of a package is counted by itself."""
    modules = Counter(place(file.parent) for file in python_files("src") if not is_package(file))
    large = {package for package, number in modules.items() if number > PACKAGE_MODULES_MAX}
    assert sorted(large) == []


def test_a_class_name_stands_for_one_thing_in_a_package() -> None:
    """One class in another is named with it."""
    where: dict[tuple[str, str], list[str]] = defaultdict(list)
    for file in python_files("src"):
        inner = {
            id(one) for node in nodes(file) if isinstance(node, ast.ClassDef) for one in node.body
        }
        for node in nodes(file):
            if isinstance(node, ast.ClassDef) and id(node) not in inner:
                where[place(file.parent), node.name.lstrip("_")].append(place(file))
    assert {key: files for key, files in where.items() if len(files) > 1} == {}


def test_a_small_module_has_more_than_one_user() -> None:
    """Else it belongs to that one. A program that is started by its name has none."""
    users = Counter(module for _, module in imports())
    lonely = [
        place(file)
        for file in python_files("src")
        if not is_package(file)
        and line_count(file) < SMALL_MODULE_LINES
        and users[name_of(file)] <= 1
        and "__main__" not in file.read_text() + file.name
    ]
    assert lonely == []


def test_no_package_imports_one_that_imports_it() -> None:
    """Also where a function imports: a cycle is one idea in two places."""
    arrows = {(package_of(user), package_of(module)) for user, module in imports()}
    assert (
        sorted(
            f"{one} <-> {other}" for one, other in arrows if one < other and (other, one) in arrows
        )
        == []
    )


def imports() -> set[tuple[str, str]]:
    """Each module of steno with each that it imports, wherever it does."""
    known = {name_of(file): file for file in python_files("src")}
    found = set()
    for user, file in known.items():
        for node in nodes(file):
            if isinstance(node, ast.ImportFrom) and node.module is not None:
                modules = {f"{node.module}.{alias.name}" for alias in node.names}
                found |= {(user, name if name in known else node.module) for name in modules}
            elif isinstance(node, ast.Import):
                found |= {(user, alias.name) for alias in node.names}
    return {(user, name) for user, name in found if name in known and name != user}


def is_package(file: Path) -> bool:
    return file.name == "__init__.py"


def name_of(file: Path) -> str:
    parts = file.relative_to(ROOT / "src").with_suffix("").parts
    return ".".join(parts[:-1] if is_package(file) else parts)


def package_of(module: str) -> str:
    """A module at the top of steno is a package of its own."""
    return module.split(".")[1] if "." in module else module


def test_each_match_over_facts_names_what_it_ignores() -> None:
    """Then the type checker names each that has not decided about a new fact."""
    open_ended = [
        f"{place(file)}:{node.lineno}"
        for file in python_files("src")
        for node in nodes(file)
        if isinstance(node, ast.Match)
        and any(FACTS.intersection(classes_in(case.pattern)) for case in node.cases)
        and takes_everything(node.cases[-1])
    ]
    assert open_ended == []


def classes_in(pattern: ast.pattern) -> set[str]:
    return {
        ast.unparse(node.cls).rpartition(".")[2]
        for node in ast.walk(pattern)
        if isinstance(node, ast.MatchClass)
    }


def takes_everything(case: ast.match_case) -> bool:
    if not isinstance(case.pattern, ast.MatchAs) or case.pattern.pattern is not None:
        return False
    return not ast.unparse(case.body[0]).startswith("assert_never(")


def test_broad_excepts_are_rare() -> None:
    files = python_files("src")
    broad = [
        f"{place(file)}:{node.lineno}"
        for file in files
        for node in nodes(file)
        if isinstance(node, ast.ExceptHandler) and is_broad(node)
    ]
    thousands = max(1.0, sum(map(line_count, files)) / 1000)
    assert len(broad) <= BROAD_EXCEPTS_PER_1000_LINES_MAX * thousands, broad


def test_promise_marks_name_a_promise() -> None:
    unknown = [
        f"{place(file)}:{node.lineno}: {ast.unparse(node)}"
        for file in python_files("tests")
        for node in nodes(file)
        if isinstance(node, ast.Call) and is_promise(node.func) and not names_promises(node)
    ]
    assert unknown == []


def is_promise(func: ast.expr) -> bool:
    match func:
        case ast.Name(id="promise") | ast.Attribute(attr="promise"):
            return True
    return False


def names_promises(mark: ast.Call) -> bool:
    numbers = [arg.value if isinstance(arg, ast.Constant) else None for arg in mark.args]
    return bool(numbers) and all(type(n) is int and 1 <= n <= PROMISE_MAX for n in numbers)


def test_nothing_is_marked_unfinished() -> None:
    folders = {"src", "tests", "docs"}
    files = [file for file in project_files() if file.relative_to(ROOT).parts[0] in folders]
    assert matching_lines(UNFINISHED, files) == []


def test_no_file_names_a_path_of_one_machine() -> None:
    assert matching_lines(MACHINE_PATH, project_files()) == []


def test_no_test_depends_on_the_date_or_on_chance_without_a_seed() -> None:
    files = [file for file in python_files("tests") if file != Path(__file__)]
    assert matching_lines(CALENDAR, files) == []


COMMANDS = "run|continue|retry|show|approve|deny|approvals|interrupt|sessions|memory|verify|restore"
COMMANDS += "|follow|undo|rules|compact|redact|rewind|hide|fork|goal|delete|distill|import|export"
OF_THE_COMMAND_LINE = re.compile(rf"\bsteno ({COMMANDS})\b|(?<![\w-])--[a-z]{{2,}}")
BELOW = ("session", "service", "runtimes", "engine", "journal", "transfer", "delivery", "plugins")


def sentences(file: Path) -> list[ast.Constant]:
    """Strings of several words that are no documentation."""
    documentation = {id(node.value) for node in nodes(file) if isinstance(node, ast.Expr)}
    return [
        node
        for node in nodes(file)
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and " " in node.value
        if id(node) not in documentation
    ]


def test_no_sentence_below_the_front_ends_names_a_command_or_a_flag() -> None:
    """An error says what is so, and each front end what to do about it."""
    said = [
        f"{place(file)}:{node.lineno}: {node.value!r}"
        for package in BELOW
        for file in python_files(f"src/steno/{package}")
        for node in sentences(file)
        if OF_THE_COMMAND_LINE.search(str(node.value))
    ]
    assert said == []
