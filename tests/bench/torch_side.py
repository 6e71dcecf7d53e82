#!/usr/bin/python3
"""PyTorch in this process, by the orders that side.h describes."""
import os
import sys
import time

import torch

CHAIN, SMALL, MANY = 10000, 10, 10_000_000
torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))


def make(*shape, salt):
    n = 1
    for d in shape:
        n *= d
    return (((torch.arange(n) * 7 + salt * 13) % 32).float() * 0.0625 - 1).reshape(shape)


def chain(record, backward):
    x, b = make(SMALL, salt=1).requires_grad_(record), make(SMALL, salt=2)

    def forward():
        with torch.set_grad_enabled(record):
            y = x
            for _ in range(CHAIN):
                y = y + b
            return y

    def both():
        with torch.enable_grad():
            return torch.autograd.grad(forward().sum(), x)[0]

    return both if backward else forward


def binary(f, a, b):
    return lambda: f(a, b)


def exp():
    a = make(MANY, salt=1)
    return lambda: torch.exp(a)


def of_table(f):
    a = make(10_000, 1_000, salt=1)
    return lambda: f(a)


def softmax():
    a = make(1024, 1000, salt=1)
    return lambda: torch.softmax(a, -1)


def index_rows():
    a, at = make(100_000, 64, salt=1), torch.arange(100_000) * 7919 % 100_000
    return lambda: a[at]


def index_mask():
    a = make(MANY, salt=1)
    mask = a > 0
    return lambda: a[mask]


def einsum(equation, *shapes):
    operands = [make(*s, salt=k + 1) for k, s in enumerate(shapes)]
    return lambda: torch.einsum(equation, *operands)


def layer(leaves, way, f):
    """f of leaves, or the gradients of all of them."""
    if way != "backward":
        return f
    for t in leaves:
        t.requires_grad_()
    seed = make(*f().shape, salt=5)

    def back():
        with torch.enable_grad():
            return torch.autograd.grad(f(), leaves, seed)

    return back


def conv2d(way, *sizes):
    n, channels, results, kernel, stride, padding, size = map(int, sizes)
    x, w = make(n, channels, size, size, salt=1), make(results, channels, kernel, kernel, salt=2)
    return layer((x, w), way, lambda: torch.nn.functional.conv2d(x, w, None, stride, padding))


def batch_norm(way, mode):
    x, w, b, mean = make(16, 64, 112, 112, salt=1), make(64, salt=2), make(64, salt=3), make(64, salt=4)
    var = make(64, salt=5).abs() + 1
    return layer((x, w, b), way, lambda: torch.nn.functional.batch_norm(x, mean, var, w, b, mode == "train"))


def max_pool2d(way):
    x = make(16, 64, 112, 112, salt=1)
    return layer((x,), way, lambda: torch.nn.functional.max_pool2d(x, 3, 2, 1))


def total(result):
    return sum(t.sum().item() for t in (result if isinstance(result, tuple) else (result,)))


class Optimise:
    """Steps over the parameters of a ResNet-18: 11.7 million in 62 tensors."""

    def __init__(self, name):
        sizes, before = [9408, 64, 64], 64
        for to in (64, 128, 256, 512):
            for _ in range(2):
                sizes += [before * to * 9, to, to, to * to * 9, to, to]
                sizes += [before * to, to, to] if before != to else []
                before = to
        sizes += [512_000, 1000]
        self.params = [make(n, salt=k) for k, n in enumerate(sizes)]
        for k, p in enumerate(self.params):
            p.grad = make(p.numel(), salt=k + 1)
        self.step = torch.optim.Adam(self.params, lr=1e-6).step if name == "Adam" else torch.optim.SGD(self.params, lr=1e-6, momentum=0.9).step

    def __call__(self):
        self.step()
        return self

    def sum(self):
        return sum(p.sum().double() for p in self.params)


WORKLOADS = {
    "conv2d": conv2d,
    "batch_norm": batch_norm,
    "max_pool2d": max_pool2d,
    "chain": lambda: chain(False, False),
    "chain_recorded": lambda: chain(True, False),
    "chain_backward": lambda: chain(True, True),
    "add": lambda: binary(torch.add, make(MANY, salt=1), make(MANY, salt=2)),
    "exp": exp,
    "broadcast": lambda: binary(torch.add, make(4096, 1, salt=1), make(1, 4096, salt=2)),
    "matmul": lambda n: binary(torch.matmul, make(int(n), int(n), salt=1), make(int(n), int(n), salt=2)),
    "sum": lambda dim: of_table(torch.sum if dim == "all" else lambda a: torch.sum(a, int(dim))),
    "softmax": softmax,
    "cumsum": lambda: of_table(lambda a: torch.cumsum(a, -1)),
    "index_rows": index_rows,
    "index_mask": index_mask,
    "optim": Optimise,
    "einsum_batch": lambda: einsum("bij,bjk->bik", (64, 128, 128), (64, 128, 128)),
    "einsum_chain": lambda: einsum("bn,anm,bm->ba", (512, 64), (64, 64, 64), (512, 64)),
}


def main(workloads):
    work = None
    print("ready", flush=True)
    for line in sys.stdin:
        order, *words = line.split()
        try:
            if order == "use":
                work = None  # before the next takes its memory
                work = workloads[words[0]](*words[1:])
                print(f"ok {total(work()):.9g}", flush=True)
            else:
                rounds = int(words[0])
                begin = time.perf_counter()
                for _ in range(rounds):
                    work()
                seconds = time.perf_counter() - begin
                print(f"{seconds:.9f} {seconds / rounds * 1e9:.3f}", flush=True)
        except Exception as e:  # said to whoever gave the order
            print("error", repr(e).replace("\n", " "), flush=True)


torch.set_grad_enabled(False)
if __name__ == "__main__":
    main(WORKLOADS)
