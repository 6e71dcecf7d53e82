#!/usr/bin/env python3
"""ResNet-18 and its gradient penalty: loss, 2-norm of the parameter gradients, and the gradient of that norm, against the
values in resnet18.json (64x64) and resnet18_224.json.

usage: resnet18.py --server PATH_TO_gradwired [FILE.json...]           as one HTTP program, in float64
       resnet18.py --example PATH_TO_gradient_penalty [FILE.json...]   by the SDK, in float64 and float32
Exit 0 only when all values agree: in float64 to 1e-6 relative, in float32 to twice what PyTorch's own float32 run is off.
The parameters are made on the server by the formula in README.md."""
import argparse
import json
import math
import pathlib
import subprocess
import sys
import tempfile
import urllib.request

HERE = pathlib.Path(__file__).parent


class Program:
    def __init__(self):
        self.ops, self.made = [], 0

    def __call__(self, op, *args, out=None, **attrs):
        if out is None:
            self.made += 1
            out = f"t{self.made}"
        self.ops.append({"op": op, "in": list(args), "attrs": attrs, "out": out})
        return out

    def wave(self, name, shape, scale, phase, frequency=0.7, offset=0.0):
        """offset + scale * sin(frequency * i + phase), as a leaf that wants a gradient."""
        p = self
        i = p("arange", end=math.prod(shape), dtype="float64")
        x = p("reshape", p("mul", p("sin", p("add", p("mul", i, frequency), phase)), scale), shape=shape)
        p("detach", p("add", x, offset), out=name)
        p("requires_grad_", name, out=name)


def scale_of(name, shape):
    """(scale, offset) of a parameter's values."""
    if len(shape) > 1:
        return math.sqrt(2 / math.prod(shape[1:])), 0.0
    return (0.1, 1.0) if name.endswith("weight") else (0.05, 0.0)


def program(want):
    p = Program()
    parameters = {q["name"]: q["shape"] for q in want["parameters"]}
    for number, (name, shape) in enumerate(parameters.items()):
        scale, offset = scale_of(name, shape)
        p.wave(name, shape, scale, 1.3 * number, offset=offset)
    image = want["input"]
    i = p("arange", end=math.prod(image["shape"]), dtype="float64")
    x = p("reshape", p("sin", p("mul", i, image["phase"])), shape=image["shape"])

    def conv(x, name, stride, padding):
        return p("conv2d", x, name + ".weight", stride=stride, padding=padding)

    def norm(x, name):
        return p("batch_norm", x, None, None, name + ".weight", name + ".bias", training=True)

    x = p("relu", norm(conv(x, "conv1", 2, 3), "bn1"))
    x = p("max_pool2d", x, kernel_size=3, stride=2, padding=1)
    for layer in range(1, 5):
        for block in range(2):
            at, stride = f"layer{layer}.{block}", 2 if layer > 1 and block == 0 else 1
            y = p("relu", norm(conv(x, at + ".conv1", stride, 1), at + ".bn1"))
            y = norm(conv(y, at + ".conv2", 1, 1), at + ".bn2")
            if at + ".downsample.0.weight" in parameters:
                x = norm(conv(x, at + ".downsample.0", stride, 0), at + ".downsample.1")
            x = p("relu", p("add", y, x))
    x = p("flatten", p("adaptive_avg_pool2d", x, output_size=1), start_dim=1)
    p("linear", x, "fc.weight", "fc.bias", out="output")
    target = p("zeros", size=[image["shape"][0]], dtype="int64")
    p("nll_loss", p("log_softmax", "output", dim=1), target, out="loss")
    grads = [f"g.{name}" for name in parameters]
    p.ops.append({"op": "grad", "attrs": {"outputs": {"tensors": ["loss"]}, "inputs": {"tensors": list(parameters)},
                                          "create_graph": True}, "out": grads})
    p("sqrt", p("sum", p("stack", [p("sum", p("mul", g, g)) for g in grads])), out="grad_norm")
    p.ops.append({"op": "backward", "in": ["grad_norm"]})
    fetch = ["loss", "grad_norm", "output"]
    for kind, suffix in (("grad", ""), ("penalty_grad", ".grad")):
        for name in parameters:
            g = name + suffix if suffix else "g." + name
            fetch += [p("sum", g, out=f"{kind}_sum/{name}".replace("/", ":")),
                      p("sum", p("abs", g), out=f"{kind}_abs_sum/{name}".replace("/", ":"))]
    for step in p.ops:
        if step["op"] in ("sum", "abs") and step["out"] in fetch:
            step["grad_mode"] = False
    return {"ops": p.ops, "fetch": fetch}


