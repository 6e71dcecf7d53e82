#include "tests/engine/literal.h"

#include <cctype>
#include <cmath>
#include <limits>
#include <stdexcept>

#include "engine/apply.h"
#include "engine/optimizer.h"

namespace gradwire::engine {
namespace {

struct Number {
  Scalar value;
};

class Reader {
 public:
  Reader(Context& cx, std::string_view text, Literals& out) : cx_(cx), all_(text), text_(text), out_(out) {}

  void run() {
    while (skip(), !text_.empty()) {
      std::string_view name;
      size_t n = 0;
      while (n < text_.size() && (std::isalnum(static_cast<unsigned char>(text_[n])) || text_[n] == '_')) ++n;
      if (n > 0 && n < text_.size() && text_[n] == '=') name = text_.substr(0, n), text_.remove_prefix(n + 1);
      Bound v = argument();
      if (name.empty())
        out_.positional.push_back(v);
      else
        out_.named.emplace_back(out_.texts.emplace_back(name), v);
      skip();
      if (!text_.empty()) expect(';');
    }
  }

 private:
  [[noreturn]] void fail(const char* what) const {
    throw std::invalid_argument("'" + std::string(all_) + "': expected " + what + " before '" + std::string(text_) +
                                "'");
  }
  void skip() {
    while (!text_.empty() && text_[0] == ' ') text_.remove_prefix(1);
  }
  bool accept(std::string_view word) {
    skip();
    if (!text_.starts_with(word)) return false;
    text_.remove_prefix(word.size());
    return true;
  }
  void expect(char c) {
    if (!accept({&c, 1})) fail(std::string(1, c).c_str());
  }
  char peek() { return skip(), text_.empty() ? '\0' : text_[0]; }

  Bound argument() {
    const char c = peek();
    if (c == '[') return tensor();
    if (c == '(') return Bound(std::span<const int64_t>(integers()));
    if (c == '{') return index();
    if (c == '\'') {
      text_.remove_prefix(1);
      const size_t end = text_.find('\'');
      if (end == std::string_view::npos) fail("a closing '");
      const std::string& s = out_.texts.emplace_back(text_.substr(0, end));
      text_.remove_prefix(end + 1);
      return Bound(std::string_view(s));
    }
    if (accept("None")) return Bound();
    size_t n = 1;
    while (n < text_.size() && std::isdigit(static_cast<unsigned char>(text_[n]))) ++n;
    if (c == 'o' && text_.starts_with("o(")) return optimizer();
    if (std::string_view("fpib").find(c) != std::string_view::npos && n < text_.size() && text_[n] == '(')
      return draw(n);
    return Bound(number());
  }

  Scalar number() {
    skip();
    if (accept("True")) return Scalar(true);
    if (accept("False")) return Scalar(false);
    if (accept("nan")) return Scalar(std::numeric_limits<double>::quiet_NaN());
    if (accept("inf")) return Scalar(std::numeric_limits<double>::infinity());
    if (accept("-inf")) return Scalar(-std::numeric_limits<double>::infinity());
    size_t n = 0;
    bool real = false;
    while (n < text_.size() && (std::isdigit(static_cast<unsigned char>(text_[n])) || text_[n] == '-' ||
                                text_[n] == '+' || text_[n] == '.' || text_[n] == 'e')) {
      real = real || text_[n] == '.' || text_[n] == 'e';
      ++n;
    }
    if (n == 0) fail("a value");
    const std::string digits(text_.substr(0, n));
    text_.remove_prefix(n);
    try {
      return real ? Scalar(std::stod(digits)) : Scalar(static_cast<int64_t>(std::stoll(digits)));
    } catch (const std::exception&) {
      fail("a number");
    }
  }

  std::vector<int64_t>& integers() {
    std::vector<int64_t>& v = out_.ints.emplace_back();
    expect('(');
    while (peek() != ')') {
      v.push_back(number().integer());
      if (peek() != ')') expect(',');
    }
    expect(')');
    return v;
  }

  // Nested brackets: sizes from the first of each depth, values in row-major order.
  void nested(size_t depth, Shape& sizes, std::vector<Scalar>& values) {
    expect('[');
    const bool first = sizes.size() == depth;
    if (first) sizes.push_back(0);
    int64_t n = 0;
    while (peek() != ']') {
      if (peek() == '[')
        nested(depth + 1, sizes, values);
      else
        values.push_back(number());
      ++n;
      if (peek() != ']') expect(',');
    }
    expect(']');
    if (first)
      sizes[depth] = n;
    else if (sizes[depth] != n)
      fail("rows of one length");
  }

  Bound tensor() {
    Shape sizes;
    std::vector<Scalar> values;
    nested(0, sizes, values);
    Category c = values.empty() ? Category::floating : Category::boolean;
    std::vector<double> numbers;
    for (const Scalar& s : values) c = std::max(c, s.kind), numbers.push_back(s.real());
    const DType t = c == Category::boolean ? DType::boolean : c == Category::integer ? DType::int64 : cx_.default_dtype;
    return add(make(numbers, sizes, t), 'v');
  }

  Tensor make(const std::vector<double>& numbers, const Shape& sizes, DType t) {
    return cx_.contiguous(from_bytes(cx_, DType::float64, sizes, std::as_bytes(std::span(numbers))), t);
  }
  Bound add(Tensor t, char how) { return Bound(out_.tensors.emplace_back(Literals::Drawn{std::move(t), how}).tensor); }

