// Compiled once for each SIMD target, by Highway's foreach_target; the processor decides which one is used.
#include "engine/cpu/targets.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "engine/cpu/pointwise_binary.cpp"
#include "hwy/foreach_target.h"  // must come first

#include "engine/cpu/pointwise-top.h"
#include "hwy/contrib/math/math-inl.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace gradwire::engine::cpu::HWY_NAMESPACE {

template <class... F> struct list {};

// The attribute on every function: GCC 12 forgets the region's target in templates that are not inlined (-O0 crashes).
#undef GW_FN
#define GW_FN HWY_ATTR HWY_INLINE

#include "engine/cpu/simd.h"
#include "engine/cpu/simd-curves.h"
#include "engine/functors/binary.h"
#include "engine/cpu/pointwise-inl.h"

constexpr auto kTable = table_of(binary());
std::span<const PointwiseRow> binary_table() { return kTable; }

}  // namespace gradwire::engine::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace gradwire::engine::cpu {

HWY_EXPORT(binary_table);
std::span<const PointwiseRow> binary_rows() { return HWY_DYNAMIC_DISPATCH(binary_table)(); }

}  // namespace gradwire::engine::cpu
#endif
