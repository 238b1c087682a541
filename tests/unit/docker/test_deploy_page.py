"""Every command of docs/deploy.md names files, Secrets, accounts and Deployments that the rendered objects have."""

from __future__ import annotations

import re
import shutil
import subprocess

import pytest
import yaml

from artifacts.settings import ROOT

PAGE = (ROOT / "docs" / "deploy.md").read_text()
COMMANDS = re.findall(r"^ {7}(kubectl .*)$", PAGE, re.MULTILINE)
OVERLAY = "docker/kubernetes/overlays/one-tenant"

pytestmark = pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl renders the files")


@pytest.fixture(scope="module")
def names() -> dict[str, set[str]]:
    """The names of the rendered objects, by kind; Secrets are those that the objects refer to."""
    text = subprocess.run(
        ["kubectl", "kustomize", str(ROOT / OVERLAY)], capture_output=True, text=True, check=True
    ).stdout
    found: dict[str, set[str]] = {
        "Secret": set(re.findall(r"(?:secretName|secretKeyRef|secretRef):\s*(?:key: .*\s*)?(?:name: )?(\S+)", text))
    }
    for one in yaml.safe_load_all(text):
        found.setdefault(one["kind"], set()).add(one["metadata"]["name"])
    return found


def test_the_page_has_its_commands() -> None:
    assert len(COMMANDS) == 8
    assert PAGE.count("kubectl ") == len(COMMANDS)


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_names_what_is_there(command: str, names: dict[str, set[str]]) -> None:
    words = command.split()
    (tenant,) = names["Namespace"]
    for flag in ("-n", "namespace"):
        if flag in words:
            assert words[words.index(flag) + 1] == tenant
    for folder in re.findall(r"docker/\S+", command):
        assert (ROOT / folder / "kustomization.yaml").is_file()
    for secret in re.findall(r"secret generic (\S+)", command):
        assert secret in names["Secret"]
    for deployment in re.findall(r"deployment/(\S+)", command):
        assert deployment in names["Deployment"]
    for space, account in re.findall(r"system:serviceaccount:([^:]+):(\S+)", command):
        assert (space, account in names["ServiceAccount"]) == (tenant, True)
