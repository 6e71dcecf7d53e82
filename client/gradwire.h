#pragma once

// The whole SDK:
//
//   auto client = gradwire::connect("local");
//   auto x = gradwire::tensor({{1., 2.}, {3., 4.}}, {.requires_grad = true});
//   (x * x).sum().backward();
//   std::cout << x.grad() << "\n";

#include "client/client.h"           // connect, Client
#include "client/datasets/loader.h"  // TensorDataset, DistributedSampler, DataLoader
#include "client/distributed.h"      // groups of servers, DistributedDataParallel
#include "client/errors.h"           // a class for each code
#include "client/optim/optim.h"      // optim::SGD and the like, schedules of rates
#include "client/session.h"          // Session
#include "client/tensor.h"           // Tensor, its functions and operators, no_grad

namespace gradwire {

// The dtypes by their own names: zeros({2, 3}, {.dtype = gradwire::float64}).
using enum DType;

}  // namespace gradwire
