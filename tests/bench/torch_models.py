#!/usr/bin/python3
"""Whole training steps on PyTorch in this process, by the orders that side.h describes: the peer of model_side.cpp."""
import math

import torch
import torch.nn.functional as F
from torch import nn

import torch_side


def wave(shape, scale, frequency=0.7):
    i = torch.arange(math.prod(shape), dtype=torch.float64)
    return (torch.sin(i * frequency) * scale).reshape(shape).float()


def set_values(model):
    with torch.no_grad():
        for name, p in model.named_parameters():
            if p.dim() > 1:
                p.copy_(wave(p.shape, math.sqrt(2 / math.prod(p.shape[1:]))))
            elif not ("bn" in name and name.endswith("weight")):
                p.copy_(wave(p.shape, 0.05))


class Block(nn.Module):
    def __init__(self, inputs, outputs, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(outputs)
        self.downsample = None
        if stride != 1 or inputs != outputs:
            self.downsample = nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))

    def forward(self, x):
        y = self.bn2(self.conv2(F.relu(self.bn1(self.conv1(x)))))
        return F.relu(y + (x if self.downsample is None else self.downsample(x)))


class ResNet18(nn.Module):
    def __init__(self, classes):
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64)
        self.layers = nn.Sequential(*[nn.Sequential(Block(i, o, s), Block(o, o, 1))
                                      for i, o, s in ((64, 64, 1), (64, 128, 2), (128, 256, 2), (256, 512, 2))])
        self.fc = nn.Linear(512, classes)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.bn1(self.conv1(x))), 3, 2, 1)
        return self.fc(F.adaptive_avg_pool2d(self.layers(x), 1).flatten(1))


def train(model, x, target, lr, penalty):
    set_values(model)
    parameters = list(model.parameters())
    optimizer = torch.optim.SGD(parameters, lr)

    def step():
        with torch.enable_grad():
            optimizer.zero_grad()
            loss = F.nll_loss(F.log_softmax(model(x), 1), target)
            if penalty:
                grads = torch.autograd.grad(loss, parameters, create_graph=True)
                torch.stack([(g * g).sum() for g in grads]).sum().sqrt().backward()
            else:
                loss.backward()
            optimizer.step()
            return loss.detach()

    return step


def mlp(penalty):
    model = nn.Sequential(nn.Linear(784, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 10))
    return train(model, wave((128, 784), 1, 0.01), torch.arange(128) % 10, 1e-4 if penalty else 0.01, penalty)


def resnet(penalty):
    return train(ResNet18(1000), wave((2, 3, 224, 224), 1, 0.01), torch.zeros(2, dtype=torch.int64),
                 1e-7 if penalty else 1e-4, penalty)


torch_side.main({
    "mlp": lambda: mlp(False),
    "mlp_double": lambda: mlp(True),
    "resnet": lambda: resnet(False),
    "resnet_penalty": lambda: resnet(True),
})
