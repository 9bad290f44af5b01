"""What is shipped beside the code fits it: pins, units, image."""

from __future__ import annotations

import plistlib
import re
import tomllib
from configparser import ConfigParser
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from localllm.cli.diagnostics import EXIT_CODES
from localllm.cli.main import VERBS
from localllm.core import errors
from localllm.core.config import ServerSettings
from localllm.settings.schema import all_settings

ROOT = Path(__file__).resolve().parents[2]
PACKAGING = ROOT / "packaging"


def requirements() -> list[Requirement]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    named = list(project["project"]["dependencies"])
    for extra in project["project"]["optional-dependencies"].values():
        named += extra
    for group in project["dependency-groups"].values():
        named += [entry for entry in group if isinstance(entry, str)]
    return [Requirement(text) for text in named]


def pins() -> dict[str, str]:
    lines = (ROOT / "constraints.txt").read_text("utf-8").splitlines()
    found = [re.fullmatch(r"([A-Za-z0-9._-]+)==(\S+)", line) for line in lines if not line.startswith("#")]
    assert all(found), "constraints.txt has versions and nothing else: no addresses, no paths"
    return {canonicalize_name(match[1]): match[2] for match in found if match}


@pytest.mark.parametrize("requirement", requirements(), ids=str)
def test_every_dependency_is_pinned_inside_its_range(requirement: Requirement) -> None:
    pinned = pins()[canonicalize_name(requirement.name)]
    assert requirement.specifier.contains(pinned)


def test_the_systemd_unit_runs_serve_and_gives_up_where_trying_again_is_useless() -> None:
    unit = ConfigParser(strict=False, interpolation=None)
    unit.optionxform = str  # type: ignore[assignment,method-assign]
    unit.read(PACKAGING / "systemd" / "localllm.service")
    service = unit["Service"]
    assert service["ExecStart"].split()[-1] == "serve"
    given_up = {int(code) for code in service["RestartPreventExitStatus"].split()}
    assert given_up == {EXIT_CODES[errors.ConfigError], EXIT_CODES[errors.AlreadyRunning]}
    assert int(service["TimeoutStopSec"]) > ServerSettings().drain_seconds


def test_the_launch_agent_is_a_property_list_that_runs_serve() -> None:
    (path,) = (PACKAGING / "launchd").glob("*.plist")
    agent = plistlib.loads(path.read_bytes())
    assert agent["Label"] == path.name.removesuffix(".plist")
    assert agent["ProgramArguments"][-1].endswith(" serve")
    assert agent["ExitTimeOut"] > ServerSettings().drain_seconds


def test_the_image_serves_on_the_default_port_and_copies_what_exists() -> None:
    text = (PACKAGING / "docker" / "Dockerfile").read_text("utf-8")
    port = ServerSettings().port
    assert f"EXPOSE {port}" in text
    assert f"127.0.0.1:{port}/health" in text
    for variable in re.findall(r"LOCALLLM_[A-Z_]+", text):
        known = {setting.variable for setting in all_settings().values()} | {"LOCALLLM_HOME"}
        assert variable in known, variable
    for sources in re.findall(r"^COPY (?!--from)(.*) \S+$", text, flags=re.MULTILINE):
        for source in sources.split():
            assert (ROOT / source).exists(), source
    command = re.search(r'^CMD \["(.*)"\]$', text, flags=re.MULTILINE)
    assert command is not None
    assert any(command[1] in group for group in VERBS.values())


def test_the_wheel_ships_the_man_page() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    shared = project["tool"]["hatch"]["build"]["targets"]["wheel"]["shared-data"]
    for source, target in shared.items():
        assert (ROOT / source).is_file()
        assert target.startswith("share/man/man1/")
