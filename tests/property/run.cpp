#include "tests/property/run.h"

#include <cmath>
#include <deque>
#include <map>
#include <memory>

#include "engine/autograd.h"
#include "engine/registry.h"
#include "tests/property/gradients.h"
#include "tests/property/values.h"

namespace gradwire::property {
namespace {

using engine::Bound;
using engine::Tensor;

engine::Backend& backend() {
  static const std::unique_ptr<engine::Backend> b = engine::make_cpu_backend();
  return *b;
}

bool agrees(const Num& got, const Num& want, DType t) {
  if (!is_floating(t)) return got.i == want.i;
  if (std::isnan(want.v)) return std::isnan(got.v);
  if (std::isinf(want.v)) return got.v == want.v;
  return std::abs(got.v - want.v) <= want.e;
}

std::string difference(const Tensor& t, const Array& a) {
  const Sizes shape(t.shape().begin(), t.shape().end());
  if (t.dtype() != a.dtype) return std::string("dtype ") + name(t.dtype()) + ", expected " + name(a.dtype);
  if (shape != a.shape)
    return "shape " + to_string(std::span<const int64_t>(shape)) + ", expected " +
           to_string(std::span<const int64_t>(a.shape));
  if (count(shape) > 0) {
    for (size_t d = 0; d < shape.size(); ++d) {
      if (shape[d] > 1 && t.strides()[d] != a.strides[d])
        return "stride " + std::to_string(t.strides()[d]) + " of dim " + std::to_string(d) + ", expected " +
               std::to_string(a.strides[d]);
    }
  }
  const std::vector<Num> got = download(t), want = elements(a);
  for (size_t i = 0; i < want.size(); ++i) {
    if (agrees(got[i], want[i], a.dtype)) continue;
    Sizes at(shape.size());
    size_t rest = i;
    for (size_t d = shape.size(); d-- > 0;) {
      at[d] = static_cast<int64_t>(rest % static_cast<size_t>(shape[d]));
      rest /= static_cast<size_t>(shape[d]);
    }
    std::string s = "element " + to_string(std::span<const int64_t>(at)) + " is " + text(got[i], a.dtype) +
                    ", expected " + text(want[i], a.dtype);
    if (is_floating(a.dtype)) {
      Num e;
      e.v = want[i].e;
      s += " within " + text(e, DType::float64);
    }
    return s;
  }
  return {};
}

class Runner {
 public:
  explicit Runner(const Program& p) : program_(p), cx_(backend(), engine::Limits{}) {}

  std::optional<Failure> run() {
    for (at_ = 0; at_ < program_.steps.size(); ++at_) {
      if (auto f = step(program_.steps[at_])) return f;
    }
    --at_;
    for (size_t v = 0; v < env_.size(); ++v) {
      if (auto f = compare(v, "at the end")) return f;
    }
    if (program_.gradients) {
      const std::string wrong = wrong_gradients(program_, env_, tensors_);
      if (!wrong.empty()) return failure(wrong);
    }
    tensors_.clear();
    if (cx_.bytes_used() == 0 && cx_.nodes() == 0) return std::nullopt;
    return failure(std::to_string(cx_.bytes_used()) + " bytes and " + std::to_string(cx_.nodes()) +
                   " nodes are left when all tensors are gone");
  }

 private:
  Failure failure(std::string what) const {
    const Step& s = program_.steps[at_];
    return {s.row ? call_name(s) : "tensor", std::move(what), at_};
  }

  std::optional<Failure> compare(size_t v, const char* when) {
    if (!env_[v].valid()) return std::nullopt;
    std::string d = difference(tensors_[v], env_[v]);
    // How often a new tensor was written while it was made is its own affair.
    const uint32_t version = tensors_[v].version(), want = *env_[v].version;
    const uint32_t born = born_.emplace(env_[v].version, version - want).first->second;
    if (d.empty() && version != want + born)
      d = "version " + std::to_string(version) + ", expected " + std::to_string(want + born);
    if (d.empty() && tensors_[v].requires_grad() != env_[v].requires_grad())
      d = std::string("requires_grad is ") +
          (env_[v].requires_grad() ? "False, expected True" : "True, expected False");
    if (d.empty()) return std::nullopt;
    return failure("v" + std::to_string(v) + (*when ? std::string(" ") + when : "") + ": " + d);
  }

