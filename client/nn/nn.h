#pragma once

// Layers and models, as torch.nn. Those of namespace nn compute on a server; nn::basic has the same as templates over
// the tensor's type, so that one text of a model also runs on an engine in the same process.
//
//   nn::Sequential model(nn::Conv2d(1, 16, 3, {.padding = 1}), nn::BatchNorm2d(16), nn::ReLU(), nn::Flatten(),
//                        nn::Linear(16 * 64, 10));
//   model(images)...

#include "client/nn/activation.h"
#include "client/nn/conv.h"
#include "client/nn/init.h"
#include "client/nn/linear.h"
#include "client/nn/loss.h"
#include "client/nn/module.h"
#include "client/nn/module_list.h"
#include "client/nn/norm.h"
#include "client/nn/pad.h"
#include "client/nn/pool.h"
#include "client/nn/sequential.h"
#include "client/nn/utils.h"

namespace gradwire::nn {

using Linear = basic::Linear<Tensor>;
using Embedding = basic::Embedding<Tensor>;
using Flatten = basic::Flatten<Tensor>;
using Identity = basic::Identity<Tensor>;
using Conv1d = basic::Conv1d<Tensor>;
using Conv2d = basic::Conv2d<Tensor>;
using Conv3d = basic::Conv3d<Tensor>;
using ConvTranspose1d = basic::ConvTranspose1d<Tensor>;
using ConvTranspose2d = basic::ConvTranspose2d<Tensor>;
using ConvTranspose3d = basic::ConvTranspose3d<Tensor>;
using BatchNorm1d = basic::BatchNorm1d<Tensor>;
using BatchNorm2d = basic::BatchNorm2d<Tensor>;
using BatchNorm3d = basic::BatchNorm3d<Tensor>;
using InstanceNorm1d = basic::InstanceNorm1d<Tensor>;
using InstanceNorm2d = basic::InstanceNorm2d<Tensor>;
using InstanceNorm3d = basic::InstanceNorm3d<Tensor>;
using LayerNorm = basic::LayerNorm<Tensor>;
using GroupNorm = basic::GroupNorm<Tensor>;
using ReLU = basic::ReLU<Tensor>;
using LeakyReLU = basic::LeakyReLU<Tensor>;
using GELU = basic::GELU<Tensor>;
using SiLU = basic::SiLU<Tensor>;
using Sigmoid = basic::Sigmoid<Tensor>;
using Tanh = basic::Tanh<Tensor>;
using Softplus = basic::Softplus<Tensor>;
using Softmax = basic::Softmax<Tensor>;
using Softmin = basic::Softmin<Tensor>;
using LogSoftmax = basic::LogSoftmax<Tensor>;
using Dropout = basic::Dropout<Tensor>;
using MaxPool1d = basic::MaxPool1d<Tensor>;
using MaxPool2d = basic::MaxPool2d<Tensor>;
using MaxPool3d = basic::MaxPool3d<Tensor>;
using AvgPool1d = basic::AvgPool1d<Tensor>;
using AvgPool2d = basic::AvgPool2d<Tensor>;
using AvgPool3d = basic::AvgPool3d<Tensor>;
using AdaptiveAvgPool1d = basic::AdaptiveAvgPool1d<Tensor>;
using AdaptiveAvgPool2d = basic::AdaptiveAvgPool2d<Tensor>;
using AdaptiveAvgPool3d = basic::AdaptiveAvgPool3d<Tensor>;
using ConstantPad1d = basic::ConstantPad1d<Tensor>;
using ConstantPad2d = basic::ConstantPad2d<Tensor>;
using ConstantPad3d = basic::ConstantPad3d<Tensor>;
using ZeroPad2d = basic::ZeroPad2d<Tensor>;
using ReflectionPad1d = basic::ReflectionPad1d<Tensor>;
using ReflectionPad2d = basic::ReflectionPad2d<Tensor>;
using ReflectionPad3d = basic::ReflectionPad3d<Tensor>;
using ReplicationPad1d = basic::ReplicationPad1d<Tensor>;
using ReplicationPad2d = basic::ReplicationPad2d<Tensor>;
using ReplicationPad3d = basic::ReplicationPad3d<Tensor>;
using MSELoss = basic::MSELoss<Tensor>;
using L1Loss = basic::L1Loss<Tensor>;
using SmoothL1Loss = basic::SmoothL1Loss<Tensor>;
using HuberLoss = basic::HuberLoss<Tensor>;
using KLDivLoss = basic::KLDivLoss<Tensor>;
using NLLLoss = basic::NLLLoss<Tensor>;
using CrossEntropyLoss = basic::CrossEntropyLoss<Tensor>;
using BCELoss = basic::BCELoss<Tensor>;
using BCEWithLogitsLoss = basic::BCEWithLogitsLoss<Tensor>;
using Sequential = basic::Sequential<Tensor>;
using basic::ModuleList;  // ModuleList<Block>

}  // namespace gradwire::nn
