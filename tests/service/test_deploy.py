"""The flags, paths, ports and routes in the files of deploy/ exist."""

import fnmatch
import json
import os
import re
import shlex
import subprocess

import pytest
import tomllib
import yaml
from absl import flags
from support.processes import ROOT

from convert_tf import __version__
from convert_tf.cli import serve
from convert_tf.cli.flags import define_flag
from convert_tf.cli.main import COMMANDS

pytest.importorskip("fastapi")
from convert_tf.service.server import GRACE
from convert_tf.training.processes import NOT_FINISHED, PEER_LOST

DEPLOY = ROOT / "deploy"
DOCKERFILE = re.sub(r"\\\n\s*", "", (DEPLOY / "Dockerfile").read_text())


def instructions(name):
    return re.findall(rf"^{name} (.+)$", DOCKERFILE, re.MULTILINE)


def parsed(arguments):
    values = flags.FlagValues()
    serve.define_flags(lambda *args, **options: define_flag(values, *args, **options))
    assert values(["serve", *arguments]) == ["serve"]
    return values


@pytest.fixture(scope="module")
def compose():
    (service,) = yaml.safe_load((DEPLOY / "compose.yaml").read_text())["services"].values()
    return service


@pytest.fixture(scope="module")
def kubernetes():
    deployment, service, *_ = yaml.safe_load_all((DEPLOY / "kubernetes.yaml").read_text())
    return deployment, service


def test_the_command_has_flags_of_serve():
    (entrypoint,), (command,) = map(instructions, ("ENTRYPOINT", "CMD"))
    program, subcommand, *arguments = json.loads(entrypoint)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert program in project["scripts"]
    assert subcommand in COMMANDS
    values = parsed([*arguments, *json.loads(command)])
    assert values.host == "0.0.0.0"
    assert [str(values.port)] == instructions("EXPOSE")


def test_onnxruntime_sends_nothing_from_containers(compose, kubernetes):
    assert instructions("ENV") == ["ORT_DISABLE_TELEMETRY=1"]
    assert compose["environment"] == {"ORT_DISABLE_TELEMETRY": "1"}
    (container,) = kubernetes[0]["spec"]["template"]["spec"]["containers"]
    assert container["env"] == [{"name": "ORT_DISABLE_TELEMETRY", "value": "1"}]


def test_copied_files_exist_and_reach_the_build():
    ignored = (DEPLOY / "Dockerfile.dockerignore").read_text().split()
    for line in instructions("COPY"):
        for source in line.split()[:-1]:
            assert (ROOT / source).exists()
            assert any(fnmatch.fnmatch(f"!{source}", pattern) for pattern in ignored)


def test_installed_packages_have_a_version_and_no_tensorflow():
    first, second = instructions("RUN")
    packages = first.split(" constraints.txt ")[1].split()
    constraints = (ROOT / "constraints.txt").read_text()
    for package in packages:
        assert f"\n{package}==" in constraints
    assert "tensorflow" not in packages and "--no-deps ." in second


def test_compose_serves_and_checks_the_port_of_the_image(compose):
    assert (DEPLOY / compose["build"]["context"] / compose["build"]["dockerfile"]).is_file()
    (mounted,) = compose["volumes"]
    assert parsed(compose["command"]).encoder.startswith(mounted.split(":")[1] + "/")
    (port,) = instructions("EXPOSE")
    assert compose["ports"] == [f"127.0.0.1:8000:{port}"]
    (check,) = instructions("HEALTHCHECK")
    code = shlex.split(check.split(" CMD ")[1])[-1]
    compile(code, "healthcheck", "exec")
    assert f"127.0.0.1:{port}/health" in code


def containers():
    """Yield each pod specification with its container, from deploy/ and examples/cluster/."""
    for path in (DEPLOY / "kubernetes.yaml", ROOT / "examples" / "cluster" / "train-job.yaml"):
        for value in yaml.safe_load_all(path.read_text()):
            if pod := value["spec"].get("template", {}).get("spec"):
                (container,) = pod["containers"]
                yield pod, container


def users():
    for folder in (DEPLOY, ROOT / "examples" / "cluster"):
        yield re.search(r"^USER (\d+)$", (folder / "Dockerfile").read_text(), re.MULTILINE)[1]


def test_pods_have_no_more_rights_than_they_need():
    assert len([*containers()]) == 2
    for pod, container in containers():
        assert pod["automountServiceAccountToken"] is False
        assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        assert container["securityContext"]["allowPrivilegeEscalation"] is False
        assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
        assert container["securityContext"]["readOnlyRootFilesystem"] is True


def test_pods_run_as_the_user_of_the_image_which_no_user_of_a_node_is():
    (user,) = {*users()}
    assert int(user) >= 10_000
    for pod, container in containers():
        context = {**pod["securityContext"], **container["securityContext"]}
        assert context["runAsNonRoot"] is True and str(context["runAsUser"]) == user


