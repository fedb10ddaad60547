"""What the programs that measure peers share: child processes that end with them, free ports, and reports.

Every peer reports runs with the same keys as `cargo run --release -p spindle-object --example calls -- --json`.
"""
import argparse
import ctypes
import json
import os
import queue
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time

HERE = os.path.dirname(os.path.abspath(__file__))
# How long a build may take: the first one downloads packages.
BUILD_WAIT_S = 1200
# How long members may take to start and to choose a leader.
START_WAIT_S = 60
# How long processes may take to end.
END_WAIT_S = 5
PR_SET_PDEATHSIG = 1
PREFIX = "spindle-peer-"
# The directory for files in memory.
SHM = "/dev/shm"
LIBC = ctypes.CDLL(None, use_errno=True)


class Skip(Exception):
    """The reason why this machine can measure nothing."""


def die_with_parent():
    """Runs in the child, which is killed when this program dies, however that happens."""
    LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


class Children:
    """Processes, and directories, that end with the `with` block."""

    def __init__(self, parent=None):
        self.children = []
        sweep(parent or tempfile.gettempdir())
        sweep(SHM)
        self.dir = tempfile.mkdtemp(prefix=f"{PREFIX}{os.getpid()}-", dir=parent)
        self.dirs = [self.dir]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for child in self.children:
            if child.process.poll() is None:
                child.process.terminate()
        deadline = time.monotonic() + END_WAIT_S
        for child in self.children:
            try:
                child.process.wait(max(0.0, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                child.process.kill()
                child.process.wait()
            child.log.close()
        for each in self.dirs:
            shutil.rmtree(each, ignore_errors=True)

    def remove_later(self, path):
        self.dirs.append(path)
        return path

    def start(self, name, words, **more):
        child = Child(name, words, self.dir, **more)
        self.children.append(child)
        return child


class Child:
    """A process whose output is read by lines, and whose errors go to a file."""

    def __init__(self, name, words, scratch, **more):
        self.name = name
        self.log_path = os.path.join(scratch, f"{name}.log")
        self.log = open(self.log_path, "w", encoding="utf-8")
        self.process = subprocess.Popen(
            words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.log, text=True, preexec_fn=die_with_parent, **more
        )
        self.lines = queue.Queue()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self):
        for line in self.process.stdout:
            self.lines.put(line)
        self.lines.put(None)

    def order(self, line):
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()

    def answer(self, seconds):
        """Returns the next line that is a JSON object. Other lines are passed over."""
        deadline = time.monotonic() + seconds
        while True:
            try:
                line = self.lines.get(timeout=max(0.0, deadline - time.monotonic()))
            except queue.Empty as error:
                raise RuntimeError(f"{self.name} did not answer in {seconds:.0f} s; {self.last_words()}") from error
            if line is None:
                raise RuntimeError(f"{self.name} has ended; {self.last_words()}")
            if line.startswith("{"):
                return json.loads(line)

    def last_words(self):
        with open(self.log_path, encoding="utf-8", errors="replace") as file:
            last = file.read().strip().splitlines()[-5:]
        return "its last lines: " + " | ".join(last) if last else "it printed no error"


def sweep(parent):
    """Removes the directories of runs that were killed. Their processes have died with them."""
    for name in os.listdir(parent) if os.path.isdir(parent) else []:
        pid = name.removeprefix(PREFIX).split("-")[0]
        if name.startswith(PREFIX) and pid.isdigit() and not os.path.exists(f"/proc/{pid}"):
            shutil.rmtree(os.path.join(parent, name), ignore_errors=True)


def call(words, seconds, **more):
    """Runs a command to its end, and returns its output."""
    try:
        done = subprocess.run(
            words, capture_output=True, text=True, timeout=seconds, preexec_fn=die_with_parent, check=False, **more
        )
    except subprocess.TimeoutExpired as error:
        raise RuntimeError(f"{words[0]} did not end in {seconds:.0f} s") from error
    if done.returncode != 0:
        last = (done.stderr.strip() or done.stdout.strip()).splitlines()[-5:]
        raise RuntimeError(f"{' '.join(words)}: " + " | ".join(last))
    return done.stdout


def find(tool, remedy, *places):
    """Returns the path of a command, also one that is not in the PATH."""
    found = shutil.which(tool) or next((place for place in places if os.access(place, os.X_OK)), None)
    if found is None:
        raise Skip(f"{tool} is missing: {remedy}")
    return found


def build_dir(name):
    """Returns a directory that keeps what was built."""
    target = os.environ.get("CARGO_TARGET_DIR", os.path.join(HERE, "..", "..", "target"))
    path = os.path.join(os.path.abspath(target), "peers", name)
    os.makedirs(path, exist_ok=True)
    return path


def build_go(name):
    """Builds the Go program in the directory `name`."""
    go = find("go", "apt-get install golang-go, version 1.25 or later", "/usr/local/go/bin/go")
    program = os.path.join(build_dir(name), name)
    words = [go, "build", "-buildvcs=false", "-o", program, "."]
    try:
        call(words, BUILD_WAIT_S, cwd=os.path.join(HERE, name))
    except RuntimeError as error:
        raise Skip(f"the program can't be built: {error}") from error
    return program


def free_ports(count, is_udp=False):
    """Returns ports of loopback that no process used a moment ago."""
    sockets = [socket.socket(type=socket.SOCK_DGRAM if is_udp else socket.SOCK_STREAM) for _ in range(count)]
    try:
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]
    finally:
        for each in sockets:
            each.close()


def arguments(about):
    """Returns the parser of the flags that all peers have."""
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--seconds", type=float, default=3.0, help="how long each run takes")
    parser.add_argument("--size", type=int, default=128, help="bytes of a value")
    parser.add_argument("--keys", type=int, default=1000, help="keys, which are used in turn")
    parser.add_argument("--outstanding", default="64,1", help="calls on the way at a time, a list")
    return parser


def outstanding_of(args):
    try:
        return [int(word) for word in args.outstanding.split(",")]
    except ValueError:
        sys.exit(f"error: --outstanding {args.outstanding} is no list of numbers, such as 64,1")


def report(peer, version, args, runs):
    return {
        "bench": "peer",
        "peer": peer,
        "version": version,
        "cores": len(os.sched_getaffinity(0)),
        "members": 3,
        "size_bytes": args.size,
        "keys": args.keys,
        "runs": runs,
    }


def show(found):
    """Prints a report in the columns of Spindle's."""
    print(f"{found['peer']} {found['version']}: {found['members']} members, values of {found['size_bytes']} B, {found['cores']} cores")
    print(f"{'durability':<23}{'from':<8}{'':<5}{'outstanding':>12}{'calls/s':>11}{'p50 us':>10}{'p99 us':>10}")
    for run in found["runs"]:
        print(
            f"{run['durability']:<23}{run['from']:<8}{run['operation']:<5}{run['outstanding']:>12}"
            f"{run['calls_per_second']:>11.0f}{run['p50_ns'] / 1e3:>10.1f}{run['p99_ns'] / 1e3:>10.1f}"
        )


def main(measure, args):
    """Prints the report that `measure` returns. Returns the exit status."""
    # SIGTERM ends the `with` blocks too, and with them the children.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        found = measure(args)
    except Skip as why:
        print(f"skipped: {why}", file=sys.stderr if args.json else sys.stdout)
        if args.json:
            print(json.dumps({"bench": "peer", "skipped": str(why)}))
        return 0
    except (OSError, RuntimeError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    if args.json:
        print(json.dumps(found, indent=2))
    else:
        show(found)
    return 0
