#include "engine/einsum.h"

#include <algorithm>
#include <limits>
#include <string>

#include "engine/shape.h"
#include "schema/error.h"
#include "schema/ops.h"

namespace gradwire::engine::contraction {
namespace {

std::string number(size_t n) { return std::to_string(n); }

Error refuse(const std::string& why) { return Error(Code::bad_argument, "einsum(): " + why); }

// -1 for what is no letter.
int label_of(char c) { return c >= 'A' && c <= 'Z' ? c - 'A' : c >= 'a' && c <= 'z' ? c - 'a' + 26 : -1; }
char letter(int label) { return static_cast<char>(label < 26 ? 'A' + label : 'a' + label - 26); }

constexpr uint8_t kEllipsis = 255;  // "..." as long as its dims are not known

// The letters and "..." of one operand or of the result, the first of which stands at `offset` in the equation.
Labels letters(std::string_view text, size_t offset, const std::string& whose, bool result) {
  Labels labels;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == ' ') continue;
    if (text[i] == '.') {
      if (std::find(labels.begin(), labels.end(), kEllipsis) != labels.end()) {
        throw refuse(
            "found '.' for " + whose +
            (result ? " but an ellipsis (...) was already found" : " for which an ellipsis was already found"));
      }
      if (text.substr(i, 3) != "...") {
        throw refuse("found '.' for " + whose + " that is not part of any ellipsis" + (result ? " (...)" : ""));
      }
      i += 2;
      labels.push_back(kEllipsis);
      continue;
    }
    const int label = label_of(text[i]);
    if (label < 0) {
      throw refuse("invalid subscript given at index " + number(offset + i) +
                   " in the equation string, subscripts must be in [a-zA-Z]");
    }
    labels.push_back(static_cast<uint8_t>(label));
  }
  return labels;
}

bool contains(const Labels& labels, int label) {
  return std::find(labels.begin(), labels.end(), static_cast<uint8_t>(label)) != labels.end();
}

// "..." becomes its last n labels of `all`.
Labels spelt(const Labels& labels, size_t n, size_t all) {
  Labels out;
  for (const uint8_t label : labels) {
    if (label != kEllipsis) {
      out.push_back(label);
      continue;
    }
    for (size_t d = all - n; d < all; ++d) out.push_back(static_cast<uint8_t>(kLetters + d));
  }
  return out;
}

}  // namespace

Equation parse(std::string_view text, std::span<const int> ndims) {
  const size_t arrow = text.find("->"), left = std::min(arrow, text.size());
  std::vector<Labels> in;
  for (size_t from = 0; from <= left;) {
    if (in.size() == ndims.size()) throw refuse("fewer operands were provided than specified in the equation");
    const size_t comma = std::min(text.substr(0, left).find(',', from), left);
    in.push_back(letters(text.substr(from, comma - from), from, "operand " + number(in.size()), false));
    from = comma + 1;
  }
  if (in.size() < ndims.size()) throw refuse("more operands were provided than specified in the equation");

  // How many dims "..." stands for in each, and at most.
  std::vector<size_t> dims(in.size(), 0);
  size_t most = 0;
  bool any = false;
  int counts[kLabels] = {};
  for (size_t k = 0; k < in.size(); ++k) {
    const bool dots = contains(in[k], kEllipsis);
    const size_t named = in[k].size() - dots, have = static_cast<size_t>(ndims[k]);
    if (dots ? named > have : named != have) {
      throw refuse(
          "the number of subscripts in the equation (" + number(named) +
          (dots ? ") is more than the number of dimensions (" : ") does not match the number of dimensions (") +
          number(have) + ") for operand " + number(k) + (dots ? "" : " and no ellipsis was given"));
    }
    if (dots) dims[k] = have - named, most = std::max(most, dims[k]), any = true;
    for (const uint8_t label : in[k]) counts[label == kEllipsis ? kLetters : label] += label != kEllipsis;
  }

  Labels out;
  if (arrow == std::string_view::npos) {
    if (any) out.push_back(kEllipsis);
    for (int label = 0; label < kLetters; ++label) {
      if (counts[label] == 1) out.push_back(static_cast<uint8_t>(label));
    }
  } else {
    out = letters(text.substr(arrow + 2), arrow + 2, "output", true);
    bool seen[kLetters] = {};
    for (const uint8_t label : out) {
      if (label == kEllipsis) continue;
      if (counts[label] > 0 && !std::exchange(seen[label], true)) continue;
      throw refuse(std::string("output subscript ") + letter(label) +
                   (counts[label] > 0 ? " appears more than once in the output"
                                      : " does not appear in the equation for any input operand"));
    }
  }

  Equation e;
  for (size_t k = 0; k < in.size(); ++k) e.in.push_back(spelt(in[k], dims[k], most));
  e.out = spelt(out, most, most);
  return e;
}

