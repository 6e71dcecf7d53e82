#pragma once

#include <memory>
#include <ostream>
#include <source_location>
#include <string>
#include <string_view>
#include <type_traits>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "client/errors.h"
#include "client/nn/files.h"
#include "client/nn/module_state.h"
#include "client/nn/state_dict.h"
#include "client/nn/traits.h"
#include "client/nn/tree.h"

namespace gradwire::nn::basic {

/// A layer or a model, as torch.nn.Module: named parameters, buffers and modules within, in the order in which they
/// were added. A handle with value semantics: a copy is a second handle on the same module, like a Python reference, so
/// a model has its layers as members and also registers them:
///
///   template <class T> struct Net : Module<T> {
///     Conv2d<T> conv;
///     Linear<T> fc;
///     explicit Net(MakerOf<T>& m = default_maker<T>())
///         : Module<T>("Net"), conv(m, 1, 8, 3, {.padding = 1}), fc(m, 8 * 64, 10) {
///       this->add_module("conv", conv);
///       this->add_module("fc", fc);
///     }
///     T operator()(const T& x) const { return fc(flatten(relu(conv(x)), 1)); }
///   };
///
/// Nothing here waits for a server but what says so. One thread at a time uses a model. Errors about names are
/// Error{bad_argument} with PyTorch's texts.
template <class T> class Module {
 public:
  using Tensor = T;
  using Maker = MakerOf<T>;
  using Named = std::pair<std::string, T>;
  using State = ModuleState<T>;

  /// `kind` and `extra` are what is printed: kind(extra).
  explicit Module(std::string kind = "Module", std::string extra = {}) : state_(std::make_shared<State>()) {
    state_->kind = std::move(kind), state_->extra = std::move(extra);
  }
  explicit Module(std::shared_ptr<State> state) : state_(std::move(state)) {}

  // ---- building ----
  /// A leaf that is trained; requires_grad is set. An undefined tensor stands for None. Waits for what is known of `t`.
  void register_parameter(std::string_view name, const T& t, bool requires_grad = true) const {
    tree::check_name(*state_, "parameter", name);
    refuse_other(state_->buffer(name), name);
    if (t) {
      const std::string n(name);
      if (!TensorTraits<T>::infos({&t, 1})[0].grad_fn.empty())
        raise(Error(Code::bad_argument, "Cannot assign non-leaf Tensor to parameter '" + n +
                                            "'. Model parameters must be created explicitly. To express '" + n +
                                            "' as a function of another Tensor, compute the value in the forward() "
                                            "method."));
      t.requires_grad_(requires_grad);
    }
    set_parameter(name, t);
  }
  /// A tensor that belongs to the module and is not trained, such as a running mean. One that is not persistent stays
  /// out of the state dict.
  void register_buffer(std::string_view name, const T& t, bool persistent = true) const {
    set_buffer(name, t, persistent, false);
  }
  void add_module(std::string_view name, const Module& m) const { tree::adopt(*state_, name, m.state_); }
  void register_module(std::string_view name, const Module& m) const { add_module(name, m); }

  // ---- looking ----
  const std::string& kind() const { return state_->kind; }
  /// Tensors and modules by dotted names: get_parameter("layer1.0.conv1.weight").
  const T& get_parameter(std::string_view path) const {
    const auto [owner, name] = tree::owner(state_, path);
    const T* t = static_cast<State&>(*owner).parameter(name);
    if (!t) raise(Error(Code::bad_argument, "`" + name + "` is not an nn.Parameter"));
    return *t;
  }
  const T& get_buffer(std::string_view path) const {
    const auto [owner, name] = tree::owner(state_, path);
    const T* t = static_cast<State&>(*owner).buffer(name);
    if (!t) raise(Error(Code::bad_argument, "`" + name + "` is not a buffer"));
    return *t;
  }
  Module get_submodule(std::string_view path) const { return of(tree::find(state_, path)); }

  /// Each tensor once, under the first of its names.
  std::vector<Named> named_parameters() const {
    return named([](State& s, const auto& take) { s.each_parameter(take); });
  }
  std::vector<Named> named_buffers() const {
    return named([](State& s, const auto& take) {
      for (const auto& b : s.buffers) take(b.name, b.tensor);
    });
  }
  std::vector<T> parameters() const {
    return once([](State& s, const auto& take) { s.each_parameter(take); });
  }
  std::vector<T> buffers() const {
    return once([](State& s, const auto& take) {
      for (const auto& b : s.buffers) take(b.name, b.tensor);
    });
  }
  std::vector<std::pair<std::string, Module>> named_children() const {
    std::vector<std::pair<std::string, Module>> found;
    for (const auto& [name, node] : state_->children) found.emplace_back(name, of(node));
    return found;
  }
  std::vector<Module> children() const { return second(named_children()); }
  /// This module, with the empty name, and all within it; each once.
  std::vector<std::pair<std::string, Module>> named_modules() const {
    std::vector<std::pair<std::string, Module>> found;
    for (const auto& v : tree::walk(state_, true)) found.emplace_back(v.path, of(v.node));
    return found;
  }
  std::vector<Module> modules() const {
    std::vector<Module> found;
    for (const auto& n : tree::all(state_)) found.push_back(of(n));
    return found;
  }

  // ---- training ----
  const Module& train(bool mode = true) const {
    for (const auto& n : tree::all(state_)) n->training = mode;
    return *this;
  }
  const Module& eval() const { return train(false); }
  bool is_training() const { return state_->training; }
  void zero_grad(bool set_to_none = true, std::source_location at = std::source_location::current()) const {
    if (const std::vector<T> all = parameters(); !all.empty()) gradwire::zero_grad(all, set_to_none, at);
  }
  const Module& requires_grad_(bool on = true) const {
    for (const T& p : parameters()) p.requires_grad_(on);
    return *this;
  }
  /// Calls fn with each module within and at last with this one, children first.
  template <class F> const Module& apply(F fn) const {
    for (const auto& n : tree::children_first(state_)) fn(of(n));
    return *this;
  }

  /// In place: the module's floating tensors become others, in its handles too; hand parameters to an optimiser after
  /// this. Gradients go with them. Waits once for what is known of the tensors.
  const Module& to(DType dtype) const {
    if (!is_floating(dtype))
      raise(Error(Code::bad_argument,
                  std::string("nn.Module.to only accepts floating point or complex dtypes, but got desired "
                              "dtype=torch.") +
                      name(dtype)));
    return convert([&](const TensorInfo& i) { return is_floating(i.dtype) && i.dtype != dtype; },
                   [&](const T& t) { return t.to(dtype); });
  }
  const Module& to(std::string_view device) const {
    return convert([&](const TensorInfo& i) { return !std::string_view(i.device).starts_with(device); },
                   [&](const T& t) { return t.to(device); });
  }
  const Module& to(std::string_view device, DType dtype) const { return to(device), to(dtype); }

  // ---- saving ----
  /// Parameters and persistent buffers under PyTorch's names and in its order, detached, sharing their values.
  StateDict<T> state_dict() const {
    StateDict<T> dict;
    each_entry([&](const std::string& key, const T& t, bool) { dict.set(key, t.detach()); });
    return dict;
  }
  /// Copies values by name, converted to the module's dtypes. Throws PyTorch's text if sizes disagree or, where strict,
  /// names; then nothing has changed. Waits once for what is known of the tensors.
  IncompatibleKeys load_state_dict(const StateDict<T>& dict, bool strict = true) const {
    std::vector<T> theirs;
    std::vector<std::string_view> names;
    for (const auto& [name, t] : dict) names.push_back(name), theirs.push_back(t);
    const std::vector<TensorInfo> infos = TensorTraits<T>::infos(theirs);
    std::vector<Shape> shapes;
    for (const TensorInfo& i : infos) shapes.push_back(i.shape);
    return load_from(names, shapes, strict, [&](size_t i) { return theirs[i]; });
  }
  /// The state dict as a safetensors file: see client/safetensors.h.
  void save(const std::string& path, const Metadata& metadata = {{"format", "pt"}}) const {
    save_tensors(path, state_dict(), metadata);
  }
  /// load_state_dict from a file, a tensor at a time: the session has room for one more at most.
  IncompatibleKeys load(const std::string& path, bool strict = true) const {
    const client::SafetensorsReader file(path);
    const auto& tensors = file.head().tensors;
    std::vector<std::string_view> names;
    std::vector<Shape> shapes;
    for (const SafetensorsEntry& e : tensors) names.push_back(e.name), shapes.push_back(e.shape);
    MakerOf<T>* maker = nullptr;
    each_entry([&](const std::string&, const T& t, bool) { maker = &t.maker(); });
    return load_from(names, shapes, strict, [&](size_t i) {
      return TensorTraits<T>::make(*maker, tensors[i].dtype, file.read(tensors[i]), tensors[i].shape);
    });
  }

  // ---- printing ----
  /// As Python's print(model).
  std::string str() const { return tree::print(*state_); }
  friend std::ostream& operator<<(std::ostream& out, const Module& m) { return out << m.str(); }
  /// A line a module with the sizes of its own parameters and how many numbers those are, and the sums. Waits once.
  std::string summary() const {
    const auto parameters = named_parameters(), buffers = named_buffers();
    std::vector<T> all = second(parameters);
    for (const auto& b : buffers) all.push_back(b.second);
    const std::vector<TensorInfo> infos = TensorTraits<T>::infos(all);
    std::unordered_map<const void*, size_t> places;
    tree::Totals totals;
    for (size_t i = 0; i < all.size(); ++i) {
      places.emplace(TensorTraits<T>::id(all[i]), i);
      const int64_t n = count(infos[i].shape);
      (i < parameters.size() ? totals.parameters : totals.buffers) += n;
      if (i < parameters.size() && infos[i].requires_grad) totals.trainable += n;
      totals.bytes += n * size_of(infos[i].dtype);
    }
    std::vector<tree::Row> rows;
    for (const auto& v : tree::walk(state_, true)) {
      tree::Row row{v.path, v.node->kind, "", 0};
      static_cast<State&>(*v.node).each_parameter([&](const std::string& name, const T& t) {
        const Shape& shape = infos[places.at(TensorTraits<T>::id(t))].shape;
        row.tensors += (row.tensors.empty() ? "" : ", ") + name + " " + to_string(shape);
        row.count += count(shape);
      });
      if (!row.tensors.empty()) rows.push_back(std::move(row));
    }
    return tree::summary(kind(), rows, totals);
  }

  // ---- hooks ----
  /// `hook(module, input)` before each call; the tensor it returns, if it returns one that is defined, takes the
  /// input's place. Layers call hooks; a model of one's own does by returning `this->call(x, [&](const T& x) {...})`.
  template <class F> HookHandle<T> register_forward_pre_hook(F hook) const {
    state_->pre_hooks.emplace_back(state_->next_hook, [hook](const Module& m, const T& x) -> T {
      if constexpr (std::is_void_v<std::invoke_result_t<const F&, const Module&, const T&>>)
        return hook(m, x), T();
      else
        return hook(m, x);
    });
    return {state_, state_->next_hook++};
  }
  /// `hook(module, input, output)` after each call, which may give another output.
  template <class F> HookHandle<T> register_forward_hook(F hook) const {
    state_->hooks.emplace_back(state_->next_hook, [hook](const Module& m, const T& x, const T& y) -> T {
      if constexpr (std::is_void_v<std::invoke_result_t<const F&, const Module&, const T&, const T&>>)
        return hook(m, x, y), T();
      else
        return hook(m, x, y);
    });
    return {state_, state_->next_hook++};
  }
  /// From now on `make(module)` gives the tensor of this parameter, now and before each call, with the history of what
  /// it is made from; it is no longer among the parameters. See utils.h's weight_norm.
  template <class F> void compute_parameter(std::string_view name, F make) const {
    auto& p = own(name);
    if (p.computed_by)
      raise(Error(Code::bad_argument, "parameter '" + p.name + "' of " + kind() + " is computed already"));
    T first = make(*this);
    const std::string key(name);
    p.computed_by = state_->next_hook;
    p.tensor = std::move(first);
    register_forward_pre_hook([make, key](const Module& m, const T&) { *m.state_->parameter(key) = make(m); });
  }
  /// Makes it a parameter again, of the value that it has now.
  void keep_parameter(std::string_view name) const {
    auto& p = own(name);
    if (!p.computed_by)
      raise(Error(Code::bad_argument, "parameter '" + p.name + "' of " + kind() + " is not computed"));
    HookHandle<T>(state_, *p.computed_by).remove();
    p.computed_by.reset();
    p.tensor = p.tensor.detach().requires_grad_();
  }
  /// forward(x) with the hooks around it.
  template <class F> T call(const T& x, F forward) const {
    if (state_->pre_hooks.empty() && state_->hooks.empty()) return forward(x);
    T input = x;
    for (const auto& h : std::vector(state_->pre_hooks))
      if (T other = h.second(*this, input)) input = std::move(other);
    T output = forward(std::as_const(input));
    for (const auto& h : std::vector(state_->hooks))
      if (T other = h.second(*this, input, output)) output = std::move(other);
    return output;
  }

  /// Whether both are handles of one module.
  bool is(const Module& other) const { return state_ == other.state_; }

 protected:
  State& state() const { return *state_; }
  /// What layers register, which they made themselves.
  void set_parameter(std::string_view name, const T& t) const {
    tree::check_name(*state_, "parameter", name);
    refuse_other(state_->buffer(name), name);
    if (T* old = state_->parameter(name))
      *old = t;
    else
      state_->parameters.push_back({std::string(name), t});
  }
  void set_buffer(std::string_view name, const T& t, bool persistent = true, bool may_lack = false) const {
    tree::check_name(*state_, "buffer", name);
    refuse_other(state_->parameter(name), name);
    if (T* old = state_->buffer(name))
      *old = t;
    else
      state_->buffers.push_back({std::string(name), t, persistent, may_lack});
  }
  static void refuse_other(const T* other, std::string_view name) {
    if (other) raise(Error(Code::bad_argument, "attribute '" + std::string(name) + "' already exists"));
  }

 private:
  typename State::Parameter& own(std::string_view name) const {
    for (auto& p : state_->parameters)
      if (p.name == name && p.tensor) return p;
    raise(Error(Code::bad_argument, "'" + kind() + "' object has no attribute '" + std::string(name) + "'"));
  }
  static Module of(const std::shared_ptr<tree::Node>& n) { return Module(std::static_pointer_cast<State>(n)); }
  static int64_t count(const Shape& s) {
    int64_t n = 1;
    for (const int64_t d : s) n *= d;
    return n;
  }
  template <class A, class B> static std::vector<B> second(std::vector<std::pair<A, B>> pairs) {
    std::vector<B> v;
    v.reserve(pairs.size());
    for (auto& p : pairs) v.push_back(std::move(p.second));
    return v;
  }
  template <class F> std::vector<T> once(F each) const {
    std::vector<T> found;
    std::unordered_set<const void*> seen;
    for (const auto& n : tree::all(state_)) {
      each(static_cast<State&>(*n), [&](const std::string&, const T& t) {
        if (t && seen.insert(TensorTraits<T>::id(t)).second) found.push_back(t);
      });
    }
    return found;
  }
  template <class F> std::vector<Named> named(F each) const {
    std::vector<Named> found;
    std::unordered_set<const void*> seen;
    for (const auto& v : tree::walk(state_, true)) {
      each(static_cast<State&>(*v.node), [&](const std::string& name, const T& t) {
        if (t && seen.insert(TensorTraits<T>::id(t)).second) found.emplace_back(tree::join(v.path, name), t);
      });
    }
    return found;
  }
  template <class F> void each_entry(F take) const {
    for (const auto& v : tree::walk(state_, false)) {
      auto& s = static_cast<State&>(*v.node);
      s.each_parameter([&](const std::string& name, const T& t) { take(tree::join(v.path, name), t, false); });
      for (const auto& b : s.buffers)
        if (b.tensor && b.persistent) take(tree::join(v.path, b.name), b.tensor, b.may_lack);
    }
  }
  /// `value(i)` is the tensor names[i] of the size shapes[i]; nothing is asked for before all fits.
  template <class F>
  IncompatibleKeys load_from(const std::vector<std::string_view>& names, const std::vector<Shape>& shapes, bool strict,
                             F value) const {
    std::unordered_map<std::string_view, size_t> places;
    for (size_t i = 0; i < names.size(); ++i) places.emplace(names[i], i);
    std::vector<T> ours, zeros;
    std::vector<size_t> from;
    IncompatibleKeys odd;
    each_entry([&](const std::string& key, const T& t, bool may_lack) {
      if (const auto i = places.find(key); i != places.end())
        ours.push_back(t), from.push_back(i->second);
      else if (may_lack)
        zeros.push_back(t);
      else
        odd.missing_keys.push_back(key);
    });
    odd.unexpected_keys = tree::unexpected(state_, names);
    const std::vector<TensorInfo> infos = TensorTraits<T>::infos(ours);
    std::vector<std::string> faults;
    // PyTorch before 0.4 had no 0-dim tensors.
    const auto old = [&](size_t i) { return infos[i].shape.empty() && shapes[from[i]] == Shape{1}; };
    for (size_t i = 0; i < ours.size(); ++i)
      if (!(infos[i].shape == shapes[from[i]]) && !old(i))
        faults.push_back(tree::size_mismatch(std::string(names[from[i]]), shapes[from[i]], infos[i].shape));
    tree::check_loadable(*state_, strict ? odd : IncompatibleKeys{}, std::move(faults));
    for (size_t i = 0; i < ours.size(); ++i) {
      typename TensorTraits<T>::NoGrad scope(ours[i].maker());
      const T t = value(from[i]);
      ours[i].copy_(old(i) ? t.select(0, 0) : t);
    }
    for (const T& t : zeros) t.zero_();
    return odd;
  }
  template <class P, class F> const Module& convert(P wanted, F change) const {
    std::vector<T*> places;
    for (const auto& n : tree::all(state_)) {
      auto& s = static_cast<State&>(*n);
      s.each_parameter([&](const std::string&, T& t) { places.push_back(&t); });
      for (auto& b : s.buffers)
        if (b.tensor) places.push_back(&b.tensor);
    }
    std::vector<T> old;
    for (const T* p : places) old.push_back(*p);
    const std::vector<TensorInfo> infos = TensorTraits<T>::infos(old);
    const std::vector<T> grads = TensorTraits<T>::grads(old);
    std::unordered_map<const void*, T> done;  // a tensor that stands at two places stays one
    for (size_t i = 0; i < old.size(); ++i) {
      if (!wanted(infos[i])) continue;
      T& fresh = done[TensorTraits<T>::id(old[i])];
      if (!fresh) {
        fresh = change(old[i].detach());
        if (infos[i].requires_grad) fresh.requires_grad_();
        if (grads[i]) fresh.set_grad(change(grads[i].detach()));
      }
      *places[i] = fresh;
    }
    return *this;
  }

  std::shared_ptr<State> state_;
};

// The SDK has these; whoever includes this need not compile them again.
extern template struct ModuleState<gradwire::Tensor>;
extern template class Module<gradwire::Tensor>;

}  // namespace gradwire::nn::basic

namespace gradwire::nn {

using Module = basic::Module<Tensor>;
using HookHandle = basic::HookHandle<Tensor>;

}  // namespace gradwire::nn
