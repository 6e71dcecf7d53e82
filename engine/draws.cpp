#include "engine/draws.h"

#include <cmath>
#include <cstdio>
#include <limits>

#include "engine/apply.h"
#include "engine/shape.h"
#include "schema/ops.h"

namespace gradwire::engine {

Draws::Draws(const Call& c, int i) : Draws(c.cx) {
  if (!c.has(i)) return;
  state_ = *c.args[i].tensors;
  if (state_.dtype() != DType::int64 || !std::ranges::equal(state_.shape(), Shape{2}) ||
      overlaps_itself(state_.shape(), state_.strides())) {
    throw Error(Code::bad_argument, "expected a generator, which `generator` makes: an int64 tensor of shape [2]");
  }
  uint64_t words[2];
  const Tensor flat = cx_.contiguous(state_);
  cx_.backend.to_host(words, flat.data(), sizeof words);
  seed_ = words[0], offset_ = words[1];
}

RandomParams Draws::next(int64_t n, int words) {
  const RandomParams here{seed_, offset_ + used_};
  used_ += static_cast<uint64_t>(n / (4 / words) + (n % (4 / words) != 0));
  return here;
}

void Draws::commit() {
  if (!state_) {
    cx_.generator.offset += used_;
    return;
  }
  const int64_t words[2] = {static_cast<int64_t>(seed_), static_cast<int64_t>(offset_ + used_)};
  const Tensor now = from_bytes(cx_, DType::int64, Shape{2}, std::as_bytes(std::span(words)));
  cx_.copy(state_, now);
  bump_version(state_);
}

void check_floating(DType t, const char* what) {
  if (!is_floating(t))
    throw Error(Code::dtype_mismatch, std::string("\"") + what + "\" not implemented for '" + row(t).torch + "'");
}

// Of this shape, in [0, 1) or normal.
Tensor draw(Context& cx, Draws& from, std::span<const int64_t> shape, DType dtype, bool normal) {
  check_floating(dtype, normal ? "normal" : "uniform");
  const Tensor t = cx.empty(shape, dtype);
  const RandomParams params = from.next(t.numel(), dtype == DType::float64 ? 2 : 1);
  if (t.numel() > 0) launch(cx, normal ? GW_KERNEL(normal) : GW_KERNEL(uniform), {out_view(t)}, {}, &params);
  return t;
}

Bounds bounds_of(DType t) {
  const auto of = []<class T>(T, const char* name) -> Bounds {
    return {static_cast<int64_t>(std::numeric_limits<T>::min()), static_cast<int64_t>(std::numeric_limits<T>::max()),
            name};
  };
  switch (t) {
    case DType::boolean:
      return of(bool{}, "bool");
    case DType::uint8:
      return of(uint8_t{}, "unsigned char");
    case DType::int8:
      return of(int8_t{}, "signed char");
    case DType::int16:
      return of(int16_t{}, "short");
    case DType::int32:
      return of(int32_t{}, "int");
    case DType::int64:
      return of(int64_t{}, "long");
    default:
      break;
  }
  const int bits = t == DType::float16 ? 11 : t == DType::bfloat16 ? 8 : t == DType::float32 ? 24 : 53;
  return {-(int64_t{1} << bits), int64_t{1} << bits, nullptr};
}

// Whole numbers from low to high, which is among them.
Tensor draw_whole(Context& cx, Draws& from, std::span<const int64_t> shape, DType dtype, int64_t low, int64_t high) {
  const Tensor t = cx.empty(shape, dtype);
  const WholeParams params{from.next(t.numel(), 2), low, static_cast<uint64_t>(high) - static_cast<uint64_t>(low) + 1};
  if (t.numel() > 0) launch(cx, GW_KERNEL(whole), {out_view(t)}, {}, &params);
  return t;
}

void check_range(int64_t low, int64_t high, DType dtype) {
  if (low >= high) {
    throw Error(Code::bad_argument, "random_ expects 'from' to be less than 'to', but got from=" + std::to_string(low) +
                                        " >= to=" + std::to_string(high));
  }
  const Bounds b = bounds_of(dtype);
  if (!b.name) return;  // floating: rounded
  if (low < b.least || low > b.most)
    throw Error(Code::bad_argument, std::string("from is out of bounds for ") + b.name);
  if (high - 1 > b.most) throw Error(Code::bad_argument, std::string("to - 1 is out of bounds for ") + b.name);
}

void check_spread(double std) {
  if (!(std >= 0)) {
    char text[32];
    std::snprintf(text, sizeof text, "%g", std);
    throw Error(Code::bad_argument, std::string("normal expects std >= 0.0, but found std ") + text);
  }
}

Tensor scaled(const Tensor& t, double factor, double more) {
  const Tensor wide = factor == 1 ? t : t * factor;
  return more == 0 ? wide : wide + more;
}

// 1 with probability p, else 0.
Tensor coins(Context& cx, Draws& from, const Operand<Tensor>& p, std::span<const int64_t> shape, DType dtype) {
  const Tensor u = draw(cx, from, shape, dtype == DType::float64 ? dtype : DType::float32, false);
  return cast(lt(u, p), dtype);
}

static bool all_true(Context& cx, const Tensor& t) {
  const Tensor count = cx.empty({}, DType::int64);
  launch(cx, GW_KERNEL(count_nonzero), {count.view()}, {t.view()});
  return item(count).integer() == t.numel();
}

bool any_negative(Context& cx, const Tensor& t) { return !all_true(cx, ge(t, 0)); }

void check_interval(double low, double high, DType dtype) {
  const auto text = [](double x) {
    char s[32];
    std::snprintf(s, sizeof s, "%g", x);
    return std::string(s);
  };
  if (!(low <= high)) {
    throw Error(Code::bad_argument,
                "uniform_ expects to return a [from, to) range, but found from=" + text(low) + " > to=" + text(high));
  }
  const double most = dtype == DType::float16   ? 65504
                      : dtype == DType::float64 ? std::numeric_limits<double>::max()
                                                : std::numeric_limits<float>::max();
  if (!(high - low <= most)) {
    throw Error(Code::bad_argument, std::string("uniform_ expects to-from <= std::numeric_limits<") + row(dtype).torch +
                                        ">::max(), but found to=" + text(high) + " and from=" + text(low) +
                                        " which result in to-from to exceed the limit");
  }
}

void check_chance(double p) {
  if (p >= 0 && p <= 1) return;
  char text[32];
  std::snprintf(text, sizeof text, "%g", p);
  throw Error(Code::bad_argument, std::string("bernoulli_ expects p to be in [0, 1], but got p=") + text);
}

void check_chances(Context& cx, const Tensor& p) {
  if (!all_true(cx, ge(p, 0)) || !all_true(cx, le(p, 1)))
    throw Error(Code::bad_argument, "Expected p_in >= 0 && p_in <= 1 to be true, but got false.");
}

}  // namespace gradwire::engine