std::pair<size_t, size_t> best_pair(std::span<const Labels> terms, const Labels& out, std::span<const int64_t> sizes) {
  int uses[kLabels] = {};
  for (const uint8_t label : out) ++uses[label];
  std::vector<std::bitset<kLabels>> sets(terms.size());
  for (size_t k = 0; k < terms.size(); ++k) {
    for (const uint8_t label : terms[k]) ++uses[label], sets[k].set(label);
  }
  // Only compared: a double holds any product of sizes nearly enough.
  const auto size = [&](const std::bitset<kLabels>& set) {
    double n = 1;
    for (int label = 0; label < kLabels; ++label) n *= set[label] ? static_cast<double>(sizes[label]) : 1;
    return n;
  };
  std::pair<size_t, size_t> best{0, 1};
  double least = std::numeric_limits<double>::infinity(), work = least;
  std::vector<double> own;
  for (const auto& set : sets) own.push_back(size(set));
  for (size_t i = 0; i < sets.size(); ++i) {
    for (size_t j = i + 1; j < sets.size(); ++j) {
      std::bitset<kLabels> all = sets[i] | sets[j], kept = all;
      for (int label = 0; label < kLabels; ++label) {
        if (all[label] && uses[label] == sets[i][label] + sets[j][label]) kept.reset(label);
      }
      const double grows = size(kept) - own[i] - own[j], steps = size(all);
      if (grows < least || (grows == least && steps < work)) best = {i, j}, least = grows, work = steps;
    }
  }
  return best;
}

Tensor diagonal(const Tensor& t, int a, int b) {
  // Where the elements stand in t's memory, and where in a contiguous tensor of its shape.
  const Shape flat = contiguous_strides(t.shape());
  Shape shape, strides, within;
  for (int d = 0; d < t.ndim(); ++d) {
    if (d == a || d == b) continue;
    shape.push_back(t.size(d)), strides.push_back(t.strides()[d]), within.push_back(flat[d]);
  }
  const int64_t n = std::min(t.size(a), t.size(b));
  shape.push_back(n);
  strides.push_back(n > 1 ? t.strides()[a] + t.strides()[b] : 1);
  within.push_back(n > 1 ? flat[a] + flat[b] : 1);
  return strided_view(t, shape, strides, t->offset, within, 0);
}

