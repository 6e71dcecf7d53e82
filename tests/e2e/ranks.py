#!/usr/bin/env python3
"""The examples for several servers, each started with a server of its own by `gradwire launch`.

usage: ranks.py --bin FOLDER hello N    the greeting, point to point, and the sum of the ranks, on N servers
       ranks.py --bin FOLDER digits     train_digits_ddp on 2 and 4 servers against one server with the whole batch"""
import argparse
import array
import contextlib
import json
import pathlib
import re
import subprocess
import sys
import tempfile


@contextlib.contextmanager
def servers(folder, count):
    """Addresses for clients, and the port where rank 0's server hears its peers."""
    running = [subprocess.Popen([folder / "gradwired", "--rpc", "127.0.0.1:0", "--http", "off", "--probe", "off",
                                 "--peer", "127.0.0.1:0", "--threads", "1", "--log-level", "warning"],
                                stdout=subprocess.PIPE, text=True) for _ in range(count)]
    try:
        ready = [json.loads(server.stdout.readline()) for server in running]
        yield [r["rpc"] for r in ready], ready[0]["peer"].rpartition(":")[2]
    finally:
        for server in running:
            server.terminate()
        status = [server.wait() for server in running]
        if any(status):
            sys.exit(f"servers ended with {status}")


def launch(folder, count, program, *args):
    with servers(folder, count) as (addresses, port):
        done = subprocess.run([folder / "gradwire", "launch", "--servers", ",".join(addresses), "--master-addr",
                               "127.0.0.1", "--master-port", port, folder / program, *args],
                              stdout=subprocess.PIPE, text=True)
    print(done.stdout, end="")
    if done.returncode:
        sys.exit(f"{program} on {count} servers ended with {done.returncode}")
    return done.stdout


def hello(folder, count):
    said = launch(folder, count, "hello_ranks")
    lines = {f"[{r}] Hello from process {r} (out of {count})" for r in range(count)}
    lines |= {f"[{r}] the ranks' sum is {count * (count - 1) // 2}" for r in range(count)}
    lines.add("[1] received tensor([0, 1, 2, 3, 4, 5, 6, 7, 8, 9])")
    missing = lines - set(said.splitlines())
    if missing:
        sys.exit("nobody said " + ", ".join(map(repr, sorted(missing))))


def weights(file):
    """All float64 values of a safetensors file, in the order of their names."""
    raw = file.read_bytes()
    size = int.from_bytes(raw[:8], "little")
    head = json.loads(raw[8:8 + size])
    head.pop("__metadata__", None)
    values = array.array("d")
    for name in sorted(head):
        begin, end = head[name]["data_offsets"]
        assert head[name]["dtype"] == "F64", name
        values.frombytes(raw[8 + size + begin:8 + size + end])
    return values


def digits(folder):
    with tempfile.TemporaryDirectory() as scratch:
        results = {}
        for count in (1, 2, 4):
            file = pathlib.Path(scratch) / f"{count}.safetensors"
            said = launch(folder, count, "train_digits_ddp", "--weights", file)
            results[count] = weights(file), [float(x) for x in re.findall(r"loss ([0-9.]+)", said)]
        (whole, losses), worst = results.pop(1), 0.0
        assert len(whole) > 1000 and losses[-1] < losses[0] / 2, "it does not learn"
        for count, (values, its_losses) in results.items():
            assert len(values) == len(whole) and its_losses == losses, f"{count}: losses {its_losses}, not {losses}"
            off = max(abs(a - b) / max(1, abs(b)) for a, b in zip(values, whole))
            print(f"{count} servers: weights differ by {off:.2g} from those of one")
            worst = max(worst, off)
    if not worst <= 1e-9:
        sys.exit("more than 1e-9")


parser = argparse.ArgumentParser()
parser.add_argument("--bin", required=True, type=pathlib.Path)
parser.add_argument("what", choices=["hello", "digits"])
parser.add_argument("count", nargs="?", type=int, default=4)
options = parser.parse_args()
if options.what == "hello":
    hello(options.bin, options.count)
else:
    digits(options.bin)
