#pragma once

#include <cmath>
#include <optional>
#include <source_location>
#include <span>
#include <string>
#include <vector>

#include "client/errors.h"
#include "client/nn/module.h"

// torch.nn.utils, over a list of parameters: clip_grad_norm_(model.parameters(), 1.).

namespace gradwire::nn::utils {

/// The gradients that there are.
template <class T> std::vector<T> gradients(const std::vector<T>& parameters) {
  std::vector<T> grads = TensorTraits<T>::grads(parameters);
  std::erase_if(grads, [](const T& g) { return !g; });
  for (T& g : grads) g = g.detach();
  return grads;
}

/// Scales all gradients by max_norm / (total + 1e-6) where that is below 1; total is the norm of all of them as one
/// vector, and the result. norm_type may be infinity. Waits once, to learn which parameters have a gradient.
template <class T>
T clip_grad_norm_(const std::vector<T>& parameters, double max_norm, double norm_type = 2,
                  bool error_if_nonfinite = false, std::source_location at = std::source_location::current()) {
  if (parameters.empty())
    raise(Error(Code::bad_argument, "clip_grad_norm_(): expected a non-empty list of parameters"));
  auto& maker = parameters[0].maker();
  typename TensorTraits<T>::NoGrad scope(maker);
  const std::vector<T> grads = gradients(parameters);
  if (grads.empty()) return zeros(maker, Shape{}, {}, {}, false, at);
  std::vector<T> norms;
  for (const T& g : grads)
    norms.push_back(std::isinf(norm_type) ? g.abs(at).max(at) : norm(g, Scalar(norm_type), {}, false, {}, at));
  const T each = stack(norms, 0, at);
  const T total = std::isinf(norm_type) ? each.max(at) : norm(each, Scalar(norm_type), {}, false, {}, at);
  if (error_if_nonfinite && !std::isfinite(TensorTraits<T>::number(total)))
    raise(Error(Code::bad_argument,
                "The total norm of order " + std::to_string(norm_type) +
                    " for gradients from `parameters` is non-finite, so it cannot be clipped. To disable this error "
                    "and scale the gradients by the non-finite norm anyway, set `error_if_nonfinite=False`"));
  const T factor = clamp_max(max_norm / (total + 1e-6), 1., at);
  for (const T& g : grads) g.mul_(factor, at);
  return total;
}

/// Clamps each element of each gradient to [-clip_value, clip_value]. Waits once, as clip_grad_norm_.
template <class T>
void clip_grad_value_(const std::vector<T>& parameters, double clip_value,
                      std::source_location at = std::source_location::current()) {
  if (parameters.empty()) return;
  typename TensorTraits<T>::NoGrad scope(parameters[0].maker());
  for (const T& g : gradients(parameters)) g.clamp_(-clip_value, clip_value, at);
}

/// All parameters as one vector.
template <class T>
T parameters_to_vector(const std::vector<T>& parameters, std::source_location at = std::source_location::current()) {
  std::vector<T> flat;
  for (const T& p : parameters) flat.push_back(p.reshape(-1, at));
  return cat(flat, 0, at);
}
/// Copies such a vector back. Waits once for the parameters' sizes.
template <class T>
void vector_to_parameters(const T& vector, const std::vector<T>& parameters,
                          std::source_location at = std::source_location::current()) {
  typename TensorTraits<T>::NoGrad scope(vector.maker());
  const std::vector<TensorInfo> infos = TensorTraits<T>::infos(parameters);
  int64_t from = 0;
  for (size_t i = 0; i < parameters.size(); ++i) {
    int64_t n = 1;
    for (const int64_t d : infos[i].shape) n *= d;
    parameters[i].copy_(vector.narrow(0, from, n, at).reshape(infos[i].shape, at), at);
    from += n;
  }
}

/// The length of v over these dims, which stay with size 1; over no dims: of each element; nullopt: of all of v.
template <class T> T length_over(const T& v, const std::optional<Shape>& dims) {
  return !dims ? norm(v) : dims->empty() ? v.abs() : norm(v, Scalar(2), *dims, true);
}

/// Replaces the parameter by two, `name`_g and `name`_v: its length for each place along dim (nullopt: of the whole),
/// and its direction. Before each call of the module it is made anew, as g * v / |v|.
template <class T>
void weight_norm(const basic::Module<T>& m, const std::string& name = "weight", std::optional<int64_t> dim = 0) {
  const std::string g = name + "_g", v = name + "_v";
  for (const auto& [key, t] : m.named_parameters())
    if (key == v)
      raise(Error(Code::bad_argument, "Cannot register two weight_norm hooks on the same parameter " + name));
  const T weight = m.get_parameter(name);
  std::optional<Shape> others;
  if (dim) {
    const auto rank = static_cast<int64_t>(TensorTraits<T>::infos({&weight, 1})[0].shape.size());
    if (*dim < 0 || *dim >= rank)
      raise(Error(Code::index_out_of_range, "weight_norm: '" + name + "' has no dim " + std::to_string(*dim)));
    others.emplace();
    for (int64_t d = 0; d < rank; ++d)
      if (d != *dim) others->push_back(d);
  }
  m.register_parameter(g, length_over(weight, others).detach());
  m.register_parameter(v, weight.detach());
  m.compute_parameter(name, [=](const basic::Module<T>& module) {
    const T& direction = module.get_parameter(v);
    return direction * (module.get_parameter(g) / length_over(direction, others));
  });
}
/// Makes it one parameter again, of its present value.
template <class T> void remove_weight_norm(const basic::Module<T>& m, const std::string& name = "weight") {
  bool found = false;
  for (const auto& [key, t] : m.named_parameters()) found |= key == name + "_v";
  if (!found) raise(Error(Code::bad_argument, "weight_norm of '" + name + "' not found in " + m.str()));
  m.keep_parameter(name);
  m.register_parameter(name + "_g", T());
  m.register_parameter(name + "_v", T());
}

}  // namespace gradwire::nn::utils