namespace {

struct Term {
  Tensor tensor;
  Labels labels;
  bool summed = false;  // alone: whole numbers are int64 since then
};

// Labels that stand twice for one operand mean its diagonal.
void take_diagonals(Term& t, size_t operand) {
  for (size_t b = 1; b < t.labels.size();) {
    const auto first = std::find(t.labels.begin(), t.labels.begin() + static_cast<ptrdiff_t>(b), t.labels[b]);
    const auto a = static_cast<size_t>(first - t.labels.begin());
    if (a == b) {
      ++b;
      continue;
    }
    const int64_t p = t.tensor.shape()[a], q = t.tensor.shape()[b];
    if (p != q) {
      throw Error(Code::shape_mismatch, std::string("einsum(): subscript ") + letter(t.labels[b]) +
                                            " is repeated for operand " + number(operand) +
                                            " but the sizes don't match, " + std::to_string(q) +
                                            " != " + std::to_string(p));
    }
    const uint8_t label = t.labels[b];
    t.tensor = diagonal(t.tensor, static_cast<int>(a), static_cast<int>(b));
    t.labels.erase(t.labels.begin() + static_cast<ptrdiff_t>(b));
    t.labels.erase(t.labels.begin() + static_cast<ptrdiff_t>(a));
    t.labels.push_back(label);
    b = 1;
  }
}

// The size of each label; 1 goes with any other.
void join_sizes(const Term& t, size_t operand, int64_t* sizes) {
  for (size_t d = 0; d < t.labels.size(); ++d) {
    const int label = t.labels[d];
    const int64_t size = t.tensor.shape()[d];
    if (sizes[label] == 1) sizes[label] = size;
    if (size == 1 || sizes[label] == size) continue;
    if (label < kLetters) {
      throw Error(Code::shape_mismatch, std::string("einsum(): subscript ") + letter(label) + " has size " +
                                            std::to_string(size) + " for operand " + number(operand) +
                                            " which does not broadcast with previously seen size " +
                                            std::to_string(sizes[label]));
    }
    throw Error(Code::shape_mismatch, "einsum(): dimension " + std::to_string(label - kLetters) +
                                          " covered by ellipsis in operand " + number(operand) + " has size " +
                                          std::to_string(size) +
                                          " which does not broadcast with previously seen ellipsis with size " +
                                          std::to_string(sizes[label]) + " for the respective dimension");
  }
}

Tensor in_order(const Term& t, const Labels& labels) {
  if (t.labels == labels) return t.tensor;
  Shape order;
  for (const uint8_t label : labels)
    order.push_back(std::find(t.labels.begin(), t.labels.end(), label) - t.labels.begin());
  return permute(t.tensor, order);
}

// Sums over the labels that `gone` says.
template <class F> void reduce(Term& t, F gone) {
  Shape dims;
  Labels left;
  for (size_t d = 0; d < t.labels.size(); ++d) {
    if (gone(t.labels[d]))
      dims.push_back(static_cast<int64_t>(d));
    else
      left.push_back(t.labels[d]);
  }
  if (dims.empty()) return;
  t.tensor = sum(t.tensor, dims);
  t.labels = std::move(left), t.summed = true;
}

Labels joined(std::initializer_list<const Labels*> parts) {
  Labels all;
  for (const Labels* p : parts) all.insert(all.end(), p->begin(), p->end());
  return all;
}

// One product: over shared labels that nobody else wants, a sum of products. Neither term has a label of its own that
// nobody else wants.
Term multiply(const Term& x, const Term& y, std::span<const int64_t> sizes, const int* uses) {
  Labels batch, left, right, over;
  for (const uint8_t label : x.labels)
    (!contains(y.labels, label) ? left : uses[label] > 2 ? batch : over).push_back(label);
  for (const uint8_t label : y.labels) {
    if (!contains(x.labels, label)) right.push_back(label);
  }
  const auto shape_of = [&](const Labels& labels) {
    Shape s;
    for (const uint8_t label : labels) s.push_back(sizes[label]);
    return s;
  };
  Term out{{}, joined({&batch, &left, &right}), x.summed || y.summed};
  const Shape full = shape_of(out.labels);
  if (over.empty()) {
    Shape a = shape_of(batch), b = a;
    for (const uint8_t label : left) a.push_back(sizes[label]), b.push_back(1);
    for (const uint8_t label : right) a.push_back(1), b.push_back(sizes[label]);
    checked_numel(full);
    out.tensor = mul(view(in_order(x, joined({&batch, &left})), a), view(in_order(y, joined({&batch, &right})), b));
    return out;
  }
  // A vector on either side where it has no label of its own; in batches a row or a column.
  const auto side = [&](const Labels& own) -> Shape {
    if (own.empty() && batch.empty()) return {};
    return Shape{checked_numel(shape_of(own))};
  };
  const int64_t depth = checked_numel(shape_of(over));
  Shape a = shape_of(batch), b = a;
  for (const int64_t n : side(left)) a.push_back(n);
  a.push_back(depth), b.push_back(depth);
  for (const int64_t n : side(right)) b.push_back(n);
  const auto matrix = [](const Tensor& t, const Shape& shape) {
    return std::ranges::equal(t.shape(), std::span<const int64_t>(shape)) ? t : reshape(t, shape);
  };
  Tensor p = matrix(in_order(x, joined({&batch, &left, &over})), a),
         q = matrix(in_order(y, joined({&batch, &over, &right})), b);
  if (out.summed && !is_floating(p.dtype()) && !is_floating(q.dtype())) {
    p = to(p, DType::int64), q = to(q, DType::int64);
  }
  if (p.dtype() != q.dtype()) {
    throw Error(Code::dtype_mismatch,
                std::string("expected scalar type ") + row(p.dtype()).torch + " but found " + row(q.dtype()).torch);
  }
  p = matmul(p, q);
  out.tensor = std::ranges::equal(p.shape(), std::span<const int64_t>(full)) ? p : view(p, full);
  return out;
}

}  // namespace

