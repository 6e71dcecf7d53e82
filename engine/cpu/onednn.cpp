#include "engine/cpu/onednn.h"

#if GRADWIRE_BLAS

#ifdef _OPENMP
#include <omp.h>
#endif

#include <algorithm>
#include <array>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <oneapi/dnnl/dnnl.hpp>
#include <string>
#include <string_view>

#include "schema/error.h"

namespace gradwire::engine::cpu {
namespace {

using dnnl::memory;
using Tag = memory::format_tag;

constexpr size_t kPlans = 256;
constexpr size_t kAlign = 64;

dnnl::engine& device() {
  static dnnl::engine e(dnnl::engine::kind::cpu, 0);
  return e;
}

/// Threads of a team; a primitive is made for a number of them.
int team() {
#ifdef _OPENMP
  return omp_get_max_threads();
#else
  return 1;
#endif
}

/// All that decides how a convolution is computed: the pass, the threads of a team, the sizes and the windows.
struct Key {
  std::array<int64_t, 28> words = {};
  auto operator<=>(const Key&) const = default;
};

/// The three tensors of a convolution, in the order of their roles.
struct Roles {
  const View &x, &w, &g;
  Roles(ConvPass pass, const Launch& l)
      : x(pass == ConvPass::input    ? l.out[0]
          : pass == ConvPass::weight ? l.in[1]
                                     : l.in[0]),
        w(pass == ConvPass::weight ? l.out[0] : l.in[1]),
        g(pass == ConvPass::forward ? l.out[0] : l.in[0]) {}
};

Key key_of(ConvPass pass, const Roles& r, const ConvParams& p) {
  Key k;
  size_t i = 0;
  for (const int64_t n : {static_cast<int64_t>(pass), int64_t{team()}, int64_t{r.x.ndim}, p.groups}) k.words[i++] = n;
  for (int d = 0; d < r.x.ndim; ++d) k.words[i++] = r.x.shape[d], k.words[i++] = r.w.shape[d];
  for (int d = 0; d < r.x.ndim - 2; ++d) {
    for (const int64_t n : {r.g.shape[d + 2], p.stride[d], p.padding[d], p.dilation[d]}) k.words[i++] = n;
  }
  return k;
}

/// oneDNN computes places with 32 bits and does not look whether they fit: with a stride of 2^31 - 1 its gradients are
/// wrong, and with tensors of no elements it ends the process.
bool within_onednn(const Roles& r, const ConvParams& p) {
  constexpr int64_t kReach = int64_t{1} << 20;  // elements that a window or a step may span
  for (const View* v : {&r.x, &r.w, &r.g}) {
    if (v->numel() == 0) return false;
  }
  for (int d = 0; d < r.x.ndim - 2; ++d) {
    const int64_t span = p.dilation[d] * (r.w.shape[d + 2] - 1) + 1;
    if (std::max({span, p.stride[d], p.padding[d], p.dilation[d]}) > kReach) return false;
  }
  return true;
}

/// One tensor of a plan: as the caller has it, as the convolution wants it, and the copying between the two, if any.
struct Side {
  memory::desc rows, inner;
  dnnl::primitive copy;
  size_t at = 0;  // of the inner form in the scratch
  bool copied() const { return rows != inner; }
};

struct Plan {
  bool possible = false;
  dnnl::primitive work;
  Side a, b, out;
  size_t pad_at = 0, bytes = 0;  // the convolution's own scratch, and all of it
  memory::desc pad;
};

memory::desc rows_of(const View& v, int64_t groups) {
  memory::dims d(v.shape, v.shape + v.ndim);
  if (groups > 1) d[0] /= groups, d.insert(d.begin(), groups);
  static constexpr Tag kTags[] = {Tag::abc, Tag::abcd, Tag::abcde, Tag::abcdef};
  return {d, memory::data_type::f32, kTags[d.size() - 3]};
}
memory::desc any(const memory::desc& rows) {
#if DNNL_VERSION_MAJOR >= 3
  return {rows.get_dims(), memory::data_type::f32, Tag::any};
#else
  return {rows.dims(), memory::data_type::f32, Tag::any};
#endif
}

/// The primitive descriptors of the three passes, by the forms of both major versions.
struct Passes {
  memory::desc x, w, g;
  memory::dims stride, dilation, before, after;

  // For inference oneDNN prefers channels last, into which copying takes three times as long as into blocks.
  static constexpr auto kKind = dnnl::prop_kind::forward_training;

