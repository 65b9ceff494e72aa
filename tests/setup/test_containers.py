"""Servers in containers: what can be watched, and what helps where it cannot."""

import pytest

from watchdog.setup import containers

LAUNCH = "lmsysorg/sglang python3 -m sglang.launch_server --model-path m"


def test_a_container_with_a_scope_of_its_own_gets_advice() -> None:
    known = containers.told("docker", {"Name": "/kimi", "HostConfig": {"LogConfig": {"Type": "json-file"}}})
    said = containers.advice("a" * 64, "docker-" + "a" * 64 + ".scope", known)

    assert "container kimi runs in docker-" in said
    assert "quadlet" in said
    assert "json-file" in said
    assert "aaaaaaaaaaaa" in containers.advice("a" * 64, "x.scope", None)
    assert containers.told("podman", {}) == containers.Container("podman", None, None)


@pytest.mark.parametrize(
    ("client", "cure"),
    [
        (f"/usr/bin/podman run --cgroups=split -d {LAUNCH}", None),
        (f"podman run --cgroups=disabled {LAUNCH}", None),
        (f"/usr/bin/podman run --name kimi -d {LAUNCH}", "add --cgroups=split"),
        (f"/usr/bin/podman run --cgroups=no-conmon -d {LAUNCH}", "add --cgroups=split"),
        (f"/usr/bin/podman run --cgroups split -d {LAUNCH}", None),
        (f"/usr/bin/docker run --rm --name kimi {LAUNCH}", "--cgroup-parent=sglang.slice"),
        (f"/usr/bin/docker run --cgroup-parent=sglang-kimi.slice {LAUNCH}", None),
        (f"/usr/bin/docker run --cgroup-parent sglang-kimi.slice -d {LAUNCH}", "in the foreground"),
        (f"/usr/bin/docker run --detach-keys=ctrl-x --cgroup-parent=sglang-kimi.slice {LAUNCH}", None),
        (f"/usr/bin/docker run --detach=false -it --cgroup-parent=sglang-kimi.slice {LAUNCH}", None),
        (f"/usr/bin/docker run --detach=true --cgroup-parent=sglang-kimi.slice {LAUNCH}", "in the foreground"),
        (f"/usr/bin/docker run -dp 80:80 --cgroup-parent=sglang-kimi.slice {LAUNCH}", "in the foreground"),
        (f"/usr/bin/docker run --cgroup-parent=/x/y {LAUNCH}", "--cgroup-parent=sglang.slice"),
        ("/usr/bin/docker start -a kimi", "`docker run` in the foreground"),
    ],
)
def test_a_unit_whose_container_is_elsewhere_is_told_with_what_helps(client: str, cure: str | None) -> None:
    said = containers.outside("sglang.service", client)
    assert (said is None) if cure is None else (cure in str(said))


@pytest.mark.parametrize(
    ("parent", "cgroup"),
    [
        ("sglang.slice", "/sglang.slice"),
        ("sglang-a-kimi.slice", "/sglang.slice/sglang-a.slice/sglang-a-kimi.slice"),
        ("sglang-.slice", None),
        ("-.slice", None),
        ("/sglang", None),
        ("a/../b.slice", None),
        ("", None),
    ],
)
def test_the_cgroup_of_a_slice_is_below_those_of_its_names_beginnings(parent: str, cgroup: str | None) -> None:
    assert containers.cgroup(f"docker run --cgroup-parent={parent} image") == cgroup


@pytest.mark.parametrize(
    ("client", "twice"),
    [
        (f"/usr/bin/podman run --name kimi {LAUNCH}", True),
        (f"/usr/bin/podman run --log-driver journald {LAUNCH}", True),
        (f"/usr/bin/podman run --log-driver=journald {LAUNCH}", True),
        (f"/usr/bin/podman run --log-driver=passthrough {LAUNCH}", False),
        (f"/usr/bin/podman run --log-driver none {LAUNCH}", False),
        (f"/usr/bin/podman run -d --log-driver journald {LAUNCH}", False),
        (f"/usr/bin/podman run -itd --name kimi {LAUNCH}", False),
        ("/usr/bin/python3 -m sglang.launch_server", False),
        ("", False),
    ],
)
def test_podman_in_the_foreground_says_each_line_twice(client: str, twice: bool) -> None:
    assert (containers.twice(client) is not None) == twice
