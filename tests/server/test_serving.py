"""The server, over real connections: jobs, limits, hostile requests, other users, its end."""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from devices.documents.document import dump_yaml
from devices.profile import ProfiledNetwork
from devices.published import load_published
from solver.files.solved import read_solved
from tests.support.paths import REFERENCES, ROOT
from tests.support.serving import LARGE, SMALL, Server, graph_file, serving

pytestmark = pytest.mark.slow

PATIENCE_S = 60.0


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    directory = tmp_path_factory.mktemp("server")
    words = ("--most-upload", "2MiB", "--queue", "2", "--time-limit", "300")
    with serving(directory, *words) as started:
        yield started


def until(condition: object) -> None:
    """Wait until a function returns something true."""
    assert callable(condition)
    end = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < end, "it does not happen"
        time.sleep(0.1)


# --- what a job gives -----------------------------------------------------------------------------


def test_a_graph_is_solved_and_followed_and_its_answer_is_that_of_the_command(
    server: Server, tmp_path: Path
) -> None:
    job = server.submit(graph_file(), ram_budget="80%")
    states = list(server.states(job))
    assert [state for state in ("waiting", "running", "done") if state == states[-1]["state"]]
    assert any(state["progress"] for state in states)
    assert states[-1]["exit_code"] == 0

    base = f"/api/jobs/{job}"
    (tmp_path / "s.json").write_bytes(server.client.get(f"{base}/schedule").content)
    (tmp_path / "s.graph.json").write_bytes(server.client.get(f"{base}/graph").content)
    _, schedule = read_solved(tmp_path / "s.json")  # checks every figure
    words = ("solve", "--graph", str(SMALL), "--ram-budget", "80%", "--out", "typed.json")
    command = [sys.executable, str(ROOT / "cli.py"), *words]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    _, typed = read_solved(tmp_path / "typed.json")
    assert schedule.energy_j == pytest.approx(typed.energy_j, rel=schedule.asked_gap)
    heading, table, *_ = states[-1]["answer"]
    assert heading in done.stdout
    assert [row[0] for row in table if row[0]] == [
        name for name, *_ in table if name and name in done.stdout
    ]
    names = states[-1]["pictures"]
    assert {name.split("-")[-1] for name in names} >= {"memory.png", "stages.png"}
    for name in names:
        assert server.client.get(f"{base}/pictures/{name}").content.startswith(b"\x89PNG")


def test_networks_and_profiles_are_named_or_uploaded(server: Server) -> None:
    keywords = (REFERENCES / "exported" / "keywords.pt2").read_bytes()
    profile = dump_yaml(load_published("m4")).encode()
    named = server.submit(network="linear", profile="m4", ram_budget="1GiB", time_limit="5")
    files = {
        "network_file": ("../../etc/my net.pt2", keywords),
        "profile_file": ("/etc/passwd", profile),
    }
    uploaded = server.submit(files, ram_budget="1GiB", time_limit="5")
    for job, heading in ((named, "linear, batch 1, on m4"), (uploaded, "my-net.*on m4")):
        state = server.ended(job)
        assert state["state"] == "done", state["error"]
        assert re.match(heading, state["answer"][0])
        assert state["energy_source"] == "published"
    assert not list(server.directory.glob("tmp/*/*/*.pt2")), "uploads outlive their search"


def test_nothing_fits_is_an_answer_with_the_smallest_budget(server: Server) -> None:
    state = server.ended(server.submit(graph_file(), ram_budget="10B"))
    assert (state["state"], state["status"], state["exit_code"]) == ("done", "infeasible", 5)
    assert any("smallest feasible RAM budget" in str(part) for part in state["answer"])


def test_a_stopped_search_answers_with_the_best_so_far(server: Server) -> None:
    name, graph = graph_file(LARGE)["graph_file"]
    stated = graph.replace(b"{", b'{"energy_source":"emulated",', 1)
    job = server.submit({"graph_file": (name, stated)}, ram_budget="50%", gap="0")
    for state in server.states(job):
        if state["progress"] and state["progress"]["value"]:
            break
    assert state["energy_source"] == "emulated", "the source of the joules of the progress"
    assert server.client.get(f"/api/jobs/{job}/schedule").status_code == 409
    assert server.client.post(f"/api/jobs/{job}/stop").status_code == 202
    assert server.ended(job)["state"] == "done"
    schedule = server.client.get(f"/api/jobs/{job}/schedule").json()
    assert (schedule["status"], schedule["ended_by"]) == ("feasible", "interrupted")


