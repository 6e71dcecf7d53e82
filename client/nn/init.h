#pragma once

#include <algorithm>
#include <cmath>
#include <optional>
#include <source_location>
#include <string>
#include <string_view>
#include <utility>

#include "client/errors.h"
#include "client/nn/traits.h"

// Initial values, as torch.nn.init: each writes into its tensor, whose history it leaves alone. Those that need the
// tensor's sizes ask for them, which waits once a tensor. Random ones draw from the session's generator.

namespace gradwire::nn::init {

/// The factor that keeps the spread of values through this activation. Throws Error{bad_argument} for another name.
inline double calculate_gain(std::string_view nonlinearity, std::optional<double> param = {}) {
  for (const std::string_view one :
       {"linear", "conv1d", "conv2d", "conv3d", "conv_transpose1d", "conv_transpose2d", "conv_transpose3d", "sigmoid"})
    if (nonlinearity == one) return 1;
  if (nonlinearity == "tanh") return 5. / 3;
  if (nonlinearity == "relu") return std::sqrt(2.);
  if (nonlinearity == "leaky_relu") {
    const double slope = param.value_or(0.01);
    return std::sqrt(2. / (1 + slope * slope));
  }
  if (nonlinearity == "selu") return 3. / 4;
  raise(Error(Code::bad_argument, "Unsupported nonlinearity " + std::string(nonlinearity)));
}

/// Inputs and outputs that meet in one weight of this size.
struct Fans {
  int64_t in = 0, out = 0;
};
inline Fans calculate_fans(std::span<const int64_t> shape) {
  if (shape.size() < 2)
    raise(Error(Code::bad_argument, "Fan in and fan out can not be computed for tensor with fewer than 2 dimensions"));
  int64_t field = 1;
  for (const int64_t d : shape.subspan(2)) field *= d;
  return {shape[1] * field, shape[0] * field};
}

using Line = std::source_location;

template <class T> Shape size_of_tensor(const T& t) { return TensorTraits<T>::infos({&t, 1})[0].shape; }
template <class T> auto quiet(const T& t) { return typename TensorTraits<T>::NoGrad(t.maker()); }

template <class T> const T& uniform_(const T& t, double a = 0, double b = 1, Line at = Line::current()) {
  const auto scope = quiet(t);
  return t.uniform_(a, b, T(), at);
}
template <class T> const T& normal_(const T& t, double mean = 0, double std = 1, Line at = Line::current()) {
  const auto scope = quiet(t);
  return t.normal_(mean, std, T(), at);
}
template <class T> const T& constant_(const T& t, double value, Line at = Line::current()) {
  const auto scope = quiet(t);
  return t.fill_(value, at);
}
template <class T> const T& ones_(const T& t, Line at = Line::current()) { return constant_(t, 1, at); }
template <class T> const T& zeros_(const T& t, Line at = Line::current()) { return constant_(t, 0, at); }

/// The identity of a matrix.
template <class T> const T& eye_(const T& t, Line at = Line::current()) {
  const Shape s = size_of_tensor(t);
  if (s.size() != 2) raise(Error(Code::bad_argument, "Only tensors with 2 dimensions are supported"));
  const auto scope = quiet(t);
  return t.copy_(eye(t.maker(), s[0], s[1], {}, {}, false, at), at);
}
/// The identity of a convolution: each group passes its inputs on.
template <class T> const T& dirac_(const T& t, int64_t groups = 1, Line at = Line::current()) {
  const Shape s = size_of_tensor(t);
  if (s.size() < 3 || s.size() > 5)
    raise(Error(Code::bad_argument, "Only tensors with 3, 4, or 5 dimensions are supported"));
  if (groups < 1 || s[0] % groups != 0) raise(Error(Code::bad_argument, "dim 0 must be divisible by groups"));
  const auto scope = quiet(t);
  t.zero_(at);
  T centre = t;
  for (size_t d = 2; d < s.size(); ++d) centre = centre.select(2, s[d] / 2, at);
  const T one = eye(t.maker(), s[0] / groups, s[1], {}, {}, false, at);
  centre.copy_(one.repeat({groups, 1}, at), at);
  return t;
}

template <class T> const T& xavier_uniform_(const T& t, double gain = 1, Line at = Line::current()) {
  const Fans f = calculate_fans(size_of_tensor(t));
  const double bound = std::sqrt(3.) * gain * std::sqrt(2. / static_cast<double>(f.in + f.out));
  return uniform_(t, -bound, bound, at);
}
template <class T> const T& xavier_normal_(const T& t, double gain = 1, Line at = Line::current()) {
  const Fans f = calculate_fans(size_of_tensor(t));
  return normal_(t, 0, gain * std::sqrt(2. / static_cast<double>(f.in + f.out)), at);
}

/// a: the slope of a leaky ReLU; mode: "fan_in" or "fan_out".
struct Kaiming {
  double a = 0;
  std::string_view mode = "fan_in", nonlinearity = "leaky_relu";
};
inline double kaiming_std(std::span<const int64_t> shape, const Kaiming& o) {
  if (o.mode != "fan_in" && o.mode != "fan_out")
    raise(Error(Code::bad_argument,
                "Mode " + std::string(o.mode) + " not supported, please use one of ['fan_in', 'fan_out']"));
  const Fans f = calculate_fans(shape);
  const double fan = static_cast<double>(o.mode == "fan_in" ? f.in : f.out);
  return calculate_gain(o.nonlinearity, o.a) / std::sqrt(fan);
}
template <class T> const T& kaiming_uniform_(const T& t, Kaiming o = {}, Line at = Line::current()) {
  const Shape s = size_of_tensor(t);
  if (std::find(s.begin(), s.end(), 0) != s.end()) return t;
  const double bound = std::sqrt(3.) * kaiming_std(s, o);
  return uniform_(t, -bound, bound, at);
}
template <class T> const T& kaiming_normal_(const T& t, Kaiming o = {}, Line at = Line::current()) {
  const Shape s = size_of_tensor(t);
  if (std::find(s.begin(), s.end(), 0) != s.end()) return t;
  return normal_(t, 0, kaiming_std(s, o), at);
}

/// Normal values, drawn again where they are outside [a, b]: by the inverse of the distribution function.
template <class T>
const T& trunc_normal_(const T& t, double mean = 0, double std = 1, double a = -2, double b = 2,
                       Line at = Line::current()) {
  const auto cdf = [](double x) { return (1 + std::erf(x / std::sqrt(2.))) / 2; };
  const double low = cdf((a - mean) / std), high = cdf((b - mean) / std);
  const auto scope = quiet(t);
  const T u = empty_like(t, DType::float64, {}, false, at);
  u.uniform_(2 * low - 1, 2 * high - 1, T(), at);
  // erfinv: Winitzki's approximation (relative error 2e-3), then Newton's steps, each of which doubles the digits.
  constexpr double kA = 0.147, kPi = 3.14159265358979323846;
  const T l = log(1 - u * u);
  const T h = 2 / (kPi * kA) + l / 2;
  T x = sign(u) * sqrt(sqrt(h * h - l / kA) - h);
  for (int i = 0; i < 3; ++i) x = x - (erf(x) - u) * exp(x * x) * (std::sqrt(kPi) / 2);
  return t.copy_(clamp(x * (std * std::sqrt(2.)) + mean, a, b), at);
}

/// Rows (or columns, where there are more rows) of length gain at right angles to each other; dims after the first
/// count as one.
template <class T> const T& orthogonal_(const T& t, double gain = 1, Line at = Line::current()) {
  const Shape s = size_of_tensor(t);
  if (s.size() < 2) raise(Error(Code::bad_argument, "Only tensors with 2 or more dimensions are supported"));
  int64_t rows = s[0], cols = 1;
  for (size_t d = 1; d < s.size(); ++d) cols *= s[d];
  if (rows * cols == 0) return t;
  const auto scope = quiet(t);
  // Gram and Schmidt's way with the lengths positive gives Q of a QR decomposition with a positive diagonal, which is
  // uniform over all rotations. float64 keeps the angles right to float32's last digits.
  const bool tall = rows > cols;
  T v = randn(t.maker(), {tall ? cols : rows, tall ? rows : cols}, DType::float64, {}, false, {}, at);
  const int64_t count = std::min(rows, cols);
  for (int64_t i = 0; i < count; ++i) {
    const T q = v.select(0, i, at);
    q.div_(norm(q), {}, at);
    if (i + 1 == count) break;
    const T rest = v.narrow(0, i + 1, count - i - 1, at);
    rest.sub_(outer(mv(rest, q, at), q, at), 1, at);
  }
  if (tall) v = v.t(at);
  return t.copy_((v * gain).reshape(s, at), at);
}

/// A matrix of normal values, of which a part in each column is 0.
template <class T> const T& sparse_(const T& t, double sparsity, double std = 0.01, Line at = Line::current()) {
  const Shape s = size_of_tensor(t);
  if (s.size() != 2) raise(Error(Code::bad_argument, "Only tensors with 2 dimensions are supported"));
  const auto scope = quiet(t);
  t.normal_(0, std, T(), at);
  const T places =
      argsort(argsort(rand(t.maker(), s, {}, {}, false, {}, at), 0, false, false, at), 0, false, false, at);
  return t.masked_fill_(places < static_cast<int64_t>(std::ceil(sparsity * static_cast<double>(s[0]))), 0, at);
}

}  // namespace gradwire::nn::init
