"""The rules of the design as tests: who imports whom, sizes, names, docstrings, coverage."""

from __future__ import annotations

import ast
import dataclasses
import functools
import io
import re
import tokenize
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

import sot_paddle
import sot_torch_ref.backbones.text
import sot_torch_ref.heads.factory
from align.port.port_run import ROWS
from sot_paddle.config import FUSIONS, LAYERS, NORMALIZATIONS, POOLINGS, EncoderConfig, HeadConfig
from sot_paddle.registry import PUBLISHED_NAMES, list_models

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("sot_paddle", "sot_torch_ref", "align")
FOLDERS = (*PACKAGES, "tools", "tests")
MAX_LINES, MAX_TOOL_LINES, MAX_BENCH_LINES = 500, 80, 400
BANNED_FILES = {"utils.py", "common.py", "misc.py", "helpers.py"}
BANNED_IMPORTS = {
    "sot_paddle": {"torch", "torchvision", "timm", "sot_torch_ref", "align", "tools", "tests"},
    "sot_torch_ref": {"paddle", "paddlenlp", "sot_paddle", "align", "tools", "tests"},
    "align": {"tools", "tests"},
    "tools": {"tools", "tests"},
}
BENCHMARKS = (
    "tools/bench.py",
    "tools/benchmarks/",
    "tools/mutants.py",
    "tools/mutation/",
)
"""The packages below tools/, of the checkout alone, and the scripts that import them."""
FLOORS = {
    "record": 1,
    "match": 2,
    "frameworks": 2,
    "judge": 3,
    "pair": 4,
    "explain": 5,
    "stages": 6,
    "report": 7,
    "commands": 8,
    "port": 9,
}
"""Rooms of align/: a file imports from its own room and from lower floors."""
ABOVE_ALL = {"__init__", "__main__", "cli"}
"""Files directly in align/: the front door may import every room."""
BROAD = "sot_paddle/cli.py"  # the outermost guard of every command
WITH_FRAMEWORKS = {
    "align/frameworks/": "both frameworks from outside",
    "align/pair/": "both sides built and run",
    "align/port/": "both sides of our own models",
    "align/explain/calls.py": "a layer is run again with other calls",
    "align/explain/call_rows.py": "the right answers of calls",
    "align/explain/call_values.py": "what is tried of calls",
    "align/explain/layer_edits.py": "a layer is run again with other arrays",
}
"""Where align/ may import paddle, paddlenlp, torch, transformers or timm, and for what."""
FRAMEWORKS = {"paddle", "paddlenlp", "torch", "transformers", "timm"}
READS_TORCH = "sot_paddle/convert/formats/torch_files.py"
"""The one file of the product that imports torch: when it reads or writes a file of torch."""
MAX_IN_A_FOLDER = 25

FILES = {
    path.relative_to(ROOT).as_posix(): path
    for folder in FOLDERS
    for path in sorted((ROOT / folder).rglob("*.py"))
}


CONVERSION = [name for name in FILES if name.startswith("sot_paddle/convert/")]


def in_folders(*folders: str) -> list[str]:
    return [name for name in FILES if name.split("/")[0] in folders]


@functools.cache
def tree(name: str) -> ast.Module:
    return ast.parse(FILES[name].read_text(encoding="utf-8"), filename=name)


@functools.cache
def nodes(name: str) -> list[ast.AST]:
    """All nodes of a file: a list is looked through faster than a tree is walked again."""
    return list(ast.walk(tree(name)))


@functools.cache
def imported(name: str) -> set[str]:
    """Top-level packages that a file imports, anywhere in it."""
    roots = set()
    for node in nodes(name):
        if isinstance(node, ast.Import):
            roots |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{name}:{node.lineno}: a relative import"
            roots.add(node.module.split(".")[0])
        elif isinstance(node, ast.Call) and _called(node) in ("import_module", "__import__"):
            first = node.args[0] if node.args else None
            if isinstance(first, ast.Constant):
                roots.add(str(first.value).split(".")[0])
    return roots


def _called(node: ast.Call) -> str:
    return getattr(node.func, "attr", getattr(node.func, "id", ""))


def test_the_files_are_found() -> None:
    assert {name.split("/")[0] for name in FILES} == set(FOLDERS)
    assert "sot_paddle/heads/fusion.py" in FILES


