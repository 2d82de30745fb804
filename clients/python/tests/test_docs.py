"""Every example in the documentation runs: the docstrings, and the README's, against a real node."""

import doctest
import importlib
import pkgutil
import re
from pathlib import Path as File

import pytest

import distkv_client

README = File(__file__).parents[1] / "README.md"
MODULES = sorted(module.name for module in pkgutil.iter_modules(distkv_client.__path__))


@pytest.mark.parametrize("name", ["", *MODULES])
def test_docstrings(name, shared):
    module = importlib.import_module(f"distkv_client.{name}" if name else "distkv_client")
    result = doctest.testmod(module, extraglobs={"SEED": shared.seeds[0]})
    assert result.failed == 0


def blocks():
    return re.findall(r"^```python\n(.*?)^```", README.read_text(), re.M | re.S)


def test_the_readmes_programs_run(shared, capsys):
    # Once more, since none may leave behind what changes another one's output.
    for number, program in [*enumerate(blocks())] * 2:
        program = program.replace('"127.0.0.1:27586"', repr(shared.seeds[0]))
        exec(compile(program, f"README.md, program {number + 1}", "exec"), {"__name__": "__main__"})
        printed = capsys.readouterr().out
        for told in re.findall(r"print\(.*\)  # (.*)$", program, re.M):
            assert told in printed


def test_every_file_says_what_it_is_for_and_is_one_thing():
    for file in [*(File(distkv_client.__file__).parent).glob("*.py"), *File(__file__).parent.glob("*.py")]:
        text = file.read_text()
        assert text.startswith('"""'), file
        assert len(text.splitlines()) <= 500, file


def test_every_public_name_is_documented():
    for name in distkv_client.__all__:
        thing = getattr(distkv_client, name)
        if isinstance(thing, type) or callable(getattr(thing, "__wrapped__", None)):
            assert thing.__doc__, name


BEHAVIOUR = File(__file__).parents[3] / "docs/client-behaviour.md"


@pytest.mark.skipif(not BEHAVIOUR.exists(), reason="outside of the repository")
def test_each_rule_names_a_proof_that_exists():
    text = re.sub(r"\n {3,4}", " ", BEHAVIOUR.read_text())
    rules = re.findall(r"^(\d+)\. (.*)$", text, re.M)
    assert [int(number) for number, _ in rules] == list(range(1, len(rules) + 1))
    for number, rule in rules:
        proofs = re.findall(r"`(test_\w+\.py)`|`(test_\w+)`", rule.partition("Proof:")[2])
        assert proofs, f"rule {number} has no proof"
        file = ""
        for name, test in proofs:
            if name:
                file = (File(__file__).parent / name).read_text()
            else:
                assert f"def {test}(" in file, (number, test)


@pytest.mark.skipif(not BEHAVIOUR.exists(), reason="outside of the repository")
def test_each_bound_is_in_the_table_with_its_value():
    table = dict(re.findall(r"^\| `(\w+\.\w+_MAX)` \| ([\d,]+) \|", BEHAVIOUR.read_text(), re.M))
    found = {}
    for name in MODULES:
        module = importlib.import_module(f"distkv_client.{name}")
        source = File(module.__file__).read_text()
        for bound in re.findall(r"^(\w+_MAX) = ", source, re.M):
            found[f"{name}.{bound}"] = f"{getattr(module, bound):,}"
    assert table == found
