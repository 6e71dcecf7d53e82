#!/usr/bin/env python3
"""Lets two sides take turns and prints the ratio of their times; run.sh calls it. README.md says why so."""
import argparse
import contextlib
import dataclasses
import datetime
import json
import math
import os
import pathlib
import platform
import select
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
PYTHON = "/usr/bin/python3"  # the one that Debian's python3-torch belongs to
KEPT = {"MALLOC_MMAP_MAX_": "0", "MALLOC_TRIM_THRESHOLD_": "16000000000", "MALLOC_TOP_PAD_": "268435456"}
ANSWER_SECONDS = 120  # that a side may take for one order


class Absent(Exception):
    """A side is not there; its rows are left out."""


@dataclasses.dataclass(frozen=True)
class Side:
    """A program that follows side.h, or torch_side.py; `args` may hold {server_cpu}, {client_cpu}, {tcp}, {unix}, {free}."""
    program: str
    args: tuple = ()
    threads: int = 1
    kept: bool = False  # a heap that is never given back
    cpu: str = ""       # "client": beside a server on the other one


@dataclasses.dataclass(frozen=True)
class Row:
    name: str
    ours: Side
    peer: Side
    workload: str  # of both sides, or "ours|peer"
    unit: str = "ns"
    per: float = 1  # nanoseconds of one round are divided by it
    aim: float = 0.9
    note: str = ""
    settle: float = 0.002  # seconds between two blocks: threads of the other side go to sleep

    def workload_of(self, ours):
        return self.workload.split("|")[0 if ours else -1]


OPERATORS = (
    ("sum/all", "sum all", "10,000 x 1,000 float32"),
    ("sum/0", "sum 0", "10,000 x 1,000 float32, down the columns"),
    ("sum/1", "sum 1", "10,000 x 1,000 float32, along the rows"),
    ("softmax", "softmax", "1024 x 1000 float32, along the rows"),
    ("cumsum", "cumsum", "10,000 x 1,000 float32, along the rows"),
    ("index/rows", "index_rows", "100,000 rows of 64 float32, out of order"),
    ("index/mask", "index_mask", "1e7 float32, about half of them"),
    ("optim/sgd", "optim SGD", "a step with momentum, 11.7 million float32 in 62 tensors"),
    ("optim/adam", "optim Adam", "a step, 11.7 million float32 in 62 tensors"),
    ("einsum/batch", "einsum_batch", "bij,bjk->bik, 64 times 128 x 128 float32"),
    ("einsum/chain", "einsum_chain", "bn,anm,bm->ba, b 512, the others 64, float32"),
)

# The convolutions of a ResNet-18, batch 8: name, then IN OUT KERNEL STRIDE PADDING SIZE.
CONVOLUTIONS = (
    ("stem", "3 64 7 2 3 224"),
    ("l1", "64 64 3 1 1 56"),
    ("l2s", "64 128 3 2 1 56"),
    ("l2", "128 128 3 1 1 28"),
    ("l2p", "64 128 1 2 0 56"),
    ("l3s", "128 256 3 2 1 28"),
    ("l3", "256 256 3 1 1 14"),
    ("l4s", "256 512 3 2 1 14"),
    ("l4", "512 512 3 1 1 7"),
)
LAYERS = tuple((f"conv2d/{way}/{name}", f"conv2d {way} 8 {sizes}", f"batch 8, in out kernel stride padding size: {sizes}")
               for way in ("forward", "backward") for name, sizes in CONVOLUTIONS) + tuple(
    (f"batch_norm/{way}/{mode}", f"batch_norm {way} {mode}", "(16, 64, 112, 112) float32")
    for way, mode in (("forward", "train"), ("forward", "eval"), ("backward", "train"), ("backward", "eval"))) + tuple(
    (f"max_pool2d/{way}", f"max_pool2d {way}", "3/2/1 on (16, 64, 112, 112) float32") for way in ("forward", "backward"))