  static dnnl::primitive_attr attributes() {
    dnnl::primitive_attr a;
    a.set_scratchpad_mode(dnnl::scratchpad_mode::user);
    return a;
  }
#if DNNL_VERSION_MAJOR >= 3
  auto forward() const {
    return dnnl::convolution_forward::primitive_desc(device(), kKind, dnnl::algorithm::convolution_direct, x, w, g,
                                                     stride, dilation, before, after, attributes());
  }
  auto input() const {
    return dnnl::convolution_backward_data::primitive_desc(device(), dnnl::algorithm::convolution_direct, x, w, g,
                                                           stride, dilation, before, after, forward(), attributes());
  }
  auto weight() const {
    return dnnl::convolution_backward_weights::primitive_desc(device(), dnnl::algorithm::convolution_direct, x, w, g,
                                                              stride, dilation, before, after, forward(), attributes());
  }
#else
  auto forward() const {
    return dnnl::convolution_forward::primitive_desc(
        {kKind, dnnl::algorithm::convolution_direct, x, w, g, stride, dilation, before, after}, attributes(), device());
  }
  auto input() const {
    return dnnl::convolution_backward_data::primitive_desc(
        {dnnl::algorithm::convolution_direct, x, w, g, stride, dilation, before, after}, attributes(), device(),
        forward());
  }
  auto weight() const {
    return dnnl::convolution_backward_weights::primitive_desc(
        {dnnl::algorithm::convolution_direct, x, w, g, stride, dilation, before, after}, attributes(), device(),
        forward());
  }
#endif
};

/// The first of a descriptor's kernels that is machine code; its others (plain loops, and products by a GEMM of its
/// own) lose to ours. Takes what the plan needs of it.
template <class Primitive, class Desc, class Take> bool choose(Plan& plan, Desc pd, Take&& take) {
  do {
    const std::string_view name = pd.impl_info_str();
    if (name.starts_with("ref") || name.starts_with("gemm") || name.starts_with("simple")) continue;
    plan.work = Primitive(pd);
    plan.pad = pd.scratchpad_desc();
    take(pd);
    return true;
  } while (pd.next_impl());
  return false;
}

std::shared_ptr<Plan> make_plan(ConvPass pass, const Roles& r, const ConvParams& p) {
  auto plan = std::make_shared<Plan>();
  const memory::desc x = rows_of(r.x, 1), w = rows_of(r.w, p.groups), g = rows_of(r.g, 1);
  Passes passes{any(x), any(w), any(g), {}, {}, {}, {}};
  for (int d = 0; d < r.x.ndim - 2; ++d) {
    passes.stride.push_back(p.stride[d]), passes.dilation.push_back(p.dilation[d] - 1);
    passes.before.push_back(p.padding[d]);
    // what the last window does not reach is not padding
    passes.after.push_back((r.g.shape[d + 2] - 1) * p.stride[d] + p.dilation[d] * (r.w.shape[d + 2] - 1) + 1 -
                           r.x.shape[d + 2] - p.padding[d]);
  }
  const auto sides = [&](const memory::desc& a, const memory::desc& a_inner, const memory::desc& b,
                         const memory::desc& b_inner, const memory::desc& out, const memory::desc& out_inner) {
    plan->a = {a, a_inner, {}}, plan->b = {b, b_inner, {}}, plan->out = {out, out_inner, {}};
  };
  if (pass == ConvPass::forward) {
    plan->possible = choose<dnnl::convolution_forward>(
        *plan, passes.forward(), [&](const auto& d) { sides(x, d.src_desc(), w, d.weights_desc(), g, d.dst_desc()); });
  } else if (pass == ConvPass::input) {
    plan->possible = choose<dnnl::convolution_backward_data>(*plan, passes.input(), [&](const auto& d) {
      sides(g, d.diff_dst_desc(), w, d.weights_desc(), x, d.diff_src_desc());
    });
  } else {
    plan->possible = choose<dnnl::convolution_backward_weights>(*plan, passes.weight(), [&](const auto& d) {
      sides(g, d.diff_dst_desc(), x, d.src_desc(), w, d.diff_weights_desc());
    });
  }
  if (!plan->possible) return plan;
  const auto reserve = [&](size_t bytes) {
    const size_t at = plan->bytes;
    plan->bytes += (bytes + kAlign - 1) / kAlign * kAlign;
    return at;
  };
  for (Side* s : {&plan->a, &plan->b, &plan->out}) {
    if (!s->copied()) continue;
    s->at = reserve(s->inner.get_size());
    const bool in = s != &plan->out;
    s->copy = dnnl::reorder(
        dnnl::reorder::primitive_desc(device(), in ? s->rows : s->inner, device(), in ? s->inner : s->rows));
  }
  plan->pad_at = reserve(plan->pad.get_size());
  return plan;
}

/// The plans made last, for all threads.
class Plans {
 public:
  std::shared_ptr<const Plan> find(ConvPass pass, const Launch& l) {
    const Roles r(pass, l);
    const auto& p = *static_cast<const ConvParams*>(l.params);
    const Key key = key_of(pass, r, p);
    {
      const std::lock_guard lock(mutex_);
      if (const auto found = places_.find(key); found != places_.end()) {
        order_.splice(order_.begin(), order_, found->second);
        return found->second->second;
      }
    }
    std::shared_ptr<Plan> plan;
    try {
      plan = within_onednn(r, p) ? make_plan(pass, r, p) : std::make_shared<Plan>();
    } catch (const dnnl::error& e) {
      if (e.status == dnnl_out_of_memory) throw Error(Code::memory_limit, "out of memory in a convolution");
      plan = std::make_shared<Plan>();  // not for oneDNN
    }
    const std::lock_guard lock(mutex_);
    if (places_.contains(key)) return plan;  // another thread was faster
    order_.emplace_front(key, plan);
    places_[key] = order_.begin();
    if (order_.size() > kPlans) places_.erase(order_.back().first), order_.pop_back();
    return plan;
  }

