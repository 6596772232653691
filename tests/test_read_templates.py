"""Jinja2 files: the helpers, where includes may reach, and that no template can run or grow without bound."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from read_cases import ARCHITECTURE, PROBLEM
from stitchloop.errors import InputError
from stitchloop.read import Source, load_spec
from stitchloop.spec import Spec


def tree(folder: Path, **files: str) -> None:
    """Write files; ``__`` in a name stands for a folder, ``_`` before the last part for a dot."""
    for name, text in files.items():
        path = folder / name.replace("__", "/").replace("_yaml", ".yaml").replace("_jinja2", ".yaml.jinja2")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def load(path: Path, **variables: str) -> Spec:
    return load_spec([path], variables)


def refused(path: Path, *parts: str, **variables: str) -> InputError:
    started = time.process_time()
    with pytest.raises(InputError) as caught:
        load(path, **variables)
    assert time.process_time() - started < 3
    for part in parts:
        assert part in str(caught.value)
    return caught.value


def test_a_top_file_includes_parts_by_key_path_and_by_variables(tmp_path: Path) -> None:
    tree(
        tmp_path,
        designs__small__arch_yaml=ARCHITECTURE,
        shapes__gemm_yaml=PROBLEM,
        parts__a_yaml="compound_components: {classes: [{name: a}, {name: b}]}",
        parts__b_yaml="compound_components: {classes: [{name: c}]}",
        top_jinja2="""
{{add_to_path(cwd())}}{# a comment #}
{{add_to_path('shapes')}}
{% set mapping = cwd() ~ '/designs/' ~ design ~ '/mapping.yaml' %}
{% if path_exists(mapping) %}
mapping: {{include(mapping, 'mapping')}}
{% endif %}
{% set problem = problem | default('gemm.yaml') %}
problem: {{include(problem, 'problem')}}
architecture: {{include('designs/' ~ design ~ '/arch.yaml', 'architecture')}}
components:
  version: 0.4
  classes: {{include_all('parts/*.yaml', 'compound_components.classes')}}
mapper:
  optimization_metrics: [{% for metric in ['energy', 'delay'] %}{{metric}}{{ ', ' if not loop.last }}{% endfor %}]
""",
    )
    spec = load(tmp_path / "top.yaml.jinja2", design="small")
    assert spec.architecture is not None
    assert spec.architecture.names[-1] == "DRAM"
    assert spec.workload is not None
    assert spec.options.metrics == ("energy", "delay")
    assert any(name.endswith("gemm.yaml") for name in spec.files)
    refused(tmp_path / "top.yaml.jinja2", "'design' is undefined", "--set NAME=VALUE")
    tree(tmp_path, designs__small__mapping_yaml="mapping: [{target: GLB, type: temporal, factors: [M=2]}]")
    assert load(tmp_path / "top.yaml.jinja2", design="small").mapping is not None


def test_macros_namespaces_and_filters_of_published_designs(tmp_path: Path) -> None:
    tree(
        tmp_path,
        top_yaml="""
{% set counter = namespace(v=0) %}
{%- macro buffer(depth) %}
  - !Component {name: L{{counter.v}}, class: SRAM, attributes: {depth: {{(16, depth)|max}}, width: 16, datawidth: 16}}
{%- set counter.v = counter.v + 1 %}
{%- endmacro %}
{% set sizes = {'a': 8, 'b': 32} %}
architecture:
  version: 0.4
  nodes:
  - !Component {name: DRAM, class: DRAM, attributes: {width: 64}}
{%- for name, depth in sizes.items() %}{{ buffer(depth) }}{% endfor %}
  - !Component {name: MAC, class: intmac}
mapper: {optimization_metrics: [{{ ['energy', 'delay']|join(', ') }}]}
""",
    )
    spec = load(tmp_path / "top.yaml")
    assert spec.architecture is not None
    assert [(level.name, level.depth) for level in spec.architecture.levels] == [("L1", 32), ("L0", 16), ("DRAM", None)]
    assert spec.options.metrics == ("energy", "delay")


def test_text_of_the_folder_above_can_be_included_and_merged(tmp_path: Path) -> None:
    base = PROBLEM.strip().replace("problem:", "base_ignore: &base", 1)
    tree(
        tmp_path,
        shapes__base_yaml=base,
        shapes__net__one_yaml="{{include_text('../base.yaml')}}\nproblem:\n  <<<: *base\n  instance: {M: 2}\n",
    )
    workload = load(tmp_path / "shapes/net/one.yaml").workload
    assert workload is not None
    assert workload.einsum.sizes == {"M": 2, "N": 4, "K": 6}


def test_faults_in_included_files_name_that_file(tmp_path: Path) -> None:
    tree(tmp_path, part_yaml=PROBLEM.replace("M: 8", "M: 0"), top_yaml="problem: {{include('part.yaml', 'problem')}}\n")
    error = refused(tmp_path / "top.yaml", "at least 1")
    assert error.place.file is not None
    assert error.place.file.endswith("part.yaml")
    assert error.place.line == 11
    assert error.place.path == ("problem", "instance", "M")


def test_circles_of_includes_are_named(tmp_path: Path) -> None:
    tree(
        tmp_path,
        a_yaml="problem: {{include('b.yaml', 'problem')}}",
        b_yaml="problem: {{include('a.yaml', 'problem')}}",
        c_yaml="{{include_text('c.yaml')}}",
    )
    refused(tmp_path / "a.yaml", "circle", "a.yaml -> b.yaml -> a.yaml")
    refused(tmp_path / "c.yaml", "circle", "c.yaml -> c.yaml")


@pytest.fixture
def fenced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder two levels below a secret, with the working folder elsewhere."""
    tree(tmp_path, secret_yaml="problem: {shape: secret}", home__project__hidden_yaml=PROBLEM)
    (tmp_path / "home/project/.keys").mkdir()
    (tmp_path / "home/project/.keys/id.yaml").write_text(PROBLEM)
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    monkeypatch.delenv("STITCHLOOP_INCLUDE_PATH", raising=False)
    return tmp_path / "home/project"


@pytest.mark.parametrize(
    "call",
    [
        "include('/etc/hostname')",
        "include('../../secret.yaml', 'problem')",
        "include_text('../../secret.yaml')",
        "include_all('../../*.yaml', 'problem')",
        "include_all('/etc/*')",
        "find_path('/etc/passwd')",
        "include('.keys/id.yaml', 'problem')",
        "include('link.yaml', 'problem')",
        "include('~/x.yaml')",
        "include('missing.yaml')",
        "include('..')",
        "include('**/*.yaml')",
        "include('a\\x00b')",
        "include(3)",
        "add_to_path('/etc')",
        "add_to_path('../..')",
    ],
)
def test_includes_do_not_reach_beyond_their_folders(fenced: Path, call: str) -> None:
    (fenced / "link.yaml").symlink_to(fenced.parent.parent / "secret.yaml")
    (fenced / "top.yaml").write_text("problem: {{" + call + "}}\n")
    error = refused(fenced / "top.yaml")
    assert "shape" not in str(error), "nothing of the file is told"
    (fenced / "top.yaml").write_text("{{path_exists('/etc/passwd')}}{{path_exists('../../secret.yaml')}}: 1\n")
    assert "FalseFalse" in str(refused(fenced / "top.yaml"))


def test_the_folders_may_be_widened(fenced: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (fenced / "top.yaml").write_text("problem: {{include('../../good.yaml', 'problem')}}\n")
    (fenced.parent.parent / "good.yaml").write_text(PROBLEM)
    refused(fenced / "top.yaml", "outside the folders")
    monkeypatch.setenv("STITCHLOOP_INCLUDE_PATH", str(fenced.parent.parent))
    assert load(fenced / "top.yaml").workload is not None
    monkeypatch.delenv("STITCHLOOP_INCLUDE_PATH")
    monkeypatch.chdir(fenced.parent.parent)
    assert load(fenced / "top.yaml").workload is not None, "the working folder holds the named file"


def test_a_file_named_by_a_variable_may_be_included(fenced: Path) -> None:
    other = fenced.parent.parent / "elsewhere" / "shapes" / "gemm.yaml"
    other.parent.mkdir()
    other.write_text(PROBLEM)
    (fenced / "top.yaml").write_text("problem: {{include(problem, 'problem')}}\n")
    assert load(fenced / "top.yaml", problem=str(other)).workload is not None


@pytest.mark.parametrize(
    "text",
    [
        "{% for i in range(40000) %}{% for j in range(40000) %}{% endfor %}{% endfor %}",
        "{% for i in range(10**9) %}{% endfor %}",
        "{{ 'a' * 10**9 }}",
        "{{ [1] * 10**9 }}",
        "{{ 9**9**9 }}",
        "{% set a = 'aaaaaaaaaa' %}" + "{% set a = a ~ a %}" * 60 + "{{a}}",
        "{% set a = [1] %}" + "{% set a = a + a %}" * 60 + "{{a}}",
        "{% set ns = namespace(x='a') %}{% for i in range(99) %}{% set ns.x = ns.x ~ ns.x %}{% endfor %}{{ ns.x }}",
        "{% set ns = namespace(x='a') %}{{ ns.__class__.__mro__ }}",
        "{% set ns = namespace(x='a') %}{{ ns._Namespace__attrs }}",
        "{% macro f() %}{{ f() }}{{ f() }}{% endmacro %}{{ f() }}",
        "{% macro f(n) %}{% if n %}{{ f(n - 1) }}{{ f(n - 1) }}{% endif %}x{% endmacro %}{{ f(40) }}",
        "{% macro f(x) %}" + "{{ x }}" * 50 + "{% endmacro %}{% set a = 'aaaa' %}" + "{% set a = f(a) %}" * 50,
        "{% macro f() %}{% for i in range(40000) %}" + "x" * 100_000 + "{% endfor %}{% endmacro %}{% set a = f() %}",
        "{% set a = 'aaaa' %}" + "{% set a %}{{ a }}{{ a }}{% endset %}" * 60,
        "{% for i in range(40000) if false %}{% endfor %}" * 50,
        "{{ _charge(-1000000000) }}{{ ('a' * 2) }}",
        "{{ ['a' * 2]|join }}",
        "{{ range(40000)|join('" + "x" * 1000 + "') }}",
        "{% for i in [1] recursive %}{{ loop([1]) }}{% endfor %}",
        "{{ ''.__class__.__mro__ }}",
        "{{ cycler.__init__.__globals__ }}",
        "{{ self._TemplateReference__context }}",
        "{{ include.__globals__ }}",
        "{{ include.__self__.loader }}",
        "{{ _counted.__func__ }}",
        "{{ '%99999999d' % 1 }}",
        "{{ '{:99999999d}'.format(1) }}",
        "{{ 'a'|center(999999999) }}",
        "{{ 'a'.ljust(999999999) }}",
        "{{ 'a'.replace('a', 'b') }}",
        "{% include 'x' %}",
        "{% import 'x' as y %}",
        "{% extends 'x' %}",
        "{% block a %}{% endblock %}",
        "{{ 1 }}" * 400_000,
        "{{ " + "(" * 5000 + "1" + ")" * 5000 + " }}",
        "{% if 1 %}" * 3000,
        "{{ x",
        "{% endif %}",
        "{{ 1/0 }}",
        "{{ {}['a'] }}",
        "{{ 'a'.nothing }}",
        "{{ include() }}",
        "{{ cwd() }}",
    ],
)
def test_hostile_templates_are_refused_quickly(text: str) -> None:
    started = time.process_time()
    with pytest.raises(InputError):
        load_spec([Source("hostile.yaml", text)])
    assert time.process_time() - started < 3


@pytest.mark.parametrize(
    ("content", "part"),
    [
        (b"\xff\xfe\x00", "no UTF-8"),
        (bytes(range(256)), "no UTF-8"),
        (b"", "empty file"),
        (b"\x00\x01", "no YAML"),
        (b"problem: [", "no YAML"),
    ],
)
def test_files_that_are_no_text_are_refused(tmp_path: Path, content: bytes, part: str) -> None:
    (tmp_path / "x.yaml").write_bytes(content)
    refused(tmp_path / "x.yaml", part, "x.yaml")


def test_files_that_cannot_be_read_are_named(tmp_path: Path) -> None:
    refused(tmp_path / "missing.yaml", "no such file", "missing.yaml")
    refused(tmp_path, "a folder where a file is needed")
    refused(Path("a\0b"), "cannot be read")
    locked = tmp_path / "locked.yaml"
    locked.write_text(PROBLEM)
    locked.chmod(0)
    if not os.access(locked, os.R_OK):
        refused(locked, "permissions")


def test_a_byte_order_mark_is_no_fault(tmp_path: Path) -> None:
    (tmp_path / "x.yaml").write_bytes(b"\xef\xbb\xbf" + PROBLEM.encode())
    assert load(tmp_path / "x.yaml").workload is not None


def test_a_variable_that_no_template_asks_for_is_told() -> None:
    """``--set tokns=2048`` mapped the default size, and nobody said so."""
    problem = Source("problem.yaml", PROBLEM.replace("M: 8", "M: {{ rows | default(8) }}"))
    assert problem.text != PROBLEM
    assert load_spec([problem], {"rows": "8"}).warnings == ()
    assert load_spec([problem], {"row": "8"}).warnings == ("variable 'row' changes nothing; did you mean 'rows'?",)
    assert "the templates ask for: nothing" in load_spec([Source("plain.yaml", PROBLEM)], {"row": "8"}).warnings[0]
