#include "engine/cuda/device.h"
#include "engine/cuda/pointwise.h"

namespace gradwire::engine::cuda {
namespace {

template <class... F> struct list {};

#include "engine/functors/curves.h"
#include "engine/cuda/elementwise.h"

}  // namespace

void find_curves(std::string_view op, PointwiseRow& r) { find(curves(), op, r); }

}  // namespace gradwire::engine::cuda