 private:
  using Order = std::list<std::pair<Key, std::shared_ptr<const Plan>>>;
  std::mutex mutex_;
  Order order_;  // the one used last first
  std::map<Key, Order::iterator> places_;
};
Plans& plans() {
  static Plans p;
  return p;
}

}  // namespace

int64_t onednn_scratch(ConvPass pass, const Launch& l) {
  if (l.out[0].dtype != DType::float32) return -1;
  const auto plan = plans().find(pass, l);
  return plan->possible ? static_cast<int64_t>(plan->bytes) : -1;
}

bool run_onednn(ConvPass pass, const Launch& l) {
  if (l.out[0].dtype != DType::float32) return false;
  const auto plan = plans().find(pass, l);
  if (!plan->possible) return false;
  char* scratch = l.out.size() > 1 ? static_cast<char*>(l.out[1].data) : nullptr;
  try {
    dnnl::stream stream(device());
    const auto rows = [&](const Side& s, void* data) { return memory(s.rows, device(), data); };
    const auto inner = [&](const Side& s, void* data) {
      return memory(s.inner, device(), s.copied() ? scratch + s.at : data);
    };
    const auto into = [&](const Side& s, void* data) {
      const memory to = inner(s, data);
      if (s.copied()) s.copy.execute(stream, {{DNNL_ARG_FROM, rows(s, data)}, {DNNL_ARG_TO, to}});
      return to;
    };
    const memory a = into(plan->a, l.in[0].data), b = into(plan->b, l.in[1].data),
                 out = inner(plan->out, l.out[0].data), pad(plan->pad, device(), scratch + plan->pad_at);
    static constexpr int kArgs[3][3] = {{DNNL_ARG_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_DST},
                                        {DNNL_ARG_DIFF_DST, DNNL_ARG_WEIGHTS, DNNL_ARG_DIFF_SRC},
                                        {DNNL_ARG_DIFF_DST, DNNL_ARG_SRC, DNNL_ARG_DIFF_WEIGHTS}};
    const auto& args = kArgs[static_cast<int>(pass)];
    plan->work.execute(stream, {{args[0], a}, {args[1], b}, {args[2], out}, {DNNL_ARG_SCRATCHPAD, pad}});
    if (plan->out.copied()) {
      plan->out.copy.execute(stream, {{DNNL_ARG_FROM, out}, {DNNL_ARG_TO, rows(plan->out, l.out[0].data)}});
    }
    stream.wait();
  } catch (const dnnl::error& e) {
    throw Error(e.status == dnnl_out_of_memory ? Code::memory_limit : Code::internal,
                std::string("oneDNN could not compute a convolution: ") + e.what());
  }
  return true;
}

}  // namespace gradwire::engine::cpu

#else

namespace gradwire::engine::cpu {

int64_t onednn_scratch(ConvPass, const Launch&) { return -1; }
bool run_onednn(ConvPass, const Launch&) { return false; }

}  // namespace gradwire::engine::cpu

#endif
