"""The files of `examples/deployment`: each is what its schema says, and names what is there.

Nothing of it is run by a container engine or a cluster here. What can be run without one is: the
build's own commands, the scripts that prepare the database, and the project of the Compose file.
"""

from __future__ import annotations

import configparser
import json
import os
import re
import shutil
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import check_jsonschema
import jsonschema
import kubernetes_validate
import psycopg
import pytest
import yaml
from dockerfile_parse import DockerfileParser
from pyspark.sql import SparkSession

from tests.cli.conftest import call
from viewkeeper.cli.commands.readers.serve_command import TOKEN_VARIABLE
from viewkeeper.engine.settings.project_file import read_settings
from viewkeeper.testing.private_servers import PrivatePostgres, postgres_programs
from viewkeeper.view.sql.view_statement import parse_view

ROOT = Path(__file__).parents[2]
DEPLOYMENT = ROOT / "examples" / "deployment"
COMPOSE = DEPLOYMENT / "compose"
UNITS = sorted(DEPLOYMENT.glob("*.service"))
IMAGE = re.compile(r"^[a-z0-9]+:[0-9][a-z0-9.-]*$")
"""A name and a version, without a host."""


# -- the image -------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def container() -> list[dict[str, str]]:
    text = (DEPLOYMENT / "Containerfile").read_bytes()
    parser = DockerfileParser(fileobj=MemoryFile(text))
    return [
        {"word": each["instruction"], "value": each["value"]}
        for each in parser.structure
        if each["instruction"] != "COMMENT"
    ]


class MemoryFile:
    """A file for the parser, which wants to read it again and again."""

    def __init__(self, text: bytes) -> None:
        self._lines = text.splitlines(keepends=True)

    def seek(self, _: int) -> None:
        return

    def readlines(self) -> list[bytes]:
        return self._lines

    def read(self) -> bytes:
        return b"".join(self._lines)


def values_of(container: list[dict[str, str]], word: str) -> list[str]:
    return [each["value"] for each in container if each["word"] == word]


def test_the_image_is_made_of_files_that_are_there(container: list[dict[str, str]]) -> None:
    stages = [value.split() for value in values_of(container, "FROM")]
    assert [stage[1:] for stage in stages] == [["AS", "build"], []]
    assert all(IMAGE.fullmatch(stage[0]) for stage in stages)
    copies = [value.split() for value in values_of(container, "COPY")]
    ours = [name for words in copies if words[0][0] != "-" for name in words[:-1]]
    assert {"src", "pyproject.toml"} < {*ours}
    assert [name for name in ours if not (ROOT / name).exists()] == []


def test_the_image_runs_a_command_that_there_is(container: list[dict[str, str]]) -> None:
    [entry], [words] = values_of(container, "ENTRYPOINT"), values_of(container, "CMD")[-1:]
    assert json.loads(entry)[-1] == "viewkeeper"
    shown = call(*json.loads(words), "--help")
    assert shown.exit_code == 0, shown.output
    assert values_of(container, "USER") == ["10001"]


def test_the_build_makes_constraints_that_a_wheel_fits(
    container: list[dict[str, str]], tmp_path: Path
) -> None:
    """Its first command, in a folder with what is copied: one line for each package, no hashes."""
    shutil.copy(ROOT / "requirements.lock", tmp_path)
    [command] = [value for value in values_of(container, "RUN") if "constraints.txt" in value][:1]
    subprocess.run(["sh", "-c", command], cwd=tmp_path, check=True, timeout=60)
    lines = (tmp_path / "constraints.txt").read_text().splitlines()
    assert len(lines) > 50
    assert [line for line in lines if not re.match(r"^[\w.-]+==[^\s\\]+( ; .+)?$", line)] == []
    assert any(line.startswith("pyspark==4.3") for line in lines)
    extras = re.findall(r'"\.\[([\w,]+)\]"', " ".join(values_of(container, "RUN")))
    with (ROOT / "pyproject.toml").open("rb") as file:
        known = tomllib.load(file)["project"]["optional-dependencies"]
    assert [{*each.split(",")} for each in extras] == [{*known}], "the image has all extras"