def test_the_service_is_reached_at_its_port_alone(kubernetes):
    deployment, _ = kubernetes
    *_, policy = yaml.safe_load_all((DEPLOY / "kubernetes.yaml").read_text())
    assert policy["kind"] == "NetworkPolicy"
    assert policy["spec"]["podSelector"] == deployment["spec"]["selector"]
    assert {*policy["spec"]["policyTypes"]} == {"Ingress", "Egress"}
    assert "egress" not in policy["spec"]
    assert policy["spec"]["ingress"] == [{"ports": [{"port": int(instructions("EXPOSE")[0])}]}]


def test_pods_have_an_image_with_a_version_and_bounds(compose):
    for _, container in containers():
        assert container["image"].endswith(f":{__version__}")
        for name in ("requests", "limits"):
            assert {"cpu", "memory"} <= {*container["resources"][name]}
    assert compose["image"].endswith(f":{__version__}")


def test_one_copy_stays_when_nodes_are_drained(kubernetes):
    *_, budget, _ = yaml.safe_load_all((DEPLOY / "kubernetes.yaml").read_text())
    deployment, _ = kubernetes
    assert budget["kind"] == "PodDisruptionBudget"
    assert budget["spec"]["selector"] == deployment["spec"]["selector"]
    assert budget["spec"]["minAvailable"] < deployment["spec"]["replicas"]
    pod = deployment["spec"]["template"]["spec"]
    (spread,) = pod["topologySpreadConstraints"]
    assert spread["labelSelector"] == deployment["spec"]["selector"]


def test_a_job_starts_again_after_the_statuses_that_resume():
    *_, job = yaml.safe_load_all((ROOT / "examples" / "cluster" / "train-job.yaml").read_text())
    rules = job["spec"]["podFailurePolicy"]["rules"]
    by_status = [rule for rule in rules if "onExitCodes" in rule]
    statuses = {rule["action"]: rule["onExitCodes"]["values"] for rule in by_status}
    assert statuses == {"Ignore": [NOT_FINISHED, PEER_LOST], "FailJob": [2]}
    pod = job["spec"]["template"]["spec"]
    mounts = {mount["name"]: mount["mountPath"] for mount in pod["containers"][0]["volumeMounts"]}
    assert {volume["name"] for volume in pod["volumes"]} == {*mounts}
    assert mounts["shared-memory"] == "/dev/shm"


@pytest.mark.parametrize(
    ("status", "restarts", "is_queued_again"),
    [
        (0, None, False),
        (1, None, False),
        (2, None, False),
        (NOT_FINISHED, None, True),
        (PEER_LOST, None, True),
        (134, None, True),  # SIGABRT, for example from NCCL when another node is lost
        (137, None, True),  # SIGKILL, for example by Slurm on a node that is lost
        (139, None, True),
        (NOT_FINISHED, 19, True),
        (NOT_FINISHED, 20, False),
        (137, 19, True),
        (137, 20, False),
    ],
)
def test_the_script_for_slurm_queues_a_job_again_after_a_lost_node(
    status, restarts, is_queued_again, tmp_path
):
    calls = tmp_path / "calls"
    for name, ended in (("srun", status), ("scontrol", 0)):
        program = tmp_path / name
        program.write_text(f"#!/bin/sh\nprintf '%s\\n' {name} \"$@\" >> '{calls}'\nexit {ended}\n")
        program.chmod(0o755)
    environment = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "SLURM_JOB_ID": "12"}
    if restarts is not None:  # Slurm sets the variable at the first restart
        environment["SLURM_RESTART_COUNT"] = str(restarts)
    script = ROOT / "examples" / "cluster" / "train.sbatch"
    done = subprocess.run(["bash", script, "--output", "a run"], env=environment)
    assert done.returncode == status
    started = ["convert-tf", "train", "--coordinator=auto", "--output", "a run"]
    requeued = ["scontrol", "requeue", "12"] if is_queued_again else []
    # With --kill-on-bad-exit, Slurm would kill the processes that are to save their state.
    assert calls.read_text().splitlines() == [
        "srun", "--kill-on-bad-exit=0", *started, *requeued
    ]  # fmt: skip


def test_there_is_time_to_answer_the_open_requests(compose, kubernetes):
    assert int(compose["stop_grace_period"].removesuffix("s")) >= GRACE + 10
    pod = kubernetes[0]["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    program, seconds = container["lifecycle"]["preStop"]["exec"]["command"]
    assert program == "sleep" and int(seconds) >= 5
    assert pod["terminationGracePeriodSeconds"] >= int(seconds) + GRACE + 10


def test_kubernetes_serves_and_probes_the_port_of_the_image(kubernetes):
    deployment, service = kubernetes
    pod = deployment["spec"]["template"]
    (container,) = pod["spec"]["containers"]
    (volume,), (mount,) = pod["spec"]["volumes"], container["volumeMounts"]
    assert volume["name"] == mount["name"]
    assert parsed(container["args"]).encoder.startswith(mount["mountPath"] + "/")
    (port,) = map(int, instructions("EXPOSE"))
    assert container["ports"] == [{"containerPort": port}]
    for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
        assert container[probe]["httpGet"] == {"path": "/health", "port": port}
    assert [each["targetPort"] for each in service["spec"]["ports"]] == [port]
    labels = pod["metadata"]["labels"]
    assert deployment["spec"]["selector"]["matchLabels"] == labels == service["spec"]["selector"]
