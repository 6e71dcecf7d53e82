// Compiled once for each SIMD target, by Highway's foreach_target; the processor decides which one is used.
#include "engine/cpu/targets.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "engine/cpu/rows.cpp"
#include "hwy/foreach_target.h"  // must come first

#include <algorithm>
#include <cstring>

#include "engine/cpu/rows.h"
#include "hwy/cache_control.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace gradwire::engine::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

HWY_ATTR void copy_bytes(void* to, const void* from, int64_t bytes, bool stream) {
  constexpr hn::ScalableTag<uint8_t> d;
  const auto n = static_cast<int64_t>(hn::Lanes(d));
  const int64_t skew = -reinterpret_cast<intptr_t>(to) & (n - 1);
  if (!stream || bytes < skew + n) {
    if (bytes > 0) std::memcpy(to, from, static_cast<size_t>(bytes));
    return;
  }
  auto* out = static_cast<uint8_t*>(to);
  auto* in = static_cast<const uint8_t*>(from);
  std::memcpy(out, in, static_cast<size_t>(skew));
  int64_t i = skew;
  for (; i + n <= bytes; i += n) hn::Stream(hn::LoadU(d, in + i), d, out + i);
  std::memcpy(out + i, in + i, static_cast<size_t>(bytes - i));
}

// AVX2 and above have instructions for float16; elsewhere, and for bfloat16 (which Highway truncates), the scalar forms
// of half.h are simple enough for the compiler.
HWY_ATTR void widen(const float16* in, float* out, int64_t n) {
  int64_t i = 0;
#if HWY_TARGET <= HWY_AVX2
  constexpr hn::ScalableTag<float> d;
  constexpr hn::Rebind<hwy::float16_t, decltype(d)> dh;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  for (; i + lanes <= n; i += lanes) {
    hn::StoreU(hn::PromoteTo(d, hn::LoadU(dh, reinterpret_cast<const hwy::float16_t*>(in) + i)), d, out + i);
  }
#endif
  for (; i < n; ++i) out[i] = to_float(in[i]);
}

HWY_ATTR void narrow(const float* in, float16* out, int64_t n) {
  int64_t i = 0;
#if HWY_TARGET <= HWY_AVX2
  constexpr hn::ScalableTag<float> d;
  constexpr hn::Rebind<hwy::float16_t, decltype(d)> dh;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  for (; i + lanes <= n; i += lanes) {
    hn::StoreU(hn::DemoteTo(dh, hn::LoadU(d, in + i)), dh, reinterpret_cast<hwy::float16_t*>(out) + i);
  }
#endif
  for (; i < n; ++i) out[i] = to_float16(in[i]);
}

HWY_ATTR void widen_b(const bfloat16* in, float* out, int64_t n) {
  for (int64_t i = 0; i < n; ++i) out[i] = to_float(in[i]);
}

HWY_ATTR void narrow_b(const float* in, bfloat16* out, int64_t n) {
  int64_t i = 0;
#if HWY_TARGET <= HWY_AVX2
  constexpr hn::ScalableTag<float> d;
  constexpr hn::RebindToUnsigned<decltype(d)> du;
  constexpr hn::Rebind<uint16_t, decltype(d)> d16;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  for (; i + lanes <= n; i += lanes) {
    const auto x = hn::LoadU(d, in + i);
    const auto bits = hn::BitCast(du, x);
    const auto even = hn::And(hn::ShiftRight<16>(bits), hn::Set(du, 1));
    const auto rounded = hn::Add(bits, hn::Add(even, hn::Set(du, 0x7FFF)));
    const auto kept = hn::IfThenElse(hn::RebindMask(du, hn::IsNaN(x)), hn::Or(bits, hn::Set(du, 0x400000)), rounded);
    hn::StoreU(hn::TruncateTo(d16, hn::ShiftRight<16>(kept)), d16, reinterpret_cast<uint16_t*>(out) + i);
  }
#endif
  for (; i < n; ++i) out[i] = to_bfloat16(in[i]);
}

}  // namespace gradwire::engine::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace gradwire::engine::cpu {

HWY_EXPORT(copy_bytes);
HWY_EXPORT(widen);
HWY_EXPORT(narrow);
HWY_EXPORT(widen_b);
HWY_EXPORT(narrow_b);

void flush_stream() { hwy::FlushStream(); }
void copy_row(void* to, const void* from, int64_t bytes, bool stream) {
  HWY_DYNAMIC_DISPATCH(copy_bytes)(to, from, bytes, stream);
}
void to_float(const float16* in, float* out, int64_t n) { HWY_DYNAMIC_DISPATCH(widen)(in, out, n); }
void to_float(const bfloat16* in, float* out, int64_t n) { HWY_DYNAMIC_DISPATCH(widen_b)(in, out, n); }
void from_float(const float* in, float16* out, int64_t n) { HWY_DYNAMIC_DISPATCH(narrow)(in, out, n); }
void from_float(const float* in, bfloat16* out, int64_t n) { HWY_DYNAMIC_DISPATCH(narrow_b)(in, out, n); }

template <class Half>
void through_float(const void* functor, const Row& row, RowKernel on_float, int inputs, bool mask_in, bool mask_out) {
  constexpr int64_t kBlock = 1024, kPad = 16;  // kernels read whole vectors
  alignas(64) float in[3][kBlock + kPad], out[kBlock + kPad];
  Row part = row;
  part.stream = false;
  for (int k = mask_in; k < inputs; ++k) {
    if (row.step[k] == 0) part.in[k] = in[k], in[k][0] = to_float(*static_cast<const Half*>(row.in[k]));
  }
  for (int64_t i = 0; i < row.n; i += kBlock) {
    part.n = std::min(kBlock, row.n - i);
    if (mask_in) part.in[0] = static_cast<const bool*>(row.in[0]) + i * row.step[0];
    for (int k = mask_in; k < inputs; ++k) {
      if (row.step[k] == 0) continue;
      to_float(static_cast<const Half*>(row.in[k]) + i, in[k], part.n);
      part.in[k] = in[k];
    }
    part.out = mask_out ? static_cast<void*>(static_cast<bool*>(row.out) + i) : out;
    on_float(functor, part);
    if (!mask_out) from_float(out, static_cast<Half*>(row.out) + i, part.n);
  }
}
template void through_float<float16>(const void*, const Row&, RowKernel, int, bool, bool);
template void through_float<bfloat16>(const void*, const Row&, RowKernel, int, bool, bool);

}  // namespace gradwire::engine::cpu
#endif