# -- Compose ---------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def compose() -> dict[str, Any]:
    return dict(yaml.safe_load((COMPOSE / "compose.yml").read_text()))


@pytest.fixture(scope="module")
def connect() -> dict[str, Any]:
    """The file that is given besides."""
    return dict(yaml.safe_load((COMPOSE / "connect.yml").read_text()))


def test_the_compose_files_are_some(compose: dict[str, Any], connect: dict[str, Any]) -> None:
    folder = Path(check_jsonschema.__file__).parent / "builtin_schemas" / "vendor"
    schema = json.loads((folder / "compose-spec.json").read_text())
    jsonschema.validate(compose, schema)
    jsonschema.validate(connect, schema)
    broken = {**compose, "services": {"database": {"imagee": "postgres:17"}}}
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(broken, schema)


def test_the_compose_file_names_what_is_there(compose: dict[str, Any]) -> None:
    for service in compose["services"].values():
        assert IMAGE.fullmatch(service["image"])
        for volume in service["volumes"]:
            place = volume.split(":")[0]
            known = (COMPOSE / place).is_dir() if place.startswith(".") else False
            assert known or place in compose["volumes"], volume
    build = compose["services"]["viewkeeper"]["build"]
    context = (COMPOSE / build["context"]).resolve()
    assert context == ROOT
    assert (context / build["dockerfile"]).is_file()


def test_the_compose_file_of_the_endpoint_fits_the_other(
    compose: dict[str, Any], connect: dict[str, Any]
) -> None:
    [service], others = connect["services"].values(), compose["services"]
    assert service["image"] == others["viewkeeper"]["image"]
    assert {*service["depends_on"]} <= {*others}
    assert {*service["secrets"]} == {*connect["secrets"]}
    options = check_served(service["command"])
    assert {Path(each).name for each in options.values()} == {*connect["secrets"]}
    volumes = {volume.split(":")[0] for volume in service["volumes"]}
    assert volumes - {"./project"} <= {*compose["volumes"], *connect["volumes"]}
    assert TOKEN_VARIABLE in service["environment"]
    [port] = [each.split(":")[1] for each in service["ports"]]
    assert f"0.0.0.0:{port}" in service["command"]
    assert port in service["healthcheck"]["test"][-1]


def check_served(words: list[str]) -> dict[str, str]:
    """Whether `viewkeeper serve` takes these words for an address of all machines; its options."""
    command, address, *options = words
    assert (command, address) == ("serve", "0.0.0.0:15002")
    assert call(*words, "--help").exit_code == 0
    given = dict(zip(options[::2], options[1::2], strict=True))
    assert {*given} >= {"--certificate", "--key"}, "tokens are sent by TLS only"
    return given


def test_the_project_of_the_compose_file_runs(
    spark: SparkSession,
    own_postgres: PrivatePostgres,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    compose: dict[str, Any],
) -> None:
    """The scripts of the database, then the project, with the variables that the file gives."""
    given = compose["services"]["viewkeeper"]["environment"]
    assert {"SHOP_HOST", "SHOP_PORT", "VIEWKEEPER_PASSWORD"} < {*given}
    with psycopg.connect(own_postgres.url_of(), autocommit=True) as connection:
        connection.execute("CREATE DATABASE shop")
    reached = {"PGHOST": "127.0.0.1", "PGPORT": str(own_postgres.port), "PGPASSWORD": "secret"}
    path = f"{postgres_programs()}{os.pathsep}{os.environ['PATH']}"
    password = "it's a password"
    environment = {**os.environ, **reached, "PATH": path, "VIEWKEEPER_PASSWORD": password}
    for script in sorted((COMPOSE / "database").iterdir()):
        words = ["sh", str(script)] if script.suffix == ".sh" else None
        words = words or ["psql", "-v", "ON_ERROR_STOP=1", "-U", "postgres", "-d", "shop"]
        words += [] if script.suffix == ".sh" else ["-f", str(script)]
        subprocess.run(words, env=environment, check=True, timeout=60, capture_output=True)
    folder = Path(shutil.copytree(COMPOSE / "project", tmp_path / "project"))
    file = folder / "viewkeeper.yml"
    file.write_text(file.read_text().replace("/warehouse", str(tmp_path / "warehouse")))
    monkeypatch.setenv("SHOP_HOST", "127.0.0.1")
    monkeypatch.setenv("SHOP_PORT", str(own_postgres.port))
    monkeypatch.setenv("VIEWKEEPER_PASSWORD", password)
    found = call("-p", str(folder), "doctor")
    assert found.exit_code == 0, found.output
    assert "nothing is wrong" in found.output
    assert call("-p", str(folder), "run", "--once", spark=spark).exit_code == 0
    rows = call("-p", str(folder), "query", "--format", "csv", "SELECT * FROM city_sales").output
    assert "London,3,42.50" in rows


