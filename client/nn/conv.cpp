#include "client/nn/conv.h"

#include <algorithm>

namespace gradwire::nn {
namespace {

[[noreturn]] void refuse(std::string message) { raise(Error(Code::bad_argument, std::move(message))); }

bool all(const Shape& s, int64_t value) {
  return std::all_of(s.begin(), s.end(), [&](int64_t v) { return v == value; });
}

void check(int64_t in, int64_t out, const basic::ConvArgs& a) {
  if (a.groups <= 0) refuse("groups must be a positive integer");
  if (in <= 0 || in % a.groups != 0) refuse("in_channels must be divisible by groups");
  if (out <= 0 || out % a.groups != 0) refuse("out_channels must be divisible by groups");
  for (const int64_t k : a.kernel) basic::at_least(k, 1, "kernel_size");
}

}  // namespace

Shape each_dim(Ints given, size_t n, const char* what) {
  const std::span<const int64_t> v = given;
  if (v.size() == n) return Shape(v);
  if (v.size() != 1)
    refuse(std::string(what) + " must be one integer or " + std::to_string(n) + ", got " + std::to_string(v.size()));
  return Shape(n, v[0]);
}

namespace basic {

ConvArgs conv_args(size_t n, int64_t in, int64_t out, Ints kernel, const ConvOptions& o, std::string& extra) {
  ConvArgs a;
  a.kernel = each_dim(kernel, n, "kernel_size");
  a.stride = each_dim(o.stride, n, "stride");
  a.dilation = each_dim(o.dilation, n, "dilation");
  a.groups = o.groups;
  check(in, out, a);
  if (o.padding_mode != "zeros" && o.padding_mode != "reflect" && o.padding_mode != "replicate" &&
      o.padding_mode != "circular")
    refuse("padding_mode must be one of {'zeros', 'reflect', 'replicate', 'circular'}, but got padding_mode='" +
           o.padding_mode + "'");
  const std::string& named = o.padding.mode;
  if (!named.empty() && named != "same" && named != "valid")
    refuse("Invalid padding string '" + named + "', should be one of {'valid', 'same'}");
  if (named == "same" && !all(a.stride, 1)) refuse("padding='same' is not supported for strided convolutions");

  // What stands before and after each dim; "same" may need one more after.
  Shape before(n, 0), after(n, 0);
  if (named.empty()) before = after = each_dim(o.padding, n, "padding");
  if (named == "same")
    for (size_t d = 0; d < n; ++d) {
      const int64_t sum = a.dilation[d] * (a.kernel[d] - 1);
      before[d] = sum / 2, after[d] = sum - sum / 2;
    }
  if (o.padding_mode == "zeros" && before == after) {
    a.padding = before;
  } else {
    a.padding = Shape(n, 0);
    a.pad_mode = o.padding_mode == "zeros" ? "constant" : o.padding_mode;
    for (size_t d = n; d-- > 0;) a.pad.push_back(before[d]), a.pad.push_back(after[d]);
  }

  extra = std::to_string(in) + ", " + std::to_string(out) + ", kernel_size=" + py_tuple(a.kernel) +
          ", stride=" + py_tuple(a.stride);
  if (!named.empty())
    extra += ", padding=" + named;
  else if (!all(before, 0))
    extra += ", padding=" + py_tuple(before);
  if (!all(a.dilation, 1)) extra += ", dilation=" + py_tuple(a.dilation);
  if (a.groups != 1) extra += ", groups=" + std::to_string(a.groups);
  if (!o.bias) extra += ", bias=False";
  if (o.padding_mode != "zeros") extra += ", padding_mode=" + o.padding_mode;
  return a;
}

ConvArgs conv_args(size_t n, int64_t in, int64_t out, Ints kernel, const ConvTransposeOptions& o, std::string& extra) {
  ConvArgs a;
  a.kernel = each_dim(kernel, n, "kernel_size");
  a.stride = each_dim(o.stride, n, "stride");
  a.padding = each_dim(o.padding, n, "padding");
  a.output_padding = each_dim(o.output_padding, n, "output_padding");
  a.dilation = each_dim(o.dilation, n, "dilation");
  a.groups = o.groups;
  check(in, out, a);
  extra = std::to_string(in) + ", " + std::to_string(out) + ", kernel_size=" + py_tuple(a.kernel) +
          ", stride=" + py_tuple(a.stride);
  if (!all(a.padding, 0)) extra += ", padding=" + py_tuple(a.padding);
  if (!all(a.dilation, 1)) extra += ", dilation=" + py_tuple(a.dilation);
  if (!all(a.output_padding, 0)) extra += ", output_padding=" + py_tuple(a.output_padding);
  if (a.groups != 1) extra += ", groups=" + std::to_string(a.groups);
  if (!o.bias) extra += ", bias=False";
  return a;
}

}  // namespace basic
}  // namespace gradwire::nn
