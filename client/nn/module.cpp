#include "client/nn/module.h"

namespace gradwire::nn::basic {

template struct ModuleState<gradwire::Tensor>;
template class Module<gradwire::Tensor>;

}  // namespace gradwire::nn::basic
