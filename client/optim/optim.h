#pragma once

// Optimisers, which live on the server, and schedules of their learning rates:
//
//   gradwire::optim::Adam opt(params, {.lr = 1e-3});
//   gradwire::optim::StepLR schedule(opt, 30);
//   opt.zero_grad(), loss.backward(), opt.step();

#include "client/optim/lbfgs.h"
#include "client/optim/optimizer.h"
#include "client/optim/schedule.h"
#include "client/tensor.h"

namespace gradwire::optim {

using Optimizer = basic::Optimizer<Tensor>;
using SGD = basic::SGD<Tensor>;
using Adam = basic::Adam<Tensor>;
using AdamW = basic::AdamW<Tensor>;
using Adamax = basic::Adamax<Tensor>;
using NAdam = basic::NAdam<Tensor>;
using RAdam = basic::RAdam<Tensor>;
using RMSprop = basic::RMSprop<Tensor>;
using Adagrad = basic::Adagrad<Tensor>;
using Adadelta = basic::Adadelta<Tensor>;
using Rprop = basic::Rprop<Tensor>;
using ASGD = basic::ASGD<Tensor>;
using LBFGS = basic::LBFGS<Tensor>;

}  // namespace gradwire::optim