  Bound optimizer() {
    text_.remove_prefix(1);
    const Shape sizes(integers());
    out_.ints.pop_back();
    return add(sample_optimizer(cx_, sizes), 'o');
  }

  Bound draw(size_t head) {
    const char how = text_[0];
    const int64_t below = head > 1 ? std::stoll(std::string(text_.substr(1, head - 1))) : 2;
    text_.remove_prefix(head);
    const Shape sizes(integers());
    out_.ints.pop_back();
    int64_t n = 1;
    for (const int64_t s : sizes) n *= s;
    std::vector<double> numbers;
    for (int64_t k = 0; k < n; ++k, ++drawn_) {
      const uint64_t noise = static_cast<uint64_t>(drawn_ + 1) * 0x9E3779B97F4A7C15 >> 40;
      if (how == 'f' || how == 'p') {
        const double magnitude = static_cast<double>(8 + (drawn_ * 23 + 5) % 57) / 32;
        numbers.push_back(how == 'f' && noise % 2 ? -magnitude : magnitude);
      } else {
        numbers.push_back(static_cast<double>(noise % static_cast<uint64_t>(below)));
      }
    }
    return add(make(numbers, sizes, how == 'i' ? DType::int64 : how == 'b' ? DType::boolean : DType::float64), how);
  }

  Bound index() {
    std::vector<IndexItem<Tensor>>& items = out_.indexes.emplace_back();
    expect('{');
    while (peek() != '}') {
      items.push_back(item());
      if (peek() != '}') expect(',');
    }
    expect('}');
    return Bound(std::span<const IndexItem<Tensor>>(items));
  }

  IndexItem<Tensor> item() {
    if (accept("...")) return ellipsis;
    if (accept("None")) return newaxis;
    if (accept("True")) return true;
    if (accept("False")) return false;
    if (peek() == '[') {
      IndexItem<Tensor> list;
      std::vector<Scalar> values;
      nested(0, list.sizes, values);
      const bool bools = !values.empty() && values[0].kind == Category::boolean;
      list.kind = bools ? ArgKind::bool_array : ArgKind::int_array;
      for (const Scalar& s : values) list.values.push_back(s.integer());
      return list;
    }
    std::optional<int64_t> part[3];
    int colons = 0;
    for (; colons < 3; ++colons) {
      const char c = peek();
      if (c != ':' && c != ',' && c != '}') part[colons] = number().integer();
      if (!accept(":")) break;
    }
    if (colons == 0) {
      if (!part[0]) fail("an index");
      return *part[0];
    }
    return Slice{part[0], part[1], part[2].value_or(1)};
  }

  Context& cx_;
  std::string_view all_, text_;
  Literals& out_;
  int64_t drawn_ = 0;
};

}  // namespace

Tensor sample_optimizer(Context& cx, std::span<const int64_t> shape) {
  const Tensor p = cx.full(shape, 1, DType::float64);
  set_grad(p, cx.full(shape, 0.5, DType::float64));
  return optim_SGD(p, 0.1, 0.9);
}

Tensor copied(const Tensor& t) {
  if (const Optimizer* o = optimizer_of(t)) return sample_optimizer(t.maker(), o->params()[0].shape());
  return copy_of(t.maker(), t);
}

std::unique_ptr<Literals> parse_literals(Context& cx, std::string_view text) {
  auto out = std::make_unique<Literals>();
  Reader(cx, text, *out).run();
  return out;
}

Arguments::Arguments(Context& cx, const OpRow& r, std::string_view text) : row(&r), literals(parse_literals(cx, text)) {
  BoundCall c;
  engine::bind(r.name(), literals->positional, literals->named, c);
  if (c.id != r.id) {
    throw std::invalid_argument("'" + std::string(text) + "' is a call of " + catalogue()[c.id].sig.full_name() +
                                ", not of " + r.sig.full_name());
  }
  auto how = [this](const Tensor& t) {
    for (const Literals::Drawn& d : literals->tensors) {
      if (d.tensor.get() == t.get()) return d.how;
    }
    return 'v';
  };
  for (int p = 0; p < row->params; ++p) {
    values[p] = c.args[p];
    if (values[p].kind == ArgKind::tensor) {
      places.push_back({p, -1, how(*values[p].tensors)});
      tensors.push_back(*values[p].tensors);
    } else if (values[p].kind == ArgKind::tensors) {
      for (uint32_t k = 0; k < values[p].count; ++k) {
        places.push_back({p, static_cast<int>(k), how(values[p].tensors[k])});
        tensors.push_back(values[p].tensors[k]);
      }
    }
  }
}

std::vector<Bound> Arguments::bound() const {
  std::vector<Bound> args(values, values + row->params);
  for (size_t i = 0; i < places.size(); ++i) {
    Bound& v = args[static_cast<size_t>(places[i].param)];
    if (places[i].element < 0)
      v = Bound(tensors[i]);
    else if (places[i].element == 0)
      v.tensors = &tensors[i];
  }
  return args;
}

Results Arguments::run(Context& cx) const { return call(cx, row->id, bound()); }

std::vector<Tensor> flat(Results r) {
  if (r.is_list) return std::move(r.list);
  std::vector<Tensor> out(std::begin(r.at), std::end(r.at));
  while (!out.empty() && !out.back()) out.pop_back();
  return out;
}

}  // namespace gradwire::engine
