#!/usr/bin/python3
"""PyTorch's side of nn_torch_test.cpp: nn_torch.py save DIR writes a model, what it computes and what it prints;
nn_torch.py check DIR reads the file that the SDK saved. The safetensors format is written out here by hand, so that no
package is needed for it."""
import json
import struct
import sys

import torch
from torch import nn

NAMES = {torch.float32: "F32", torch.float64: "F64", torch.int64: "I64"}


def save_file(path, tensors):
    head, data = {}, b""
    for name, t in tensors.items():
        raw = t.detach().contiguous().numpy().tobytes()
        head[name] = {"dtype": NAMES[t.dtype], "shape": list(t.shape), "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    text = json.dumps(head).encode()
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text + data)


def load_file(path):
    data = open(path, "rb").read()
    size = struct.unpack("<Q", data[:8])[0]
    head, data, tensors = json.loads(data[8:8 + size]), data[8 + size:], {}
    head.pop("__metadata__", None)
    for name, e in head.items():
        dtype = next(d for d, n in NAMES.items() if n == e["dtype"])
        raw = bytearray(data[e["data_offsets"][0]:e["data_offsets"][1]])
        tensors[name] = torch.frombuffer(raw, dtype=dtype).reshape(e["shape"]) if raw else torch.empty(e["shape"], dtype=dtype)
    return tensors


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(3, 8, 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(8)
        self.features = nn.Sequential(nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(8, 12, 3, stride=2, padding=1, groups=2),
                                      nn.GroupNorm(3, 12), nn.GELU(), nn.ConvTranspose2d(12, 6, 3, stride=2),
                                      nn.InstanceNorm2d(6, affine=True), nn.LeakyReLU(0.1),
                                      nn.AdaptiveAvgPool2d((3, 2)))
        self.norm = nn.LayerNorm([6, 3, 2])
        self.head = nn.Sequential(nn.Flatten(), nn.Linear(36, 10), nn.LogSoftmax(1))

    def forward(self, x):
        return self.head(self.norm(self.features(self.bn1(self.conv1(x)))))


def layers():
    return [
        nn.Linear(3, 4), nn.Linear(3, 4, bias=False), nn.Conv1d(2, 4, 3), nn.Conv2d(2, 4, (3, 5), stride=2, padding=(1, 2)),
        nn.Conv3d(2, 4, 3, dilation=2, groups=2, bias=False), nn.Conv2d(2, 4, 3, padding="same", padding_mode="reflect"),
        nn.ConvTranspose1d(2, 4, 3), nn.ConvTranspose2d(2, 4, 3, stride=2, padding=1, output_padding=1, dilation=2),
        nn.ConvTranspose3d(2, 4, 3, groups=2, bias=False), nn.BatchNorm1d(5), nn.BatchNorm2d(5, eps=1e-3, momentum=None),
        nn.BatchNorm3d(5, momentum=0.01, affine=False, track_running_stats=False), nn.InstanceNorm1d(5),
        nn.InstanceNorm2d(5, affine=True), nn.InstanceNorm3d(5, track_running_stats=True), nn.LayerNorm(5),
        nn.LayerNorm([5, 6], eps=1e-12, elementwise_affine=False), nn.GroupNorm(2, 4), nn.GroupNorm(2, 4, affine=False),
        nn.ReLU(), nn.ReLU(inplace=True), nn.LeakyReLU(), nn.LeakyReLU(0.25), nn.GELU(), nn.GELU("tanh"), nn.SiLU(),
        nn.Sigmoid(), nn.Tanh(), nn.Softplus(), nn.Softplus(0.5, 10), nn.Softmax(), nn.Softmax(-1), nn.Softmin(0),
        nn.LogSoftmax(1), nn.Dropout(), nn.Dropout(0.1, inplace=True), nn.MaxPool1d(2), nn.MaxPool2d((2, 3), padding=1),
        nn.MaxPool3d(3, stride=(1, 2, 3), dilation=2, ceil_mode=True), nn.AvgPool1d(3), nn.AvgPool2d((3, 2), stride=1),
        nn.AvgPool3d(2, padding=1), nn.AdaptiveAvgPool1d(4), nn.AdaptiveAvgPool2d((3, 2)), nn.AdaptiveAvgPool3d(2),
        nn.Flatten(), nn.Flatten(0, 2), nn.Identity(), nn.Embedding(10, 3), nn.Sequential(), nn.MSELoss(),
        nn.CrossEntropyLoss(), nn.NLLLoss(), nn.L1Loss(), nn.SmoothL1Loss(), nn.HuberLoss(), nn.KLDivLoss(), nn.BCELoss(),
        nn.BCEWithLogitsLoss(), nn.ConstantPad1d(2, 3.5), nn.ConstantPad2d((1, 2, 3, 4), 0), nn.ConstantPad3d(1, -1),
        nn.ZeroPad2d((1, 1, 2, 0)), nn.ReflectionPad1d(2), nn.ReflectionPad2d(1), nn.ReplicationPad1d((2, 1)),
        nn.ReplicationPad2d(3), nn.ReplicationPad3d(1)]


def load_error():
    net, state = Net(), Net().state_dict()
    del state["bn1.weight"], state["head.1.bias"]
    state["odd"] = state["bn1.odd"] = state["features.2.odd"] = torch.ones(1)
    state["norm.bias"] = torch.ones(6, 3, 3)
    state["conv1.weight"] = torch.ones(2)
    try:
        net.load_state_dict(state)
    except RuntimeError as e:
        return str(e)


def save(folder):
    torch.manual_seed(1)
    net = Net()
    with torch.no_grad():
        for p in net.parameters():  # also those that begin with ones and zeros
            p += 0.1 * torch.randn_like(p)
        for _ in range(3):
            net(torch.randn(6, 3, 11, 9) * 2 + 1)
    save_file(folder + "/model", net.state_dict())
    x, target = torch.randn(5, 3, 11, 9, dtype=torch.float64), torch.tensor([1, 0, 9, 3, 3])
    out = {"x": x, "target": target}
    out["evaluated32"] = net.eval()(x.float())
    net.double()
    out["evaluated"] = net(x)
    net.train()
    loss = nn.NLLLoss()(net(x), target)
    loss.backward()
    out["loss"] = loss
    out["total norm"] = nn.utils.clip_grad_norm_(net.parameters(), 0.3)
    for name, p in net.named_parameters():
        out["grad " + name] = p.grad
    for name, b in net.named_buffers():
        out["after " + name] = b
    save_file(folder + "/values", out)
    open(folder + "/keys", "w").write("\n".join(net.state_dict()) + "\n")
    open(folder + "/net", "w").write(str(net))
    open(folder + "/layers", "w").write("".join(f"{layer}\n" for layer in layers()))
    open(folder + "/error", "w").write(load_error())


def check(folder):
    theirs, ours = load_file(folder + "/saved"), load_file(folder + "/model")
    assert list(theirs) == list(ours), list(theirs)
    for name, t in ours.items():
        assert theirs[name].dtype == t.dtype and theirs[name].shape == t.shape, name
        assert theirs[name].numpy().tobytes() == t.numpy().tobytes(), name
    net = Net()
    net.load_state_dict(theirs)
    values = load_file(folder + "/values")
    assert torch.equal(net.eval()(values["x"].float()), values["evaluated32"])


if __name__ == "__main__":
    {"save": save, "check": check}[sys.argv[1]](sys.argv[2])