# --- requests that are refused --------------------------------------------------------------------

REFUSED = [
    ({"network": "../../etc/passwd", "profile": "m4"}, "no model is named"),
    ({"network": "net.py:build", "profile": "m4"}, "no model is named"),
    ({"network": "linear", "profile": "/etc/passwd"}, "no profile '/etc/passwd'"),
    ({"network": "lineer", "profile": "m4"}, "did you mean linear"),
    ({"network": "linear"}, "needs a profile"),
    ({"network": "linear", "profile": "m4", "batch": "0"}, "batch"),
    ({"network": "linear", "profile": "m4", "time_limit": "nan"}, "time_limit"),
    ({"network": "linear", "profile": "m4", "slices": "many"}, "'many'"),
    ({"network": "linear", "profile": "m4", "ram": "50%"}, "there is no field 'ram'"),
    ({"network": "linear", "profile": "m4", "graph_file": "x"}, "must be a file"),
]


@pytest.mark.parametrize(("fields", "sentence"), REFUSED)
def test_a_field_that_cannot_be_used_is_refused_in_one_sentence(
    server: Server, fields: dict[str, str], sentence: str
) -> None:
    answer = server.send(**fields)
    assert (answer.status_code, answer.json()["exit_code"]) == (422, 2)
    assert sentence in answer.json()["error"]
    assert "\n" not in answer.json()["error"]


def test_what_is_not_for_this_server_is_refused(server: Server) -> None:
    client = server.client
    assert client.get("/", headers={"host": "evil.example"}).status_code == 421
    form = {"network": "linear", "profile": "m4"}
    for site in ("cross-site", "same-site"):
        answer = client.post("/api/jobs", data=form, headers={"sec-fetch-site": site})
        assert answer.status_code == 403
    assert client.post("/api/jobs", json=form).status_code == 415
    broken = {"content-type": "multipart/form-data; boundary=x"}
    assert client.post("/api/jobs", content=b"--y", headers=broken).status_code == 400
    for path in ("/docs", "/redoc", "/api/jobs", "/api/jobs/", "/results", "/api/jobs/../../x"):
        assert client.get(path).status_code in {404, 405}


def test_too_large_a_request_is_refused_while_it_arrives(server: Server) -> None:
    head = (
        "POST /api/jobs HTTP/1.1\r\nhost: localhost\r\n"
        "content-type: multipart/form-data; boundary=x\r\n"
    )
    with socket.create_connection(("127.0.0.1", server.port)) as connection:
        connection.sendall(f"{head}content-length: {10**9}\r\n\r\n".encode())
        assert b" 413 " in connection.recv(4096).partition(b"\r\n")[0]
    endless = graph_file()
    endless["graph_file"] = ("graph.json", bytes(3 << 20))
    answer = server.send(endless, ram_budget="50%")
    assert answer.status_code == 413
    assert "larger than 2.00 MiB" in answer.json()["error"]

    def parts() -> Iterator[bytes]:
        yield b'--x\r\ncontent-disposition: form-data; name="graph_file"; filename="a"\r\n\r\n'
        for _ in range(64):
            yield bytes(1 << 16)

    headers = {"content-type": "multipart/form-data; boundary=x"}
    answer = server.client.post("/api/jobs", content=parts(), headers=headers)
    assert answer.status_code == 413