@pytest.mark.parametrize("folder", sorted(BANNED_IMPORTS))
def test_direction_of_imports(folder: str) -> None:
    wrong = {
        name: sorted(found)
        for name in in_folders(folder)
        if (found := imported(name) & BANNED_IMPORTS[folder])
        if not (found == {"tools"} and name.startswith(BENCHMARKS))
        if not (found == {"torch"} and name.startswith(READS_TORCH))
    }
    assert wrong == {}


def align_imports(name: str) -> Iterator[str]:
    """Modules of align/ that a file of it imports, anywhere in it, as paths of files."""
    for node in nodes(name):
        if isinstance(node, ast.ImportFrom):
            targets = [f"{node.module}.{alias.name}" for alias in node.names]
            targets = [t if _file_of(t) else node.module for t in targets]
        elif isinstance(node, ast.Import):
            targets = [alias.name for alias in node.names]
        else:
            continue
        yield from (found for target in targets if (found := _file_of(target)))


def _file_of(module: str) -> str:
    path = module.replace(".", "/")
    names = (f"{path}.py", f"{path}/__init__.py")
    return next((n for n in names if n in FILES and n.startswith("align/")), "")


def room_of(name: str) -> str:
    """The room of a file in align/; "" for those directly in it."""
    parts = name.split("/")
    return parts[1] if len(parts) > 2 else ""


def test_every_file_of_the_suite_is_in_a_room() -> None:
    folders = {room_of(name) for name in in_folders("align")}
    assert folders - {""} == set(FLOORS)
    outside = {Path(name).stem for name in in_folders("align") if not room_of(name)}
    assert outside == ABOVE_ALL


def test_rooms_import_from_lower_floors_only() -> None:
    wrong = []
    for name in in_folders("align"):
        room = room_of(name)
        for target in align_imports(name):
            other = room_of(target)
            inner = target == "align/__init__.py" or (other and other == room)
            if room and not inner and (not other or FLOORS[other] >= FLOORS[room]):
                wrong.append(f"{name} -> {target}")
    assert wrong == []


def test_imports_form_no_circle_not_even_one_hidden_in_a_function() -> None:
    waiting = {name: set(align_imports(name)) - {name} for name in in_folders("align")}
    while waiting:
        free = {name for name, needs in waiting.items() if not needs & set(waiting)}
        assert free, f"in a circle, or above one: {sorted(waiting)}"
        waiting = {name: needs for name, needs in waiting.items() if name not in free}


def test_where_the_suite_may_import_a_framework() -> None:
    wrong = {
        name: sorted(found)
        for name in in_folders("align")
        if (found := imported(name) & FRAMEWORKS) and not name.startswith(tuple(WITH_FRAMEWORKS))
    }
    assert wrong == {}


def test_only_the_rows_of_the_port_need_the_projects_own_reference() -> None:
    """A user's pair is compared where `sot_torch_ref` is not installed."""
    importing = {name for name in in_folders("align") if "sot_torch_ref" in imported(name)}
    assert {room_of(name) for name in importing} == {"port"}


def test_no_two_files_and_no_two_classes_of_the_suite_share_a_name() -> None:
    suite = in_folders("align")
    files = Counter(Path(name).name for name in suite)
    classes = Counter(
        node.name for name in suite for node in tree(name).body if isinstance(node, ast.ClassDef)
    )
    assert {n for n, count in files.items() if count > 1} == {"__init__.py"}
    assert {n for n, count in classes.items() if count > 1} == set()


def test_no_folder_of_the_suite_is_full() -> None:
    folders = Counter(str(Path(name).parent) for name in in_folders("align"))
    assert {n: count for n, count in folders.items() if count > MAX_IN_A_FOLDER} == {}


def test_pure_functions_and_configuration_stay_at_the_bottom() -> None:
    """functional <- heads, backbones <- registry <- tasks <- train <- search, none upwards."""
    above = {
        "functional": ("heads", "backbones", "registry", "tasks", "train", "data", "weights"),
        "features": ("heads", "backbones", "registry", "tasks", "train", "data", "weights"),
        "config": ("heads", "backbones", "registry", "tasks", "train", "data", "weights"),
        "heads": ("backbones", "registry", "tasks", "train", "data", "weights"),
        "backbones": ("registry", "tasks", "train", "data", "weights"),
        "registry": ("tasks", "train", "data", "weights"),
        "data": ("heads", "backbones", "registry", "tasks", "train"),
        "tasks": ("train", "search"),
        "train": ("search",),
    }
    wrong = []
    for name in in_folders("sot_paddle", "sot_torch_ref"):
        package, part = Path(name).with_suffix("").parts[:2]
        for node in nodes(name):
            module = node.module if isinstance(node, ast.ImportFrom) else ""
            names = [f"{module}.{a.name}" for a in node.names] if module else []
            for target in names:
                pieces = target.split(".")
                if pieces[0] == package and pieces[1] in above.get(part, ()):
                    wrong.append(f"{name}: {target}")
    assert wrong == []


