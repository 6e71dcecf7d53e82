#!/usr/bin/python3
"""Prints optim_values.h: where ten steps of PyTorch's optimisers lead, in float64."""
import torch

# float64 also for what torch keeps as numbers beside the parameters
torch.set_default_dtype(torch.float64)

CASES = [
    ("SGD", dict(lr=0.1)),
    ("SGD", dict(lr=0.05, momentum=0.9)),
    ("SGD", dict(lr=0.05, momentum=0.8, dampening=0.5, weight_decay=0.1)),
    ("SGD", dict(lr=0.02, momentum=0.9, weight_decay=0.01, nesterov=True)),
    ("SGD", dict(lr=0.01, momentum=0.5, maximize=True)),
    ("Adam", dict(lr=0.1)),
    ("Adam", dict(lr=0.05, betas=(0.5, 0.9), eps=1e-3, weight_decay=0.1)),
    ("Adam", dict(lr=0.2, betas=(0.8, 0.9), amsgrad=True)),
    ("Adam", dict(lr=0.01, maximize=True)),
    ("AdamW", dict(lr=0.1)),
    ("AdamW", dict(lr=0.05, betas=(0.7, 0.99), eps=1e-6, weight_decay=0.2, amsgrad=True)),
    ("Adamax", dict(lr=0.1)),
    ("Adamax", dict(lr=0.05, betas=(0.5, 0.9), weight_decay=0.1)),
    ("RAdam", dict(lr=0.1)),
    ("RAdam", dict(lr=0.05, betas=(0.8, 0.9), weight_decay=0.1)),
    ("RMSprop", dict(lr=0.01)),
    ("RMSprop", dict(lr=0.02, alpha=0.9, eps=1e-4, weight_decay=0.1, momentum=0.9)),
    ("RMSprop", dict(lr=0.02, alpha=0.8, momentum=0.5, centered=True)),
    ("RMSprop", dict(lr=0.02, centered=True, maximize=True)),
    ("Adagrad", dict(lr=0.1)),
    ("Adagrad", dict(lr=0.1, lr_decay=0.1, weight_decay=0.1, initial_accumulator_value=0.5, eps=1e-5)),
    ("Adadelta", dict(lr=1.0)),
    ("Adadelta", dict(lr=0.5, rho=0.8, eps=1e-3, weight_decay=0.1)),
    ("Rprop", dict(lr=0.1)),
    ("Rprop", dict(lr=0.4, etas=(0.4, 1.5), step_sizes=(1e-2, 0.6))),
    ("ASGD", dict(lr=0.05)),
    ("ASGD", dict(lr=0.1, lambd=0.1, alpha=0.5, t0=3, weight_decay=0.1)),
]


def ten_steps(name, options):
    a = torch.tensor([1.0, -2.0, 0.5], requires_grad=True)
    b = torch.tensor([[0.3, -0.7], [1.5, 2.0]], requires_grad=True)
    optimizer = getattr(torch.optim, name)([a, b], **options)
    for _ in range(10):
        optimizer.zero_grad()
        ((a * a).sum() + (b * b).mul(torch.tensor([[1.0, 0.5], [0.25, 2.0]])).sum() + (a[0] * b).sum()).backward()
        optimizer.step()
    return torch.cat([a.detach(), b.detach().flatten()]).tolist()


def cpp(v):
    if isinstance(v, bool):
        return "true" if v else "false"
    return "{%s}" % ", ".join(map(cpp, v)) if isinstance(v, tuple) else repr(v)


def main():
    lines = ["// Printed by optim_values.py with torch %s; do not edit." % torch.__version__[:4],
             "// Included inside the list of cases in optim_test.cpp.", "// clang-format off"]
    for name, options in CASES:
        given = ", ".join(".%s = %s" % (k, cpp(v)) for k, v in options.items())
        values = ", ".join(repr(v) for v in ten_steps(name, options))
        lines.append('{"%s {%s}", [](Params p) { return optim_%s(p, {%s}); },\n {%s}},' % (name, given, name, given, values))
    print("\n".join(lines))


main()