def zip_bomb() -> bytes:
    """An exported program whose weights unpack to a gigabyte."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        archive.writestr("net/byteorder", "little")
        with archive.open("net/models/model.json", "w") as member:
            for _ in range(1024):
                member.write(b" " * (1 << 20))
    return file.getvalue()


def bomb_of_aliases() -> bytes:
    levels = (f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 12))
    return "\n".join(["a0: &a0 [x, x, x, x, x, x, x, x, x]", *levels]).encode()


def profile_of_the_servers_file() -> bytes:
    network = ProfiledNetwork(model="/etc/secret.pt2", batch=1, optimizer="sgd")
    return dump_yaml(load_published("m4").changed(networks=(network,))).encode()


HOSTILE: list[tuple[dict[str, tuple[str, bytes | Callable[[], bytes]]], dict[str, str], str]] = [
    ({"network_file": ("net.pt2", zip_bomb)}, {"profile": "m4"}, "net.pt2"),
    ({"network_file": ("net.pt2", b"PK\x05\x06")}, {"profile": "m4"}, "net.pt2: not a file"),
    ({"network_file": ("net.onnx", b"\xff" * 999)}, {"profile": "m4"}, "net.onnx: not an ONNX"),
    ({"graph_file": ("g", b"[" * 100_000)}, {"ram_budget": "1KiB"}, "graph.json: not valid JSON"),
    ({"graph_file": ("g", b'{"ops": []}')}, {"ram_budget": "1KiB"}, "graph.json"),
    ({"profile_file": ("p", bomb_of_aliases)}, {"network": "linear"}, "profile.yaml"),
    ({"profile_file": ("p", profile_of_the_servers_file)}, {}, "upload it as network_file"),
]


@pytest.mark.parametrize(("files", "fields", "sentence"), HOSTILE)
def test_a_hostile_upload_ends_in_one_sentence(
    server: Server,
    files: dict[str, tuple[str, bytes | Callable[[], bytes]]],
    fields: dict[str, str],
    sentence: str,
) -> None:
    uploads = {
        key: (name, content if isinstance(content, bytes) else content())
        for key, (name, content) in files.items()
    }
    job = server.submit(uploads, **fields)
    state = server.ended(job)
    assert (state["state"], state["exit_code"]) == ("failed", 2), state
    assert sentence in state["error"]
    assert str(server.directory) not in json.dumps(state)
    answer = server.client.get(f"/api/jobs/{job}/schedule")
    assert (answer.status_code, answer.json()["error"]) == (422, state["error"])


# --- users, queue, limits -------------------------------------------------------------------------


def test_jobs_wait_in_a_queue_and_others_are_told_to_come_back(server: Server) -> None:
    jobs = [server.submit(graph_file(LARGE), ram_budget="50%", gap="0")]
    until(lambda: server.client.get(f"/api/jobs/{jobs[0]}").json()["state"] == "running")
    jobs += [server.submit(graph_file(LARGE), ram_budget="50%", gap="0") for _ in range(2)]
    refused = server.send(graph_file(), ram_budget="80%")
    assert (refused.status_code, int(refused.headers["retry-after"]) > 0) == (503, True)
    assert len(set(jobs)) == 3
    assert all(re.fullmatch(r"[\w-]{32}", job) for job in jobs)
    states = [server.client.get(f"/api/jobs/{job}").json()["state"] for job in jobs]
    assert states[1:] == ["waiting", "waiting"]

    assert server.client.post(f"/api/jobs/{jobs[2]}/stop").status_code == 202
    assert server.ended(jobs[2])["error"] == "stopped before it began"
    for job in (jobs[1], jobs[0]):
        assert server.client.delete(f"/api/jobs/{job}").status_code == 204
    # One user's job is removed for everybody, and leaves nothing.
    for path in ("", "/events", "/schedule", "/graph", "/pictures/schedule-memory.png"):
        gone = server.client.get(f"/api/jobs/{jobs[0]}{path}")
        never = server.client.get(f"/api/jobs/{'x' * 32}{path}")
        assert gone.status_code == never.status_code == 404
        assert gone.json() == never.json()
    until(lambda: not server.workers)
    until(lambda: not any(path.name in jobs[:2] for path in server.directory.glob("tmp/*/*")))


def test_a_job_whose_process_is_killed_fails_and_the_next_one_runs(server: Server) -> None:
    job = server.submit(graph_file(LARGE), ram_budget="50%", gap="0")
    for state in server.states(job):
        if state["progress"]:
            break
    for worker in server.workers:
        os.kill(worker, signal.SIGKILL)
    state = server.ended(job)
    assert (state["state"], state["exit_code"]) == ("failed", 1)
    assert "ended without an answer" in state["error"]
    assert server.client.get(f"/api/jobs/{job}/schedule").status_code == 500
    assert server.ended(server.submit(graph_file(), ram_budget="80%"))["state"] == "done"


def test_old_answers_and_too_much_memory_are_limited(tmp_path: Path) -> None:
    with serving(tmp_path / "server", keep_s=5.0, memory_bytes=64 << 20) as server:
        job = server.submit(graph_file(LARGE), ram_budget="50%")
        state = server.ended(job)
        assert (state["state"], state["exit_code"]) == ("failed", 1), state
        assert "no more than 64.00 MiB of memory" in state["error"]
        until(lambda: server.client.get(f"/api/jobs/{job}").status_code == 404)


def test_slow_clients_are_disconnected(tmp_path: Path) -> None:
    with serving(tmp_path / "server", upload_s=5.0, head_s=5.0) as server:
        where = ("127.0.0.1", server.port)
        # What is sent right after connecting is there when the server first looks.
        with socket.create_connection(where, PATIENCE_S) as head:
            head.sendall(b"GET / HTTP/1.1\r\nhost: loc")
            with socket.create_connection(where, PATIENCE_S) as body:
                body.sendall(
                    b"POST /api/jobs HTTP/1.1\r\nhost: localhost\r\ncontent-length: 1000\r\n"
                    b"content-type: multipart/form-data; boundary=x\r\n\r\n--x"
                )
                assert head.recv(100) == b"", "closed"
                assert b" 408 " in body.recv(4096).partition(b"\r\n")[0]


def is_established(server: int, client: int) -> bool:
    """Whether the connection between these two ports of this host is still open for the server."""
    lines = Path("/proc/net/tcp").read_text().splitlines()[1:]
    ends = [f"0100007F:{port:04X}" for port in (server, client)]
    return any(line.split()[1:4] == [*ends, "01"] for line in lines)


def test_a_client_that_never_reads_is_disconnected(tmp_path: Path) -> None:
    request, requests = b"GET / HTTP/1.1\r\nhost: localhost\r\n\r\n", 4000
    with serving(tmp_path / "server", head_s=5.0) as server:
        page = server.client.get("/").content
        with socket.socket() as client:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            client.connect(("127.0.0.1", server.port))
            client.sendall(request * requests)
            _, port = client.getsockname()
            assert is_established(server.port, port)
            until(lambda: not is_established(server.port, port))
            answered = b""
            with contextlib.suppress(ConnectionResetError):
                while piece := client.recv(1 << 16):
                    answered += piece
        assert answered.count(b"HTTP/1.1 200") < requests
        assert len(page) * requests > 16 << 20, "more than the sockets hold"


# --- the server itself ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGTERM, 143), (signal.SIGHUP, 129), (signal.SIGKILL, -9)]
)
def test_running_searches_end_with_the_server(tmp_path: Path, number: int, code: int) -> None:
    with serving(tmp_path / "server") as server:
        job = server.submit(graph_file(LARGE), ram_budget="50%", gap="0")
        states = server.states(job)
        while not (state := next(states))["progress"]:
            assert state["exit_code"] is None
        states.close()
        (worker,) = server.workers
        children = Path(f"/proc/{worker}/task/{worker}/children").read_text().split()
        server.process.send_signal(number)
        assert server.process.wait(PATIENCE_S) == code
        alive = [worker, *map(int, children)]
        until(lambda: not any(is_alive(each) for each in alive))
        if number != signal.SIGKILL:
            assert not list((server.directory / "tmp").glob("joulewright-serve-*"))


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_openapi_describes_what_a_form_may_have(server: Server) -> None:
    described = server.client.get("/openapi.json").json()
    body = described["paths"]["/api/jobs"]["post"]["requestBody"]["content"]["multipart/form-data"]
    assert {"network", "network_file", "profile", "ram_budget", "deadline"} <= set(
        body["schema"]["properties"]
    )
    assert set(described["paths"]["/api/jobs/{job}"]) == {"get", "delete"}
    choices = server.client.get("/api/choices").json()
    assert {"name": "m4", "energy_source": "published"} in choices["published_profiles"]
    assert "dscnn" in choices["networks"]
