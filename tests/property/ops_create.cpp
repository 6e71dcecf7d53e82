#include <cmath>

#include "tests/property/draw.h"

// New tensors, and copies.

namespace gradwire::property {
namespace {

DType dtype_of(Scalar s) {
  return s.kind == Category::boolean ? DType::boolean : s.kind == Category::integer ? DType::int64 : DType::float32;
}

template <int Value> std::vector<Array> filled(const Args& a) {
  const DType t = a.dtype(1, DType::float32);
  return {fresh(t, a.ints(0), number(Scalar(Value), t))};
}

std::vector<Array> full(const Args& a) {
  const DType t = a.dtype(2, dtype_of(a.scalar(1)));
  return {fresh(t, a.ints(0), number(a.scalar(1), t))};
}

template <int Value> std::vector<Array> filled_like(const Args& a) {
  const DType t = a.dtype(1, a.array(0).dtype);
  return {fresh(t, a.array(0).shape, number(Scalar(Value), t))};
}

std::vector<Array> sequence(double start, double end, double step, DType t) {
  const double length = std::ceil((end - start) / step);
  if (step == 0 || !(length >= 0)) throw Redraw{"no sequence"};
  std::vector<Num> out;
  for (int64_t k = 0; k < static_cast<int64_t>(length); ++k) {
    const double v = start + static_cast<double>(k) * step;
    out.push_back(is_floating(t) ? real(t, v, v == 0 ? 0 : 2 * unit(t) * std::abs(v))
                                 : whole(t, static_cast<int64_t>(v)));
  }
  const auto n = static_cast<int64_t>(out.size());
  return {fresh(t, {n}, std::move(out))};
}
std::vector<Array> arange(const Args& a) {
  const Scalar end = a.scalar(0);
  return sequence(0, end.real(), 1, a.dtype(1, end.kind == Category::floating ? DType::float32 : DType::int64));
}
std::vector<Array> arange_start(const Args& a) {
  const Scalar start = a.scalar(0), end = a.scalar(1), step = a.has(2) ? a.scalar(2) : Scalar(1);
  bool floats = false;
  for (const Scalar& s : {start, end, step}) floats = floats || s.kind == Category::floating;
  return sequence(start.real(), end.real(), step.real(), a.dtype(3, floats ? DType::float32 : DType::int64));
}
std::vector<Array> linspace(const Args& a) {
  const DType t = a.dtype(3, DType::float32);
  const double start = a.scalar(0).real(), end = a.scalar(1).real();
  const int64_t n = a.integer(2);
  std::vector<Num> out;
  for (int64_t k = 0; k < n; ++k) {
    const double v = n == 1 ? start : start + (end - start) * static_cast<double>(k) / static_cast<double>(n - 1);
    out.push_back(real(t, v, 4 * unit(t) * (std::abs(start) + std::abs(end))));
  }
  return {fresh(t, {n}, std::move(out))};
}
std::vector<Array> eye(const Args& a) {
  const int64_t n = a.integer(0), m = a.has(1) ? a.integer(1) : n;
  const DType t = a.dtype(2, DType::float32);
  std::vector<Num> out;
  for (int64_t i = 0; i < n * m; ++i) out.push_back(number(Scalar(int64_t{i / m == i % m}), t));
  return {fresh(t, {n, m}, std::move(out))};
}

// ---- copies ----

Array copy_of(const Array& a) { return fresh(a.dtype, a.shape, elements(a)); }

std::vector<Array> clone(const Args& a) { return {copy_of(a.array(0))}; }
std::vector<Array> contiguous(const Args& a) { return {dense(a.array(0))}; }
std::vector<Array> cast(const Args& a) {
  const DType t = a.dtype(1, DType::float32);
  return {fresh(t, a.array(0).shape, elements(a.array(0), t))};
}
std::vector<Array> to(const Args& a) {
  const Array& x = a.array(0);
  if (a.dtype(1, x.dtype) != x.dtype) return cast(a);
  return {a.flag(2) ? copy_of(x) : x};
}
std::vector<Array> detach(const Args& a) {
  Array v = a.array(0);
  v.detached = true, v.history = false;
  return {v};
}
std::vector<Array> data(const Args& a) {
  Array v = a.array(0);
  v.detached = true, v.history = false;
  v.version = std::make_shared<uint32_t>(0);
  return {v};
}
std::vector<Array> copy(const Args& a) {
  const Array& x = a.array(0);
  return {fresh(x.dtype, x.shape, elements(widened(a.array(1), x.shape), x.dtype))};
}
std::vector<Array> fill(const Args& a) {
  const Array& x = a.array(0);
  return {fresh(x.dtype, x.shape, number(a.scalar(1), x.dtype))};
}
std::vector<Array> zero(const Args& a) {
  const Array& x = a.array(0);
  return {fresh(x.dtype, x.shape, number(Scalar(0), x.dtype))};
}

// ---- arguments ----

DType new_type(Draw& d) { return d.program.gradients ? DType::float64 : d.dtype(); }
Scalar fitting(Draw& d, DType t) {
  Scalar s = d.scalar(t);
  return t == DType::uint8 && s.real() < 0 ? Scalar(3) : s;
}

bool draw_new(Draw& d) {
  d.set(0, Arg::of(d.shape()));
  if (d.program.gradients || d.dice.chance(70)) d.set(1, Arg::of(new_type(d)));
  return true;
}
bool draw_full(Draw& d) {
  d.set(0, Arg::of(d.shape()));
  const DType t = new_type(d);
  d.set(1, Arg::of(fitting(d, t)));
  if (d.program.gradients || d.dice.chance(70)) d.set(2, Arg::of(t));
  return true;
}
// Sequences of numbers that every dtype holds.
DType sequence_type(Draw& d) {
  if (d.program.gradients) return DType::float64;
  const DType types[] = {DType::int8, DType::int16, DType::int32, DType::int64, DType::float32, DType::float64};
  return types[d.dice.below(6)];
}
bool draw_arange(Draw& d) {
  const DType t = sequence_type(d);
  d.set(0, Arg::of(is_floating(t) && d.dice.chance(50) ? Scalar(static_cast<double>(d.dice.between(0, 12)) / 2)
                                                       : Scalar(d.dice.between(0, 9))));
  if (d.program.gradients || d.dice.chance(60)) d.set(1, Arg::of(t));
  return true;
}
bool draw_arange_start(Draw& d) {
  const DType t = sequence_type(d);
  const int64_t start = d.dice.between(-4, 4), step = d.dice.chance(70) ? d.dice.between(1, 3) : -d.dice.between(1, 3);
  const int64_t end = start + step * d.dice.between(0, 6);
  const bool halves = is_floating(t) && d.dice.chance(50);
  const auto s = [&](int64_t x) { return halves ? Scalar(static_cast<double>(x) / 2) : Scalar(x); };
  d.set(0, Arg::of(s(start))), d.set(1, Arg::of(s(end)));
  if (step != 1 || halves) d.set(2, Arg::of(s(step)));
  if (d.program.gradients || d.dice.chance(60)) d.set(3, Arg::of(t));
  return true;
}
bool draw_linspace(Draw& d) {
  d.set(0, Arg::of(d.scalar(DType::float32))), d.set(1, Arg::of(d.scalar(DType::float32)));
  d.set(2, Arg::of(Scalar(d.dice.between(0, 9))));
  if (d.args[0].number.kind == Category::boolean || d.args[1].number.kind == Category::boolean) return false;
  if (d.program.gradients || d.dice.chance(50))
    d.set(3, Arg::of(d.program.gradients || d.dice.chance(50) ? DType::float64 : DType::float32));
  return true;
}
bool draw_eye(Draw& d) {
  d.set(0, Arg::of(Scalar(d.dice.between(0, 4))));
  if (d.dice.chance(50)) d.set(1, Arg::of(Scalar(d.dice.between(0, 4))));
  if (d.program.gradients || d.dice.chance(70)) d.set(2, Arg::of(new_type(d)));
  return true;
}
bool draw_like(Draw& d) {
  if (!d.array(0)) return false;
  if (d.dice.chance(40)) d.set(1, Arg::of(new_type(d)));
  return true;
}
bool draw_one(Draw& d) { return d.array(0); }
bool draw_strided(Draw& d) {
  // Mostly those of which there is something to do.
  return d.array(0, d.dice.chance(70) ? Draw::Fits([](const Array& a) { return !is_dense(a); }) : nullptr);
}
bool draw_cast(Draw& d) {
  if (!d.array(0)) return false;
  d.set(1, Arg::of(d.dtype()));
  return true;
}
bool draw_to(Draw& d) {
  if (!draw_cast(d)) return false;
  if (d.dice.chance(30)) d.set(1, Arg::of(d.at(0).dtype));
  if (d.dice.chance(20)) d.set(2, Arg::of(Scalar(d.dice.chance(50))));
  return true;
}
bool draw_copy(Draw& d) {
  if (!d.array(0)) return false;
  const int src = d.partner(d.at(0).shape, d.dice.chance(50) ? d.at(0).dtype : d.dtype(), true);
  if (src < 0) return false;
  d.set(1, Arg::of_var(src));
  return true;
}
bool draw_fill(Draw& d) {
  if (!d.array(0)) return false;
  d.set(1, Arg::of(fitting(d, d.at(0).dtype)));
  return true;
}

constexpr Row kNew[] = {
    {.name = "zeros", .params = "size, *, dtype", .draw = draw_new, .eval = filled<0>, .no_grad = true, .weight = 1},
    {.name = "ones", .params = "size, *, dtype", .draw = draw_new, .eval = filled<1>, .no_grad = true, .weight = 1},
    {.name = "full",
     .params = "size, fill_value, *, dtype",
     .draw = draw_full,
     .eval = full,
     .no_grad = true,
     .weight = 1},
    {.name = "zeros_like",
     .params = "self, *, dtype",
     .draw = draw_like,
     .eval = filled_like<0>,
     .no_grad = true,
     .weight = 1},
    {.name = "ones_like",
     .params = "self, *, dtype",
     .draw = draw_like,
     .eval = filled_like<1>,
     .no_grad = true,
     .weight = 1},
    {.name = "arange", .params = "end, *, dtype", .draw = draw_arange, .eval = arange, .no_grad = true, .weight = 1},
    {.name = "arange.start",
     .params = "start, end, step, *, dtype",
     .draw = draw_arange_start,
     .eval = arange_start,
     .no_grad = true,
     .weight = 1},
    {.name = "linspace",
     .params = "start, end, steps, *, dtype",
     .draw = draw_linspace,
     .eval = linspace,
     .no_grad = true,
     .weight = 1},
    {.name = "eye", .params = "n, m, *, dtype", .draw = draw_eye, .eval = eye, .no_grad = true, .weight = 1},
};

constexpr Row kCopy[] = {
    {.name = "clone", .params = "self", .draw = draw_one, .eval = clone, .saves = kNothing},
    {.name = "contiguous", .params = "self", .draw = draw_strided, .eval = contiguous, .saves = kNothing},
    {.name = "cast", .params = "self, dtype", .draw = draw_cast, .eval = cast, .saves = kNothing},
    {.name = "to", .params = "self, dtype, *, copy", .draw = draw_to, .eval = to, .saves = kNothing},
    {.name = "detach", .params = "self", .draw = draw_one, .eval = detach, .no_grad = true, .weight = 1},
    {.name = "data", .params = "self", .draw = draw_one, .eval = data, .no_grad = true, .weight = 1},
    {.name = "copy",
     .params = "self, src",
     .draw = draw_copy,
     .eval = copy,
     .inplace = true,
     .saves = kNothing,
     .copies = true,
     .weight = 3},
    {.name = "fill",
     .params = "self, value",
     .draw = draw_fill,
     .eval = fill,
     .inplace = true,
     .saves = kNothing,
     .weight = 1},
    {.name = "zero", .params = "self", .draw = draw_one, .eval = zero, .inplace = true, .saves = kNothing, .weight = 1},
};

}  // namespace

constinit const std::span<const Row> kCreation = kNew;
constinit const std::span<const Row> kCopies = kCopy;

}  // namespace gradwire::property