def test_no_file_has_a_name_that_says_nothing() -> None:
    assert [name for name in FILES if Path(name).name in BANNED_FILES] == []


NAMES_OF_BACKBONES = re.compile(
    "|".join(
        [
            *(r"bert(?!normalizer|pretokenizer|_embeds\.h5|_?adam)", "gpt", "deit"),
            *PUBLISHED_NAMES,
            *list_models("vision"),
        ]
    ),
    re.IGNORECASE,
)
"""``BertNormalizer`` and ``BertPreTokenizer`` are classes of the tokenizers library,
``_bert_embeds.h5`` ends files of hidden states of any language model, BERTAdam is an optimizer."""


def code_of(name: str) -> str:
    """The source of a file without its docstrings and comments."""
    lines = FILES[name].read_text(encoding="utf-8").splitlines()
    for node in nodes(name):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            lines[node.lineno - 1 : node.end_lineno] = [""] * (node.end_lineno - node.lineno + 1)
    tokens = tokenize.generate_tokens(io.StringIO("\n".join(lines)).readline)
    return "\n".join(token.string for token in tokens if token.type != tokenize.COMMENT)


def test_a_backbone_is_named_in_its_file_and_in_the_registry_only() -> None:
    """What else depends on a backbone is a field of its record, or a layout of its weights."""
    named = {
        name: sorted(set(NAMES_OF_BACKBONES.findall(code_of(name))))
        for name in in_folders("sot_paddle")
        if not name.startswith(("sot_paddle/backbones/", "sot_paddle/convert/"))
        if name != "sot_paddle/registry.py"
    }
    assert {name: found for name, found in named.items() if found} == {}
    assert NAMES_OF_BACKBONES.search(code_of("sot_paddle/registry.py"))


def test_sizes_of_files() -> None:
    lines = {name: len(path.read_text("utf-8").splitlines()) for name, path in FILES.items()}
    limits = {
        "tools/bench": MAX_BENCH_LINES,
        "tools/mutation/": MAX_BENCH_LINES,
        "tools/check_versions.py": MAX_BENCH_LINES,
        "tools/": MAX_TOOL_LINES,
        "": MAX_LINES,
    }
    allowed = {
        name: next(limit for start, limit in limits.items() if name.startswith(start))
        for name in lines
    }
    assert {name: count for name, count in lines.items() if count > allowed[name]} == {}


def test_forward_methods_of_heads_do_not_ask_for_a_type() -> None:
    """Strings become objects once, in the factory; no forward compares one."""
    wrong = []
    for name in in_folders("sot_paddle", "sot_torch_ref"):
        if "/heads/" not in name:
            continue
        for node in nodes(name):
            if isinstance(node, ast.FunctionDef) and node.name in ("forward", "represent"):
                wrong += [
                    f"{name}:{inner.lineno}"
                    for inner in ast.walk(node)
                    if isinstance(inner, ast.Compare | ast.Match) and _mentions_text(inner)
                ]
    assert wrong == []


def _mentions_text(node: ast.AST) -> bool:
    parts = ast.walk(node)
    return any(isinstance(part, ast.Constant) and isinstance(part.value, str) for part in parts)


def public_definitions(name: str) -> Iterator[tuple[str, ast.AST]]:
    """Public functions and classes of a module and public methods of public classes."""
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    for node in tree(name).body:
        if isinstance(node, kinds) and not node.name.startswith("_"):
            yield node.name, node
            for inner in node.body if isinstance(node, ast.ClassDef) else ():
                if isinstance(inner, kinds) and not inner.name.startswith("_"):
                    yield f"{node.name}.{inner.name}", inner


def test_everything_public_has_a_docstring() -> None:
    missing = []
    for name in (name for name in FILES if name.startswith((*PACKAGES, "tools/benchmarks/"))):
        if ast.get_docstring(tree(name)) is None:
            missing.append(name)
        missing += [
            f"{name}: {title}"
            for title, node in public_definitions(name)
            if ast.get_docstring(node) is None
        ]
    assert missing == []


