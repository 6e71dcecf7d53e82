#include <algorithm>
#include <cmath>
#include <cstdio>
#include <memory>
#include <ostream>
#include <string>
#include <vector>

#include "client/arrival.h"
#include "client/core.h"
#include "client/tensor.h"

// Lays out values as PyTorch's torch/_tensor_str.py does, with its defaults.

namespace gradwire {
namespace {

constexpr int kPrecision = 4;
constexpr int64_t kThreshold = 1000;  // more elements are summarised by ...
constexpr int64_t kEdge = 3;          // ... so many at each end of each dimension
constexpr size_t kWidth = 80;

/// The elements as numbers of one width.
class Formatter {
 public:
  Formatter(DType dtype, std::vector<double> reals, std::vector<int64_t> integers)
      : dtype_(dtype), reals_(std::move(reals)), integers_(std::move(integers)) {}

  /// Finds the width and the notation from the elements that are shown.
  void fit(const std::vector<size_t>& shown) {
    if (!is_floating(dtype_)) {
      for (const size_t i : shown) width_ = std::max(width_, integer(i).size());
      return;
    }
    double largest = 0, smallest = INFINITY;
    std::vector<double> finite;
    for (const size_t i : shown) {
      const double v = reals_[i];
      if (!std::isfinite(v) || v == 0) continue;
      finite.push_back(v);
      largest = std::max(largest, std::fabs(v)), smallest = std::min(smallest, std::fabs(v));
      whole_ &= v == std::ceil(v);
    }
    if (finite.empty()) return;
    scientific_ = largest / smallest > 1000. || largest > 1e8 || (!whole_ && smallest < 1e-4);
    for (const double v : finite) {
      width_ = std::max(width_, finite_text(v).size());
    }
  }
  std::string operator()(size_t i) const {
    std::string s;
    if (!is_floating(dtype_)) {
      s = integer(i);
    } else {
      const double v = reals_[i];
      if (std::isnan(v) || std::isinf(v))
        s = std::isnan(v) ? "nan" : v > 0 ? "inf" : "-inf";
      else
        s = finite_text(v);
    }
    return std::string(s.size() < width_ ? width_ - s.size() : 0, ' ') + s;
  }
  size_t width() const { return width_; }

 private:
  std::string finite_text(double v) const {
    char text[400];
    if (scientific_)
      std::snprintf(text, sizeof text, "%.*e", kPrecision, v);
    else if (whole_)
      std::snprintf(text, sizeof text, "%.0f.", v);
    else
      std::snprintf(text, sizeof text, "%.*f", kPrecision, v);
    return text;
  }
  std::string integer(size_t i) const {
    return dtype_ == DType::boolean ? (integers_[i] ? "True" : "False") : std::to_string(integers_[i]);
  }
  DType dtype_;
  std::vector<double> reals_;
  std::vector<int64_t> integers_;
  size_t width_ = 1;
  bool whole_ = true, scientific_ = false;
};

class Printer {
 public:
  Printer(const Shape& shape, const Formatter& format, bool summary)
      : shape_(shape), format_(format), summary_(summary) {}

  /// The elements that are shown, in order; nothing recurses deeper than kMaxDims.
  void shown(size_t dim, size_t at, std::vector<size_t>& out) const {
    if (dim == shape_.size()) return out.push_back(at);
    each(
        dim, [&](int64_t i) { shown(dim + 1, at * static_cast<size_t>(shape_[dim]) + static_cast<size_t>(i), out); },
        [] {});
  }
  std::string text(size_t dim, size_t at, size_t indent) const {
    if (dim == shape_.size()) return format_(at);
    const size_t base = at * static_cast<size_t>(shape_[dim]);
    if (dim + 1 == shape_.size()) return vector(base, indent);
    std::string s = "[";
    const std::string between = "," + std::string(shape_.size() - dim - 1, '\n') + std::string(indent + 1, ' ');
    bool first = true;
    each(
        dim,
        [&](int64_t i) {
          s += (first ? "" : between) + text(dim + 1, base + static_cast<size_t>(i), indent + 1);
          first = false;
        },
        [&] { s += between + "..."; });
    return s + "]";
  }