  std::optional<Failure> step(const Step& s) {
    interpret(s, env_);
    tensors_.resize(env_.size());
    if (!s.row) {
      Tensor t = upload(cx_, s.literal);
      if (s.leaf) engine::require_grad(t);
      tensors_[static_cast<size_t>(s.outs[0])] = t;
      return compare(static_cast<size_t>(s.outs[0]), "");
    }
    engine::Results results;
    try {
      results = call(s);
    } catch (const Error& e) {
      return failure(std::string("refused: ") + e.what());
    }
    if (s.inplace) {
      const std::shared_ptr<Store>& written = env_[static_cast<size_t>(s.args[0].list[0])].store;
      for (size_t v = 0; v < env_.size(); ++v) {
        if (!env_[v].valid() || env_[v].store != written) continue;
        if (auto f = compare(v, "")) return f;
      }
      return std::nullopt;
    }
    std::vector<Tensor> flat = results.list;
    for (const Tensor& t : results.at) {
      if (t) flat.push_back(t);
    }
    if (flat.size() != s.outs.size())
      return failure(std::to_string(flat.size()) + " results, expected " + std::to_string(s.outs.size()));
    for (size_t k = 0; k < flat.size(); ++k) tensors_[static_cast<size_t>(s.outs[k])] = flat[k];
    for (const int64_t v : s.outs) {
      if (auto f = compare(static_cast<size_t>(v), "")) return f;
    }
    return std::nullopt;
  }

  // By name, as a client does.
  engine::Results call(const Step& s) {
    std::deque<std::vector<Tensor>> lists;
    std::deque<std::vector<IndexItem<Tensor>>> indexes;
    std::vector<Bound> positional;
    std::vector<std::pair<std::string_view, Bound>> named;
    const std::vector<std::string> names = names_of(*s.row);
    bool gap = false;
    for (size_t i = 0; i < s.args.size(); ++i) {
      const Arg& a = s.args[i];
      gap = gap || a.named || a.kind == Arg::none;
      if (a.kind == Arg::none) continue;
      Bound b;
      switch (a.kind) {
        case Arg::var:
          b = Bound(tensor(a.list[0]));
          break;
        case Arg::vars:
          lists.emplace_back();
          for (const int64_t v : a.list) lists.back().push_back(tensor(v));
          b = Bound(std::span<const Tensor>(lists.back()));
          break;
        case Arg::scalar:
          b = Bound(a.number);
          break;
        case Arg::ints:
          b = Bound(std::span<const int64_t>(a.list));
          break;
        case Arg::dtype:
          b = Bound(std::string_view(name(a.type)));
          break;
        case Arg::text:
          b = Bound(std::string_view(a.words));
          break;
        default:
          indexes.push_back(items(a));
          b = Bound(std::span<const IndexItem<Tensor>>(indexes.back()));
      }
      if (gap)
        named.emplace_back(names[i], b);
      else
        positional.push_back(b);
    }
    engine::BoundCall bound;
    engine::bind(call_name(s), positional, named, bound);
    return engine::call(cx_, bound.id, {bound.args, static_cast<size_t>(bound.count)});
  }

  const Tensor& tensor(int64_t v) const { return tensors_[static_cast<size_t>(v)]; }

  std::vector<IndexItem<Tensor>> items(const Arg& a) const {
    std::vector<IndexItem<Tensor>> out;
    for (const Item& item : a.items) {
      switch (item.kind) {
        case Item::integer:
          out.emplace_back(item.at);
          break;
        case Item::boolean:
          out.emplace_back(item.at != 0);
          break;
        case Item::slice:
          out.emplace_back(Slice{item.start, item.stop, item.step});
          break;
        case Item::ellipsis:
          out.emplace_back(ellipsis);
          break;
        case Item::newaxis:
          out.emplace_back(newaxis);
          break;
        case Item::ints:
        case Item::bools:
          out.emplace_back(item.values);
          out.back().sizes = Shape(item.sizes);
          if (item.kind == Item::bools) out.back().kind = ArgKind::bool_array;
          break;
        case Item::var:
          out.emplace_back(tensor(item.at));
      }
    }
    return out;
  }

  const Program& program_;
  engine::Context cx_;
  std::vector<Array> env_;
  std::vector<Tensor> tensors_;
  std::map<std::shared_ptr<uint32_t>, uint32_t> born_;
  size_t at_ = 0;
};

}  // namespace

Rows known_rows(int& skipped) {
  Rows rows;
  skipped = 0;
  for (const Row* r : all_rows()) {
    std::string form = r->name;
    form.insert(std::min(form.find('.'), form.size()), "_");
    const bool inplace =
        r->only_inplace ? engine::find_op(r->name) != nullptr : r->inplace && engine::find_op(form) != nullptr;
    if (!engine::find_op(r->name)) {
      ++skipped;
      continue;
    }
    rows.push_back({r, inplace});
  }
  return rows;
}

std::optional<Failure> run(const Program& p) { return Runner(p).run(); }

}  // namespace gradwire::property