def rows():
    """What is measured; an aim of 0 is a limit that is only shown."""
    chain = {"forward": "chain", "recorded": "chain_recorded", "backward": "chain_backward"}
    torch, python = Side("torch_side", cpu="client"), Side("torch_side.py", cpu="client")
    sdk = {kind: Side("sdk_side", ("{%s}" % kind,), cpu="client") for kind in ("tcp", "unix")}
    pinned = ("{server_cpu}", "{client_cpu}")
    for step, workload in chain.items():
        for kind in ("tcp", "unix") if step != "recorded" else ():
            for peer, name in ((torch, "libtorch"), (python, "python")):
                yield Row(f"chain/{step}/{kind}/{name}", sdk[kind], peer, workload, per=10000, aim=1.0,
                          note="10-element add through the SDK, chain of 10,000")
    for step, workload in chain.items():
        yield Row(f"engine/{step}/libtorch", Side("engine_side", cpu="client"), torch, workload, per=10000, aim=1.0,
                  note="the same without a wire")
    for kind in ("tcp", "unix"):
        capnp, raw = Side("capnp_side", (kind, *pinned)), Side("socket_side", (kind, *pinned))
        yield Row(f"call/{kind}/capnp", sdk[kind], capnp, "call", unit="us", per=1e3,
                  note="p50: one number fetched, against an empty call of stock Cap'n Proto")
        yield Row(f"call/{kind}/socket", sdk[kind], raw, "call", unit="us", per=1e3, aim=0,
                  note="p50: against epoll ping-pong on the raw socket (a limit)")
    yield Row("call/op/capnp", sdk["tcp"], Side("capnp_side", ("tcp", *pinned)), "call_op|call", unit="us", per=1e3,
              note="p50: one add and its result")
    for way in ("upload", "download"):
        for kind, mib in (("tcp", 64), ("tcp", 256), ("unix", 64)):
            yield Row(f"{way}/{mib}/{kind}", sdk[kind], Side("socket_side", (kind, *pinned)), f"{way} {mib}",
                      unit="ms", per=1e6, note=f"{mib} MiB against the raw socket")
    for way, where in (("near", "one machine"), ("far", "loopback, over TCP")):
        for ranks in (2, 4):
            for size, bytes_, aim in (("4KiB", 4 << 10, 0), ("1MiB", 1 << 20, 0.8), ("64MiB", 64 << 20, 0.8)):
                yield Row(f"all_reduce/{way}/{ranks}/{size}", Side("gloo_side", (way,)), Side("gloo_side", ("gloo",)),
                          f"all_reduce {ranks} {bytes_}", unit="us" if bytes_ < 1 << 20 else "ms",
                          per=1e3 if bytes_ < 1 << 20 else 1e6, aim=aim,
                          note=f"{ranks} ranks on {where}: data planes with their helpers against Gloo alone")
    for ranks in (2, 4):
        for size, bytes_, times in (("4KiB", 4 << 10, 8), ("1MiB", 1 << 20, 8), ("64MiB", 64 << 20, 1)):
            yield Row(f"ddp/all_reduce/{ranks}/{size}", Side("group_side", (str(ranks),)), Side("gloo_side", ("gloo",)),
                      f"all_reduce {ranks} {bytes_} {times}", unit="ms", per=1e6 * times,
                      aim=0.8 if bytes_ >= 1 << 20 else 0,
                      note=f"sessions of {ranks} servers through the SDK against Gloo alone"
                      + f", {times} in a row" * (times > 1))
    for name, how, aim, where in (("ddp/step", "apart", 1.0, "both on one core, a core to move bytes"),
                                  ("ddp/step/full", "", 0.95, "both cores full of computing")):
        args = ("2", how) if how else ("2",)
        yield Row(name, Side("group_side", args), Side("group_side", ("2", how or "-", "alone")), "ddp|compute", unit="ms",
                  per=2e6, aim=aim, settle=0.01, note=f"2 servers, {where}, 11 MB of gradients: a data-parallel step "
                  "against a step without exchange and half of an all_reduce")
    for threads in (1, 2):
        ours, cpu = Side("engine_side", threads=threads, cpu="client" if threads == 1 else ""), "client"
        for op in ("add", "exp", "broadcast"):
            for kept in (False, True):
                peer = Side("torch_side.py", threads=threads, kept=kept, cpu=cpu if threads == 1 else "")
                what = "(4096,1)+(1,4096)" if op == "broadcast" else "1e7 float32"
                yield Row(f"{op}/{threads}T/{'kept' if kept else 'stock'}", ours, peer, op, unit="ms", per=1e6,
                          aim=1.0 if kept else 2.0, settle=0.002 if threads == 1 else 0.04, note=f"{what}, new output")
        peer = Side("torch_side.py", threads=threads, kept=True, cpu=cpu if threads == 1 else "")
        yield Row(f"matmul/{threads}T/kept", ours, peer, "matmul 1024", unit="ms", per=1e6,
                  settle=0.002 if threads == 1 else 0.04, note="1024 x 1024 float32")
        for name, workload, note in OPERATORS + LAYERS:
            yield Row(f"{name}/{threads}T/kept", ours, peer, workload, unit="ms", per=1e6,
                      settle=0.002 if threads == 1 else 0.04, note=note)