 private:
  template <class F, class G> void each(size_t dim, F f, G gap) const {
    const int64_t n = shape_[dim];
    if (!summary_ || n <= 2 * kEdge) {
      for (int64_t i = 0; i < n; ++i) f(i);
      return;
    }
    for (int64_t i = 0; i < kEdge; ++i) f(i);
    gap();
    for (int64_t i = n - kEdge; i < n; ++i) f(i);
  }
  std::string vector(size_t base, size_t indent) const {
    const size_t a_line = std::max<size_t>(1, (kWidth - std::min(indent, kWidth)) / (format_.width() + 2));
    std::string s = "[";
    size_t count = 0;
    const auto put = [&](const std::string& element) {
      if (count) s += count % a_line ? ", " : ",\n" + std::string(indent + 1, ' ');
      s += element;
      ++count;
    };
    each(
        shape_.size() - 1, [&](int64_t i) { put(format_(base + static_cast<size_t>(i))); }, [&] { put(" ..."); });
    return s + "]";
  }
  const Shape& shape_;
  const Formatter& format_;
  bool summary_;
};

/// "(2, 0)", as Python writes a tuple.
std::string tuple(const Shape& s) {
  std::string text = "(";
  for (size_t i = 0; i < s.size(); ++i) text += (i ? ", " : "") + std::to_string(s[i]);
  return text + (s.size() == 1 ? ",)" : ")");
}

}  // namespace

std::string to_string(const Tensor& t) {
  if (!t) return "[ Tensor (undefined) ]";
  const auto arrival = std::make_shared<client::BytesArrival>();
  t.fetch_into(arrival);
  if (!arrival->present()) return "[ Tensor (undefined) ]";
  const TensorInfo& info = arrival->info();
  const size_t n = arrival->bytes.size() / static_cast<size_t>(size_of(info.dtype));
  const DType usual = arrival->core->default_dtype();
  std::vector<std::string> suffixes;
  if (!info.device.empty() && info.device != "cpu") suffixes.push_back("device='" + info.device + "'");
  std::string text = "tensor(";
  const size_t indent = text.size();
  if (n == 0) {
    if (info.shape.size() != 1) suffixes.push_back("size=" + tuple(info.shape));
    text += "[]";
  } else {
    std::vector<double> reals;
    std::vector<int64_t> integers;
    if (is_floating(info.dtype)) {
      reals.resize(n);
      client::convert(info.dtype, arrival->bytes.data(), DType::float64, reinterpret_cast<std::byte*>(reals.data()), n);
    } else {
      integers.resize(n);
      client::convert(info.dtype, arrival->bytes.data(), DType::int64, reinterpret_cast<std::byte*>(integers.data()),
                      n);
    }
    Formatter format(info.dtype, std::move(reals), std::move(integers));
    const Printer printer(info.shape, format, static_cast<int64_t>(n) > kThreshold);
    std::vector<size_t> shown;
    printer.shown(0, 0, shown);
    format.fit(shown);
    text += printer.text(0, 0, indent);
  }
  const bool plain = info.dtype == usual || (n > 0 && (info.dtype == DType::int64 || info.dtype == DType::boolean));
  if (!plain) suffixes.push_back(std::string("dtype=torch.") + name(info.dtype));
  if (!info.grad_fn.empty())
    suffixes.push_back("grad_fn=<" + info.grad_fn + ">");
  else if (info.requires_grad)
    suffixes.push_back("requires_grad=True");
  const size_t line = text.rfind('\n');
  size_t length = line == std::string::npos ? text.size() + 2 : text.size() - line + 1;
  for (const auto& s : suffixes) {
    if (length + s.size() + 2 > kWidth) {
      text += ",\n" + std::string(indent, ' ') + s;
      length = indent + s.size();
    } else {
      text += ", " + s;
      length += s.size() + 2;
    }
  }
  return text + ")";
}

std::ostream& operator<<(std::ostream& out, const Tensor& t) { return out << to_string(t); }

}  // namespace gradwire