Tensor contract(Context&, std::string_view equation, std::span<const Tensor> operands) {
  if (operands.empty()) throw refuse("must provide at least one operand");
  if (operands.size() > kMaxOperands)
    throw refuse("takes at most " + number(kMaxOperands) + " operands but got " + number(operands.size()));
  std::vector<int> ndims;
  for (const Tensor& t : operands) ndims.push_back(t.ndim());
  Equation e = parse(equation, ndims);
  std::vector<Term> terms;
  int64_t sizes[kLabels];
  std::fill(std::begin(sizes), std::end(sizes), 1);
  for (size_t k = 0; k < operands.size(); ++k) {
    terms.push_back({operands[k], std::move(e.in[k])});
    take_diagonals(terms[k], k);
    join_sizes(terms[k], k, sizes);
  }
  if (terms.size() == 1) {
    reduce(terms[0], [&](int label) { return !contains(e.out, label); });
    return in_order(terms[0], e.out);
  }

  // Dims of size 1 come back at the end; with them gone, each label has one size.
  Labels out;
  Shape full;
  for (const uint8_t label : e.out) {
    full.push_back(sizes[label]);
    if (sizes[label] != 1) out.push_back(label);
  }
  for (Term& t : terms) {
    Labels kept;
    Shape shape;
    for (size_t d = 0; d < t.labels.size(); ++d) {
      if (t.tensor.shape()[d] != 1) kept.push_back(t.labels[d]), shape.push_back(t.tensor.shape()[d]);
    }
    if (kept.size() != t.labels.size()) t.tensor = view(t.tensor, shape), t.labels = std::move(kept);
  }
  int uses[kLabels] = {};
  for (const uint8_t label : out) uses[label] = 1;
  for (const Term& t : terms) {
    for (const uint8_t label : t.labels) ++uses[label];
  }
  for (Term& t : terms) reduce(t, [&](int label) { return uses[label] == 1; });
  while (terms.size() > 1) {
    std::vector<Labels> labels;
    for (const Term& t : terms) labels.push_back(t.labels);
    const auto [i, j] = best_pair(labels, out, sizes);
    Term made = multiply(terms[i], terms[j], sizes, uses);
    for (const size_t k : {i, j}) {
      for (const uint8_t label : terms[k].labels) --uses[label];
    }
    for (const uint8_t label : made.labels) ++uses[label];
    terms.erase(terms.begin() + static_cast<ptrdiff_t>(j));
    terms[i] = std::move(made);
  }
  const Tensor y = in_order(terms[0], out);
  return out.size() == full.size() ? y : view(y, full);
}

}  // namespace gradwire::engine::contraction