MODELS = (
    ("mlp", "784-512-512-10, batch 128: forward, backward, SGD"),
    ("mlp_double", "the same with the norm of the gradients as loss"),
    ("resnet", "ResNet-18, 2 images of 224 x 224: forward, backward, SGD"),
    ("resnet_penalty", "the same with the norm of the gradients as loss"),
)


def model_rows():
    for threads in (1, 2):
        cpu = "client" if threads == 1 else ""
        for name, note in MODELS:
            yield Row(f"model/{name}/{threads}T/kept", Side("model_side", threads=threads, cpu=cpu),
                      Side("torch_models.py", threads=threads, kept=True, cpu=cpu), name, unit="ms", per=1e6,
                      settle=0.002 if threads == 1 else 0.04, note=note)
    yield Row("wire/train_digits", Side("model_side", ("{free}",), threads=2), Side("model_side", threads=2), "digits",
              unit="ms", per=1e7, aim=0.909, settle=0.04,
              note="a step of train_digits, batch 128, the loss every tenth, against the same in process")


class Place:
    """Where sides run: the programs, the CPUs, and a server that is started when somebody needs it."""

    def __init__(self, folder):
        self.folder = pathlib.Path(folder)
        cpus = sorted(os.sched_getaffinity(0))
        self.server_cpu, self.client_cpu = (cpus[0], cpus[1]) if len(cpus) > 1 else (None, None)
        self.scratch = tempfile.TemporaryDirectory(prefix="gradwire-bench-")
        self.addresses = {}
        self.children = []

    def start(self, command, env, cpu, **pipes):
        def settle_in():
            if cpu is not None:
                os.sched_setaffinity(0, {cpu})

        child = subprocess.Popen(command, env={**os.environ, **env}, preexec_fn=settle_in, start_new_session=True,
                                 stdin=pipes.get("stdin", subprocess.DEVNULL), stdout=subprocess.PIPE, text=True)
        self.children.append(child)
        return child

    def program(self, name):
        path = self.folder / name
        if not path.exists():
            raise Absent(f"{name} is not built" + (": libtorch-dev is not installed" if name == "torch_side" else ""))
        return str(path)

    def server(self, pinned=True):
        """The addresses of a gradwired, on its own CPU or on all of them."""
        if pinned not in self.addresses:
            path = f"{self.scratch.name}/rpc{int(pinned)}.sock"
            command = [self.program("gradwired"), "--rpc", "127.0.0.1:0", "--http", "off", "--probe", "off", "--unix", path,
                       "--log-level", "warning", "--session-memory", str(4 << 30)]
            child = self.start(command, {}, self.server_cpu if pinned else None)
            self.addresses[pinned] = {"tcp": json.loads(answer_of(child, "gradwired"))["rpc"], "unix": "unix:" + path}
        return self.addresses[pinned]

    def side(self, side):
        words = {"server_cpu": "-" if self.server_cpu is None else self.server_cpu,
                 "client_cpu": "-" if self.client_cpu is None else self.client_cpu}
        if side.program.endswith(".py"):
            command = [PYTHON, "-B", str(HERE / side.program)]
            if subprocess.run([PYTHON, "-c", "import importlib.util as u, sys; sys.exit(not u.find_spec('torch'))"],
                              capture_output=True).returncode:
                raise Absent("python3-torch is not installed")
        else:
            command = [self.program(side.program)]
        if any(a in ("{tcp}", "{unix}") for a in side.args):
            words |= self.server()
        if "{free}" in side.args:
            words["free"] = self.server(pinned=False)["tcp"]
        env = {"OMP_NUM_THREADS": str(side.threads), "OPENBLAS_NUM_THREADS": str(side.threads)}
        if side.program in ("engine_side", "model_side", "group_side"):
            env |= {"OMP_WAIT_POLICY": "PASSIVE", "GOMP_SPINCOUNT": "50000"}  # as gradwired has it
        if side.kept:
            env |= KEPT
        child = self.start(command + [a.format(**words) for a in side.args], env,
                           self.client_cpu if side.cpu == "client" else None, stdin=subprocess.PIPE)
        if answer_of(child, side.program) != "ready":
            raise RuntimeError(f"{side.program} did not start")
        return child

    def end(self):
        for child in reversed(self.children):
            if child.stdin:
                child.stdin.close()
            else:
                child.terminate()
            try:
                child.wait(5)
            except subprocess.TimeoutExpired:
                os.killpg(child.pid, signal.SIGKILL)
                child.wait()
        self.scratch.cleanup()