# -- systemd ---------------------------------------------------------------------------------------


@pytest.fixture(params=UNITS, ids=lambda unit: str(unit.stem))
def unit_file(request: pytest.FixtureRequest) -> Path:
    return Path(request.param)


def read_unit(file: Path) -> configparser.ConfigParser:
    unit = configparser.ConfigParser(interpolation=None, delimiters=("=",), strict=False)
    unit.optionxform = str  # type: ignore[assignment,method-assign]  # names of systemd have capitals
    unit.read_string(file.read_text())
    return unit


def test_the_unit_is_one(unit_file: Path) -> None:
    unit = read_unit(unit_file)
    assert {*unit} == {"DEFAULT", "Unit", "Service", "Install"}
    program, *words = unit["Service"]["ExecStart"].split()
    assert Path(program).name == "viewkeeper"
    assert call(*words, "--help").exit_code == 0
    # Java makes code while it runs.
    assert "MemoryDenyWriteExecute" not in unit["Service"]


def test_the_unit_of_the_endpoint_loads_what_it_names() -> None:
    [file] = [each for each in UNITS if each.stem == "viewkeeper-connect@"]
    words = read_unit(file)["Service"]["ExecStart"].split()[1:]
    options = check_served(words)
    assert {*options} == {"--certificate", "--key", "--token-file"}
    loaded = re.findall(r"^LoadCredential=([\w.]+):/etc/viewkeeper/", file.read_text(), re.M)
    assert {*options.values()} == {f"%d/{name}" for name in loaded}


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="there is no systemd-analyze")
def test_systemd_takes_the_unit(tmp_path: Path, unit_file: Path) -> None:
    program = tmp_path / "viewkeeper"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    text = unit_file.read_text()
    copy = tmp_path / f"{unit_file.stem}sales.service"
    copy.write_text(text.replace("/opt/viewkeeper/bin/viewkeeper", str(program)))
    command = ["systemd-analyze", "--man=no", "--recursive-errors=no", "verify", str(copy)]
    run = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert (run.returncode, run.stderr) == (0, "")
    copy.write_text(copy.read_text().replace("ProtectHome=true", "ProtectHom=true"))
    run = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert "ProtectHom" in run.stderr


# -- Kubernetes ------------------------------------------------------------------------------------

Manifest = dict[str, Any]


@pytest.fixture(scope="module")
def manifests() -> list[Manifest]:
    files = sorted((DEPLOYMENT / "kubernetes").glob("*.yml"))
    return [each for file in files for each in yaml.safe_load_all(file.read_text())]


def named(manifests: list[Manifest], kind: str, name: str = "viewkeeper") -> Manifest:
    [found] = [m for m in manifests if (m["kind"], m["metadata"]["name"]) == (kind, name)]
    return found


def test_kubernetes_takes_the_manifests(manifests: list[Manifest]) -> None:
    version = kubernetes_validate.latest_version()
    for manifest in manifests:
        kubernetes_validate.validate(manifest, version, strict=True)
    broken = {**named(manifests, "Service"), "spec": {"port": []}}
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(broken, version, strict=True)


