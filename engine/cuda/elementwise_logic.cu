#include "engine/cuda/device.h"
#include "engine/cuda/pointwise.h"

namespace gradwire::engine::cuda {
namespace {

template <class... F> struct list {};

#include "engine/functors/logic.h"
#include "engine/cuda/elementwise.h"

}  // namespace

void find_logic(std::string_view op, PointwiseRow& r) { find(logic(), op, r); }

}  // namespace gradwire::engine::cuda