def answer_of(child, name):
    if not select.select([child.stdout], [], [], ANSWER_SECONDS)[0]:
        raise RuntimeError(f"{name} does not answer")
    line = child.stdout.readline().strip()
    if not line or line.startswith("error"):
        raise RuntimeError(f"{name}: {line or 'ended'}")
    return line


class Runner:
    """One side at work on one workload."""

    def __init__(self, child, name, workload):
        self.child, self.name, self.rounds = child, name, 1
        self.check = float(self.ask("use " + workload).split()[1])

    def ask(self, order):
        self.child.stdin.write(order + "\n")
        self.child.stdin.flush()
        return answer_of(self.child, self.name)

    def block(self):
        """Seconds of a block, and nanoseconds of one round."""
        seconds, ns = self.ask(f"run {self.rounds}").split()
        return float(seconds), float(ns)

    def settle(self, seconds):
        """Warms up and finds how many rounds make a block."""
        for _ in range(8):
            took, _ = self.block()
            wanted = max(1, round(self.rounds * seconds / max(took, 1e-7)))
            if wanted <= self.rounds * 1.2:
                break
            self.rounds = min(wanted, self.rounds * 100)
        self.rounds = wanted
        self.block()


def busy():
    """CPU seconds of all processes, and those that the host took away."""
    fields = [int(f) for f in pathlib.Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:]]
    tick = os.sysconf("SC_CLK_TCK")
    return (fields[0] + fields[1] + fields[2] + fields[5] + fields[6]) / tick, fields[7] / tick


def own_busy(children):
    """CPU seconds of the sessions that these processes lead, and of this process."""
    leaders, tick, total = {c.pid for c in children}, os.sysconf("SC_CLK_TCK"), 0
    for entry in pathlib.Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
                if int(fields[3]) in leaders or int(entry.name) == os.getpid():
                    total += (int(fields[11]) + int(fields[12])) / tick
    return total


def agree(a, b):
    return math.isnan(a) or math.isnan(b) or abs(a - b) <= 1e-3 * max(1, abs(a), abs(b))


def compare(place, sides, row, pairs, seconds, tick):
    """The row's result as the JSON file has it."""
    runners = []
    for ours in (True, False):
        side = row.ours if ours else row.peer
        if side not in sides:
            sides[side] = place.side(side)
        runners.append(Runner(sides[side], side.program, row.workload_of(ours)))
        runners[-1].settle(seconds)
    ours, peer = runners
    if not agree(ours.check, peer.check):
        raise RuntimeError(f"{row.name}: ours computes {ours.check}, the peer {peer.check}")
    began, (all_before, steal_before), own_before = time.time(), busy(), own_busy(place.children)
    times = {ours: [], peer: []}
    for pair in range(pairs):
        for runner in (ours, peer) if pair % 2 == 0 else (peer, ours):
            time.sleep(row.settle)
            times[runner].append(runner.block()[1] / row.per)
        tick(row.name)
    took, (all_after, steal_after), own_after = time.time() - began, busy(), own_busy(place.children)
    ratios = sorted(b / a for a, b in zip(times[ours], times[peer]))
    foreign = max(0.0, all_after - all_before - (own_after - own_before)) / took
    quarter = len(ratios) // 4
    ratio = statistics.median(ratios)
    return {"name": row.name, "note": row.note, "unit": row.unit, "ours": statistics.median(times[ours]),
            "peer": statistics.median(times[peer]), "ratio": ratio, "ratio_low": ratios[quarter],
            "ratio_high": ratios[-1 - quarter], "aim": row.aim or None, "met": ratio >= row.aim if row.aim else None,
            "pairs": len(ratios), "foreign_cpu": foreign, "steal": (steal_after - steal_before) / took}


