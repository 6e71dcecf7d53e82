#!/usr/bin/env python3
"""ResNet-18 and its gradient penalty as one HTTP program: loss, 2-norm of the parameter gradients, and the gradient of
that norm, against the values in resnet18.json (64x64) and resnet18_224.json, in float64 to 1e-6 relative.

usage: resnet18.py --server PATH_TO_gradwired [FILE.json...]
Exit 0 only when all values agree. The parameters are made on the server by the formula in README.md."""
import argparse
import json
import math
import pathlib
import subprocess
import sys
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


def differences(want, got):
    """Lines that say what differs; sums that cancel are compared with the sum of the absolute values."""
    def check(what, have, should, size):
        if not abs(have - should) <= 1e-6 * abs(size):
            yield f"{what} is {have!r}, should be {should!r}"

    yield from check("loss", got["loss"]["data"], want["loss"], want["loss"])
    yield from check("grad_norm", got["grad_norm"]["data"], want["grad_norm"], want["grad_norm"])
    for have, should in zip(flat(got["output"]["data"]), flat(want["output"]), strict=True):
        yield from check("output", have, should, 1)
    for q in want["parameters"]:
        for kind in ("grad", "penalty_grad"):
            for sum_ in ("sum", "abs_sum"):
                key = f"{kind}_{sum_}"
                yield from check(f"{key} of {q['name']}", got[f"{key}:{q['name']}"]["data"], q[key],
                                 q[f"{kind}_abs_sum"])


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--server", required=True)
    parser.add_argument("files", nargs="*", default=[HERE / "resnet18.json"])
    args = parser.parse_args()
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
            want = json.loads(pathlib.Path(file).read_text())
            session = call("POST", "/v1/sessions", {"dtype": "float64"})["id"]
            got = call("POST", f"/v1/sessions/{session}/run", program(want))["tensors"]
            call("DELETE", f"/v1/sessions/{session}")
            found = list(differences(want, got))
            failures += len(found)
            print(f"{pathlib.Path(file).name}: {len(want['parameters'])} parameters, {len(found)} differences")
            for line in found[:10]:
                print("  " + line)
    finally:
        server.terminate()
        server.wait()
    sys.exit(failures > 0)


if __name__ == "__main__":
    main()
