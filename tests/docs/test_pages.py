"""The documents say what is true: generated pages are fresh, commands exist, numbers of ADRs are unique."""

import dataclasses
import re

from artifacts import content, faults
from artifacts.settings import ROOT, Settings
from artifacts.step import failure_for
from operators.pages import pages
from operators.pipelines import PIPELINES, Pipeline


def test_generated_pages_are_fresh():
    for path, text in pages().items():
        assert path.read_text() == text, f"{path.name} is stale; run `make docs`"


def test_commands_in_documents_exist_in_the_makefile():
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    for page in ROOT.glob("*.md"):
        named = set(re.findall(r"`make ([a-z]+)`|^    make ([a-z]+)$", page.read_text(), re.MULTILINE))
        assert {one or other for one, other in named} <= targets, page.name


def test_python_modules_in_documents_exist():
    for page in [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]:
        for module in re.findall(r"python -m ([a-z_]+(?:\.[a-z_]+)*)(?!\.<)\b", page.read_text()):
            path = ROOT / module.replace(".", "/")
            assert path.with_suffix(".py").is_file() or (path / "__main__.py").is_file(), f"{page.name}: {module}"


def test_links_between_documents_lead_somewhere():
    for page in [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]:
        for target in re.findall(r"\]\(([^)#:]+)\)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name}: {target}"


def test_adr_numbers_are_unique_and_in_order():
    numbers = [int(path.name[:4]) for path in sorted((ROOT / "docs" / "adr").glob("*.md"))]
    assert numbers == list(range(1, len(numbers) + 1))
    for path in (ROOT / "docs" / "adr").glob("*.md"):
        text = path.read_text()
        assert text.startswith(f"# {int(path.name[:4])}. ")
        assert all(part in text for part in ("Status:", "## Context", "## Decision", "## Consequences"))


def test_readme_names_exactly_the_two_commands():
    readme = (ROOT / "README.md").read_text()
    assert re.findall(r"^    make [a-z]+$", readme, re.MULTILINE) == ["    make demo", "    make test"]


def test_each_benchmark_is_listed_with_its_last_run():
    page = (ROOT / "docs" / "benchmarks.md").read_text()
    for path in (ROOT / "benchmarks").glob("*.py"):
        if path.stem not in ("__init__", "report"):
            assert f"`{path.stem}`" in page, f"docs/benchmarks.md does not list {path.stem}"


def test_the_stores_page_declares_stores_that_parse_and_names_every_error():
    page = (ROOT / "docs" / "stores.md").read_text()
    examples = re.findall(r"```json\n(.*?)```", page, re.DOTALL)
    stores = [store for example in examples for store in Settings(stores=example).stores]
    assert [store.type for store in stores] == ["s3", "nfs", "file", "http"]
    named = dict(re.findall(r"^\| `([A-Za-z]+)` \| .* \| (\d+) \|", page, re.MULTILINE))
    errors = {
        name: kind
        for name, kind in {**vars(faults), **vars(content)}.items()
        if isinstance(kind, type) and issubclass(kind, Exception)
    }
    assert set(named) == set(errors)
    for name, kind in errors.items():
        assert int(named[name]) == failure_for(kind("why"))[1], name


def test_the_page_on_adding_a_model_names_what_a_model_is_made_of():
    page = (ROOT / "docs" / "adding_a_model.md").read_text()
    rows = {
        name
        for line in page.splitlines()
        if line.startswith("| `")
        for name in re.findall(r"`(\w+)", line.split("|")[1])
    }
    recipe = set.intersection(*({name for name in vars(row.recipe) if name.isupper()} for row in PIPELINES))
    assert recipe | {"training_key", "train_spec"} <= rows
    for row in PIPELINES:
        model = (ROOT / "training" / "models" / f"{row.model}.py").read_text()
        assert {"forward", "logits", "start_at"} <= rows
        assert all(f"def {name}(" in model for name in ("build", "forward", "logits", "start_at"))
        assert type(row.question).__name__ in rows
        assert re.search(rf"\| `{type(row.question).__name__}` \|.*\| {row.question.task} \|", page)
    (example,) = re.findall(r"^    Pipeline\(\n(?:     .*\n)+    \)$", page, re.MULTILINE)
    named = set(re.findall(r"^        (\w+)=", example, re.MULTILINE))
    fields = {field.name: field for field in dataclasses.fields(Pipeline)}
    needed = {name for name, field in fields.items() if dataclasses.MISSING is field.default is field.default_factory}
    assert needed <= named <= set(fields)
    for path in re.findall(r"`((?:feature_repo|operators|serving|training)/\w+(?:/\w+)*(?:\.py)?)`", page):
        assert (ROOT / path).exists(), path