def flat(data):
    return [y for x in data for y in flat(x)] if isinstance(data, list) else [data]


FLOAT64 = {"loss": 1e-6, "norm": 1e-6, "sums": 1e-6}
FLOAT32 = {64: {"loss": 1e-5, "norm": 2 * 0.003, "sums": 2 * 0.037},
           224: {"loss": 1e-5, "norm": 2 * 0.0001, "sums": 2 * 0.0028}}


def differences(want, got, tolerance):
    """Lines that say what differs; sums that cancel are compared with the sum of the absolute values."""
    def check(what, have, should, size, relative):
        if not abs(have - should) <= relative * abs(size):
            yield f"{what} is {have!r}, should be {should!r}"

    yield from check("loss", got["loss"], want["loss"], want["loss"], tolerance["loss"])
    yield from check("grad_norm", got["grad_norm"], want["grad_norm"], want["grad_norm"], tolerance["norm"])
    for have, should in zip(flat(got["output"]), flat(want["output"]), strict=True):
        yield from check("output", have, should, 1, tolerance["loss"])
    for q in want["parameters"]:
        for kind in ("grad", "penalty_grad"):
            for sum_ in ("sum", "abs_sum"):
                key = f"{kind}_{sum_}"
                yield from check(f"{key} of {q['name']}", got[f"{key}:{q['name']}"], q[key], q[f"{kind}_abs_sum"],
                                 tolerance["sums"])


def report(what, want, got, tolerance):
    found = list(differences(want, got, tolerance))
    print(f"{what}: {len(want['parameters'])} parameters, {len(found)} differences")
    for line in found[:10]:
        print("  " + line)
    return len(found)


def by_example(example, file, want):
    failures, size = 0, want["input"]["shape"][-1]
    for dtype, tolerance in (("float64", FLOAT64), ("float32", FLOAT32[size])):
        with tempfile.TemporaryDirectory() as folder:
            values = pathlib.Path(folder) / "values"
            print(subprocess.run([example, "--size", str(size), "--dtype", dtype, "--values", str(values)], check=True,
                                 stdout=subprocess.PIPE, text=True).stdout, end="")
            lines = [line.split() for line in values.read_text().splitlines()]
        got = {"output": []}
        for name, number in lines:
            if name == "output":
                got["output"].append(float(number))
            else:
                got[name] = float(number)
        failures += report(f"{file.name} in {dtype}", want, got, tolerance)
    return failures


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--server")
    parser.add_argument("--example")
    parser.add_argument("files", nargs="*", type=pathlib.Path, default=[HERE / "resnet18.json"])
    args = parser.parse_args()
    if args.example:
        sys.exit(sum(by_example(args.example, file, json.loads(file.read_text())) for file in args.files) > 0)
    server = subprocess.Popen([args.server, "--rpc", "off", "--http", "127.0.0.1:0", "--probe", "off", "--session-memory", "4G"],
                              stdout=subprocess.PIPE, text=True)
    failures = 0
    try:
        base = "http://" + json.loads(server.stdout.readline())["http"]

        def call(method, path, body=None):
            request = urllib.request.Request(base + path, json.dumps(body).encode() if body is not None else None,
                                             {"Content-Type": "application/json"}, method=method)
            with urllib.request.urlopen(request, timeout=600) as answer:
                return json.loads(answer.read() or "null")

        for file in args.files:
            want = json.loads(file.read_text())
            session = call("POST", "/v1/sessions", {"dtype": "float64"})["id"]
            got = call("POST", f"/v1/sessions/{session}/run", program(want))["tensors"]
            call("DELETE", f"/v1/sessions/{session}")
            failures += report(file.name, want, {name: tensor["data"] for name, tensor in got.items()}, FLOAT64)
    finally:
        server.terminate()
        server.wait()
    sys.exit(failures > 0)


if __name__ == "__main__":
    main()