def machine():
    model = [line.split(":")[1].strip() for line in open("/proc/cpuinfo") if line.startswith("model name")]
    commit = subprocess.run(["git", "-C", str(HERE), "rev-parse", "--short", "HEAD"], capture_output=True, text=True)
    return {"cpu": model[0] if model else platform.machine(), "cpus": os.cpu_count(), "kernel": platform.release(),
            "date": datetime.datetime.now().isoformat(timespec="seconds"), "commit": commit.stdout.strip()}


HEAD = f"{'row':32} {'ours':>9} {'peer':>9}      {'ratio':>6} {'quartiles':>14} {'aim':>5}"


def line_of(r):
    quartiles = f"{r['ratio_low']:.2f}..{r['ratio_high']:.2f}"
    verdict = "" if r["met"] is None else "ok" if r["met"] else "below"
    noise = f"  {100 * r['foreign_cpu']:.0f} % foreign CPU" if r["foreign_cpu"] > 0.08 else ""
    aim = f"{r['aim']:g}" if r["aim"] else "-"
    return (f"{r['name']:32} {r['ours']:9.4g} {r['peer']:9.4g} {r['unit']:3}  {r['ratio']:6.2f} {quartiles:>14} {aim:>5} "
            f"{verdict}{noise}")


def smoke_row():
    return Row("call/tcp/socket", Side("sdk_side", ("{tcp}",)), Side("socket_side", ("tcp", "-", "-")), "call", unit="us",
               per=1e3, aim=0)


class Progress:
    """A bar for people; nothing for files."""

    def __init__(self, steps):
        self.steps, self.done, self.shown = steps, 0, sys.stderr.isatty()

    def tick(self, name):
        self.done += 1
        if self.shown:
            full = 30 * self.done // self.steps
            sys.stderr.write(f"\r[{'#' * full}{'.' * (30 - full)}] {100 * self.done // self.steps:3} % {name:32}")
            sys.stderr.flush()

    def clear(self):
        if self.shown:
            sys.stderr.write("\r" + " " * 76 + "\r")
            sys.stderr.flush()


def measure(place, wanted, pairs, seconds):
    """Yields the result of each row, or the text of why there is none."""
    sides, progress = {}, Progress(pairs * len(wanted))
    for number, row in enumerate(wanted):
        try:
            yield row, compare(place, sides, row, pairs, seconds, progress.tick)
        except (Absent, RuntimeError, OSError) as e:
            progress.steps -= pairs
            yield row, e
        finally:
            progress.clear()
        later = {s for r in wanted[number + 1:] for s in (r.ours, r.peer)}
        for side in [s for s in sides if s not in later]:
            with contextlib.suppress(OSError):
                sides[side].stdin.close()  # it ends
            del sides[side]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--bin", required=True)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--smoke", action="store_true")
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--json", default="build/bench.json")
    parser.add_argument("names", nargs="*")
    o = parser.parse_args()
    wanted = [r for r in (*rows(), *model_rows()) if not o.names or any(r.name.startswith(n) for n in o.names)]
    if not wanted:
        sys.exit("no row begins with " + " or ".join(o.names) + "; --list shows all")
    if o.list:
        width = max(len(r.name) for r in wanted)
        print("\n".join(f"{r.name:{width}}  {r.note}" for r in wanted))
        return 0
    pairs, seconds = (5, 0.01) if o.quick else (21, 0.04)
    if o.smoke:
        wanted, pairs, seconds = [smoke_row()], 2, 0.001
    elif not o.quick:
        with contextlib.suppress(OSError):
            os.nice(-20)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that the children end too
    place, results, failed, skipped = Place(o.bin), [], 0, []
    print(HEAD, flush=True)
    try:
        for row, result in measure(place, wanted, pairs, seconds):
            if isinstance(result, Absent):
                skipped.append(row.name)
                print(f"{row.name:32} left out: {result}", flush=True)
            elif isinstance(result, Exception):
                failed += 1
                print(f"{row.name:32} FAILED: {result}", flush=True)
            else:
                results.append(result)
                print(line_of(result), flush=True)
    finally:
        place.end()
    if not o.smoke:
        path = pathlib.Path(o.json)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps({"machine": machine(), "quick": o.quick, "block_seconds": seconds, "rows": results,
                                    "left_out": skipped}, indent=1) + "\n")
        below = sum(r["met"] is False for r in results)
        print(f"{len(results)} rows, {below} below their aim, {len(skipped)} left out, {failed} failed; also in {path}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
