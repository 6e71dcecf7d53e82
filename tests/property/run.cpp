#include "tests/property/run.h"

#include <cmath>
#include <cstring>
#include <deque>
#include <map>
#include <memory>

#include "engine/autograd.h"
#include "engine/registry.h"
#include "schema/ops.h"

namespace gradwire::property {
namespace {

using engine::Bound;
using engine::Tensor;

engine::Backend& backend() {
  static const std::unique_ptr<engine::Backend> b = engine::make_cpu_backend();
  return *b;
}

// A half's value by its fields, whatever the engine makes of them.
double half(uint16_t bits, int exponent_bits, int fraction_bits) {
  const int bias = (1 << (exponent_bits - 1)) - 1, exponent = bits >> fraction_bits & ((1 << exponent_bits) - 1);
  const int fraction = bits & ((1 << fraction_bits) - 1);
  const double sign = bits >> 15 ? -1 : 1;
  if (exponent == (1 << exponent_bits) - 1) return fraction ? std::nan("") : sign * HUGE_VAL;
  if (exponent == 0) return sign * std::ldexp(fraction, 1 - bias - fraction_bits);
  return sign * std::ldexp(fraction + (1 << fraction_bits), exponent - bias - fraction_bits);
}

uint16_t half_bits(double v, DType t) {
  const int exponent_bits = t == DType::float16 ? 5 : 8, fraction_bits = 15 - exponent_bits;
  const int bias = (1 << (exponent_bits - 1)) - 1;
  const uint16_t sign = std::signbit(v) ? 0x8000 : 0,
                 top = static_cast<uint16_t>(((1 << exponent_bits) - 1) << fraction_bits);
  if (std::isnan(v)) return static_cast<uint16_t>(top | 1 << (fraction_bits - 1));
  if (std::isinf(v)) return static_cast<uint16_t>(sign | top);
  if (v == 0) return sign;
  int exponent;
  std::frexp(v, &exponent);
  exponent = std::max(exponent - 1, 1 - bias);
  const auto fraction = static_cast<int>(std::ldexp(std::abs(v), fraction_bits - exponent));
  if (fraction < 1 << fraction_bits) return static_cast<uint16_t>(sign | fraction);
  return static_cast<uint16_t>(sign | (exponent + bias) << fraction_bits | (fraction - (1 << fraction_bits)));
}

template <class T> void put(std::vector<std::byte>& bytes, T x) {
  const auto* p = reinterpret_cast<const std::byte*>(&x);
  bytes.insert(bytes.end(), p, p + sizeof x);
}

Tensor upload(engine::Context& cx, const Array& a) {
  std::vector<std::byte> bytes;
  for (const Num& n : elements(a)) {
    switch (a.dtype) {
      case DType::boolean:
      case DType::uint8:
      case DType::int8:
        put(bytes, static_cast<uint8_t>(n.i));
        break;
      case DType::int16:
        put(bytes, static_cast<int16_t>(n.i));
        break;
      case DType::int32:
        put(bytes, static_cast<int32_t>(n.i));
        break;
      case DType::int64:
        put(bytes, n.i);
        break;
      case DType::float16:
      case DType::bfloat16:
        put(bytes, half_bits(n.v, a.dtype));
        break;
      case DType::float32:
        put(bytes, static_cast<float>(n.v));
        break;
      case DType::float64:
        put(bytes, n.v);
    }
  }
  return engine::from_bytes(cx, a.dtype, a.shape, bytes);
}

template <class T> T get(const char* p) {
  T x;
  std::memcpy(&x, p, sizeof x);
  return x;
}

Num element(const char* p, DType t) {
  Num n;
  switch (t) {
    case DType::boolean:
    case DType::uint8:
      n.i = get<uint8_t>(p);
      break;
    case DType::int8:
      n.i = get<int8_t>(p);
      break;
    case DType::int16:
      n.i = get<int16_t>(p);
      break;
    case DType::int32:
      n.i = get<int32_t>(p);
      break;
    case DType::int64:
      n.i = get<int64_t>(p);
      break;
    case DType::float16:
      n.v = half(get<uint16_t>(p), 5, 10);
      break;
    case DType::bfloat16:
      n.v = half(get<uint16_t>(p), 8, 7);
      break;
    case DType::float32:
      n.v = get<float>(p);
      break;
    case DType::float64:
      n.v = get<double>(p);
  }
  return n;
}

// The engine's elements, read through its sizes and strides by the interpreter's loops.
std::vector<Num> download(const Tensor& t) {
  Array a;
  a.shape.assign(t.shape().begin(), t.shape().end());
  a.strides.assign(t.strides().begin(), t.strides().end());
  std::vector<Num> out;
  const auto* first = static_cast<const char*>(t.data());
  for (const int64_t p : places(a)) out.push_back(element(first + p * size_of(t.dtype()), t.dtype()));
  return out;
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
      if (auto f = gradients()) return f;
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

  // One number is made of all that has a history. How it changes along the direction that the leaves move in is known
  // twice: from the interpreter, which carries derivatives forward, and from the leaves' gradients.
  std::optional<Failure> gradients() {
    Tensor loss;
    double forward = 0, size = 1;
    try {
      for (size_t v = 0; v < env_.size(); ++v) {
        if (!env_[v].valid() || !env_[v].requires_grad() || count(env_[v].shape) == 0) continue;
        if (!tensors_[v].requires_grad()) return failure("v" + std::to_string(v) + " has no history");
        Dice dice(v);
        std::vector<Num> weights = elements(env_[v]);
        for (Num& n : weights) {
          const double w = 2 * dice.uniform() - 1;
          forward += w * n.d, size += std::abs(w * n.d);
          n = Num{.v = w};
        }
        const Tensor part = sum(tensors_[v] * upload(cx_, fresh(DType::float64, env_[v].shape, std::move(weights))));
        loss = loss ? loss + part : part;
      }
      std::vector<Tensor> leaves, grads;
      std::vector<Num> directions;
      for (const Step& s : program_.steps) {
        if (s.leaf) leaves.push_back(tensor(s.outs[0]));
      }
      if (!loss) return std::nullopt;
      if (program_.index % 2) {
        backward(loss);
        for (const Tensor& t : leaves) grads.push_back(engine::grad_of(t));
      } else {
        grads = grad({loss}, leaves, {}, {}, false, true);
      }
      double backward = 0;
      size_t k = 0;
      for (const Step& s : program_.steps) {
        if (!s.leaf) continue;
        const Tensor& g = grads.at(k++);
        if (!g) continue;
        const std::vector<Num> got = download(g), way = elements(s.literal);
        if (got.size() != way.size()) return failure("a gradient of another shape than its leaf's");
        for (size_t i = 0; i < got.size(); ++i) {
          backward += got[i].v * way[i].d, size += std::abs(got[i].v * way[i].d);
        }
      }
      if (std::abs(backward - forward) <= 1e-7 * size) return std::nullopt;
      Num b, f;
      b.v = backward, f.v = forward;
      return failure("gradients: the derivative is " + text(b, DType::float64) + ", expected " +
                     text(f, DType::float64));
    } catch (const Error& e) {
      return failure(std::string("backward refused: ") + e.what());
    }
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