def test_no_broad_except() -> None:
    wrong = []
    maybe_broad = re.compile(r"except\s*:|\b(Base)?Exception\b")  # few files: only these are parsed
    for name in FILES:
        if not maybe_broad.search(FILES[name].read_text(encoding="utf-8")):
            continue
        for node in nodes(name):
            if not isinstance(node, ast.ExceptHandler):
                continue
            caught = node.type.elts if isinstance(node.type, ast.Tuple) else [node.type]
            names = {getattr(kind, "id", None) for kind in caught}
            if node.type is None or names & {"Exception", "BaseException"}:
                wrong.append(name)
    assert wrong == [BROAD]


def test_the_suite_executes_nothing_that_it_reads() -> None:
    """No pickle, no eval; torch's files are read in one place, which asks for weights only."""
    loads = {f"{package}.load" for package in ("np", "numpy", "torch", "paddle", "pickle")}
    refused = {*loads, "pickle.loads", "eval", "exec"}
    found: dict[str, set[str]] = {}
    for name in (*in_folders("align"), *CONVERSION):
        calls = (ast.unparse(n.func) for n in nodes(name) if isinstance(n, ast.Call))
        modules = {module for module in imported(name) if "pickle" in module}
        words = {"allow_pickle"} if "allow_pickle" in FILES[name].read_text("utf-8") else set()
        found[name] = (set(calls) & refused) | modules | words
    assert {name: what for name, what in found.items() if what} == {
        READS_TORCH: {"torch.load"},
    }
    text = FILES[READS_TORCH].read_text("utf-8")
    assert text.count("torch.load(") == len(
        re.findall(r"torch\.load\([^)]*weights_only=True", text)
    )


def test_paths_of_this_machine_and_open_ends_are_not_in_the_code() -> None:
    words = ["/wo" + "rk/", "TO" + "DO", "FIX" + "ME"]
    wrong = [
        f"{name}: {word}"
        for name, path in FILES.items()
        for word in words
        if word in path.read_text(encoding="utf-8")
    ]
    assert wrong == []


def test_both_sides_have_the_same_models_and_options_of_the_same_names_and_defaults() -> None:
    models = set(sot_paddle.list_models())
    assert models == set(sot_torch_ref.list_models())
    assert len(models) >= 4
    torch_head = defaults_of(sot_torch_ref.heads.factory.HeadConfig)
    paddle_head = defaults_of(HeadConfig)
    for head in (torch_head, paddle_head):  # each side's factories always name the pooling
        head.pop("pooling", None)
    assert paddle_head == torch_head
    assert defaults_of(EncoderConfig) == defaults_of(sot_torch_ref.backbones.text.EncoderConfig)


def defaults_of(record: type) -> dict[str, object]:
    """Return the default of every field of a dataclass by its name."""
    return {field.name: field.default for field in dataclasses.fields(record)}


def covered(option: str) -> set:
    return {row.options.get(option) for row in ROWS}


def test_every_model_is_compared() -> None:
    assert set(sot_paddle.list_models()) - {row.model for row in ROWS} == set()


def test_every_pooling_fusion_and_normalization_is_compared() -> None:
    """``pooler`` is the default of the plain models: their rows do not name it."""
    poolings = covered("pooling") | {"pooler" for row in ROWS if row.model == "bert_base"}
    rows = "CONTRIBUTING.md, Add a head, step 4: no row of align/port/head_rows.py has these"
    assert {*POOLINGS, LAYERS} - poolings == set(), rows
    assert set(FUSIONS) - covered("fusion") == set(), rows
    compared = {(row.options.get("pooling"), row.options.get("normalization")) for row in ROWS}
    for pooling, names in NORMALIZATIONS.items():
        missing = [name for name in names[1:] if (pooling, name) not in compared]
        assert missing == [], pooling
        assert (pooling, None) in compared, f"{pooling} with its default normalization"


def test_every_pooling_and_fusion_is_in_the_table_of_the_docs() -> None:
    page = (ROOT / "docs" / "models.md").read_text(encoding="utf-8")
    missing = [name for name in (*POOLINGS, LAYERS, *FUSIONS) if f"`{name}`" not in page]
    assert missing == [], "CONTRIBUTING.md, Add a head, step 4: docs/models.md does not have these"


def test_every_row_has_a_name_of_its_own() -> None:
    assert len({row.name for row in ROWS}) == len(ROWS)