def test_the_manifests_name_each_other(manifests: list[Manifest]) -> None:
    pods = named(manifests, "StatefulSet")["spec"]["template"]
    spec = pods["spec"]
    [container] = spec["containers"]
    named(manifests, "ServiceAccount", spec["serviceAccountName"])
    secret = named(manifests, "Secret")["stringData"]
    keys = [each["valueFrom"].get("secretKeyRef") for each in container["env"]]
    assert {key["key"] for key in keys if key} == {*secret}
    volumes = {volume["name"] for volume in spec["volumes"]}
    assert {mount["name"] for mount in container["volumeMounts"]} == volumes
    for kind in ("Service", "PodDisruptionBudget"):
        selector = named(manifests, kind)["spec"]["selector"]
        assert {**selector.get("matchLabels", selector)} == pods["metadata"]["labels"]
    probes = [container[f"{name}Probe"]["httpGet"]["path"] for name in ("startup", "liveness")]
    assert probes == ["/healthz", "/healthz"]
    assert container["readinessProbe"]["httpGet"]["path"] == "/readyz"
    assert call(*container["args"], "--help").exit_code == 0
    assert IMAGE.fullmatch(container["image"])


def test_the_project_of_the_config_map_is_one(manifests: list[Manifest], tmp_path: Path) -> None:
    files = named(manifests, "ConfigMap", "viewkeeper-project")["data"]
    spec = named(manifests, "StatefulSet")["spec"]["template"]["spec"]
    [volume] = [each for each in spec["volumes"] if each["name"] == "project"]
    for item in volume["configMap"]["items"]:
        path = tmp_path / item["path"]
        path.parent.mkdir(exist_ok=True)
        path.write_text(files[item["key"]])
    settings = read_settings(tmp_path)
    assert settings.spark.master.startswith("k8s://")
    [view] = (tmp_path / "views").iterdir()
    assert parse_view(view.read_text()).name == view.stem
    config = settings.spark.config
    claim = "spark.kubernetes.executor.volumes.persistentVolumeClaim.warehouse.options.claimName"
    named(manifests, "PersistentVolumeClaim", config[claim])
    [container] = spec["containers"]
    assert config["spark.kubernetes.container.image"] == container["image"]
    ports = {str(each["containerPort"]) for each in container["ports"]}
    assert {config["spark.driver.port"], config["spark.driver.blockManager.port"]} < ports
    policy = named(manifests, "NetworkPolicy")["spec"]["ingress"][0]["ports"]
    assert {str(each["port"]) for each in policy} == {
        config[f"spark.{name}"]
        for name in ("driver.port", "driver.blockManager.port", "blockManager.port")
    }


def test_the_manifests_of_the_endpoint_fit_the_others(
    manifests: list[Manifest], tmp_path: Path
) -> None:
    name = "viewkeeper-connect"
    pods = named(manifests, "Deployment", name)["spec"]["template"]
    spec, labels = pods["spec"], pods["metadata"]["labels"]
    [container] = spec["containers"]
    driver = named(manifests, "StatefulSet")["spec"]["template"]
    assert container["image"] == driver["spec"]["containers"][0]["image"]
    assert labels["app"] != driver["metadata"]["labels"]["app"], "policies of executors are not its"
    options = check_served(container["args"])
    places = {str(Path(each).parent) for each in options.values()}
    assert places < {mount["mountPath"] for mount in container["volumeMounts"]}
    [variable] = container["env"]
    key = variable["valueFrom"]["secretKeyRef"]
    assert variable["name"] == TOKEN_VARIABLE
    assert key["key"] in named(manifests, "Secret", key["name"])["stringData"]
    volumes = {volume["name"]: volume for volume in spec["volumes"]}
    assert {mount["name"] for mount in container["volumeMounts"]} == {*volumes}
    named(
        manifests,
        "PersistentVolumeClaim",
        volumes["warehouse"]["persistentVolumeClaim"]["claimName"],
    )
    assert named(manifests, "Service", name)["spec"]["selector"] == labels
    policy = named(manifests, "NetworkPolicy", name)["spec"]
    assert policy["podSelector"]["matchLabels"] == labels
    assert policy["ingress"][0]["ports"][0]["port"] == container["ports"][0]["containerPort"]
    for file, text in named(manifests, "ConfigMap", volumes["project"]["configMap"]["name"])[
        "data"
    ].items():
        (tmp_path / file).write_text(text)
    warehouses = [mount for mount in container["volumeMounts"] if mount["name"] == "warehouse"]
    assert read_settings(tmp_path).warehouse == Path(warehouses[0]["mountPath"])
