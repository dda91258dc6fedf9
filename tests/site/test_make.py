"""What a newcomer's first commands and an operator's files promise; the long ones are not run."""

from __future__ import annotations

import re
import shutil
import stat
import subprocess
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]


def make_prints(target: str) -> str:
    done = subprocess.run(["make", "-n", target], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize(
    "target", ["install", "run", "test", "e2e", "lint", "bench", "soak", "clean", "help"]
)
def test_every_target_can_be_planned(target: str) -> None:
    assert make_prints(target)


def test_the_build_server_runs_the_two_commands_that_the_readme_names() -> None:
    script = (ROOT / ".ci/run").read_text()
    assert re.findall(r"^make \w+$", script, re.MULTILINE) == ["make lint", "make test"]
    assert stat.S_IMODE((ROOT / ".ci/run").stat().st_mode) & stat.S_IXUSR
    readme = (ROOT / "README.md").read_text()
    assert "\nmake run " in readme
    assert "\nmake test " in readme


@pytest.mark.parametrize("script", sorted(p.name for p in (ROOT / "scripts").glob("*.sh")))
def test_scripts_are_plain_shell(script: str) -> None:
    subprocess.run(["sh", "-n", str(ROOT / "scripts" / script)], check=True)


def test_set_up_without_a_fit_python_says_what_is_needed(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "scripts", tmp_path / "scripts")
    shutil.copy(ROOT / "requirements.lock", tmp_path)
    programs = tmp_path / "bin"
    programs.mkdir()
    for name in ("sh", "dirname", "cksum", "cat"):
        found = shutil.which(name)
        assert found
        (programs / name).symlink_to(found)
    old = programs / "python3"
    old.write_text("#!/bin/sh\nexit 1\n")
    old.chmod(0o700)
    done = subprocess.run(
        ["sh", "scripts/setup-python.sh"],
        cwd=tmp_path,
        env={"PATH": str(programs)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 1
    assert "Python 3.11 or newer is needed" in done.stderr
    assert not (tmp_path / ".venv").exists()


def test_set_up_is_done_once_for_each_state_of_the_lock_file(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "scripts", tmp_path / "scripts")
    (tmp_path / "requirements.lock").write_text("")
    (tmp_path / ".venv/bin").mkdir(parents=True)
    python = tmp_path / ".venv/bin/python"
    python.write_text('#!/bin/sh\necho "$@" >>calls\n')
    python.chmod(0o700)

    def calls() -> int:
        subprocess.run(["sh", "scripts/setup-python.sh"], cwd=tmp_path, check=True)
        return len((tmp_path / "calls").read_text().splitlines())

    assert [calls(), calls()] == [1, 1]
    (tmp_path / "requirements.lock").write_text("# changed\n")
    assert calls() == 2
    words = tmp_path / "locale/de/LC_MESSAGES/django.po"
    words.parent.mkdir(parents=True)
    words.touch()
    assert calls() == 3, "words are compiled while whoever installs can still write"


def test_the_lock_file_has_a_hash_for_everything_and_names_no_registry() -> None:
    lock = (ROOT / "requirements.lock").read_text()
    packages = re.findall(r"^[a-z0-9][^\n]*(?:\n[ ]+[^\n]*)*", lock, re.MULTILINE)
    assert len(packages) > 50
    assert [p.splitlines()[0] for p in packages if "--hash=sha256:" not in p] == []
    assert "://" not in lock


def test_the_compose_file_names_every_part_and_existing_modules() -> None:
    compose = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
    services = compose["services"]
    assert set(services) == {
        "valkey", "database", "prepare", "gateway", "console", "worker", "beat",
    }  # fmt: skip
    for name in ("gateway", "console"):
        module, _, attribute = re.search(r"--app (\S+)", services[name]["command"])[1].partition(
            ":"
        )
        source = (ROOT / module.replace(".", "/")).with_suffix(".py").read_text()
        assert re.search(rf"^{attribute} = ", source, re.MULTILINE)
    assert services["console"]["ports"][0].startswith("127.0.0.1:")
