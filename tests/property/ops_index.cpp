#include <algorithm>
#include <set>

#include "tests/property/draw.h"

// x[...] with every kind of index, read and written.

namespace gradwire::property {
namespace {

// Whole numbers that pick along one dim.
struct Places {
  Sizes shape, values;
};

// What x[items] is: its shape, and where its elements are in x's storage.
struct Picked {
  Sizes shape;
  std::vector<int64_t> at;
  bool picks = false;  // index arrays had a part in it; else it is `view`
  Array view;
};

// Along each dim of a mask where it is true.
std::vector<Places> nonzero(const Sizes& shape, const std::vector<Num>& mask) {
  std::vector<Places> all(shape.size());
  const Sizes steps = dense_strides(shape);
  int64_t n = 0;
  for (size_t i = 0; i < mask.size(); ++i) {
    if (!mask[i].i) continue;
    ++n;
    for (size_t d = 0; d < shape.size(); ++d) all[d].values.push_back(static_cast<int64_t>(i) / steps[d] % shape[d]);
  }
  for (Places& p : all) p.shape = {n};
  return all;
}

class Indexing {
 public:
  Indexing(const Args& a, const Array& x, const std::vector<Item>& items) : a_(a), x_(x) {
    int64_t taken = 0;
    for (const Item& item : items) taken += takes(item);
    if (taken > x.ndim()) throw Redraw{"too many indices"};
    view_ = alias(x, {}, {}, x.offset);
    bool open = false;
    for (const Item& item : items) {
      if (item.kind != Item::ellipsis) {
        take(item);
        continue;
      }
      if (open) throw Redraw{"two ellipses"};
      open = true;
      for (int64_t k = x.ndim() - taken; k > 0; --k) keep();
    }
    while (dim_ < x.shape.size()) keep();
  }

  Picked picked() const {
    Picked p;
    p.view = view_;
    const size_t n = view_.shape.size();
    size_t first = n, last = 0, arrays = 0;
    Sizes common;
    for (size_t d = 0; d < n; ++d) {
      if (!by_[d]) continue;
      for (const int64_t k : by_[d]->values) {
        if (k < -view_.shape[d] || k >= view_.shape[d]) throw Redraw{"an index out of range"};
      }
      common = broadcast(common, by_[d]->shape);
      first = std::min(first, d), last = d, ++arrays;
    }
    if (arrays == 0) {
      p.shape = view_.shape, p.at = places(view_);
      return p;
    }
    p.picks = true;
    // Where the dims of the index arrays stand in the result: in their place if they are neighbours, else in front.
    const size_t front = last - first + 1 == arrays ? first : 0;
    std::vector<int64_t> from(n, -1);  // which dim of the result an unpicked dim of the view is
    size_t rest = 0;
    for (size_t d = 0; d < n; ++d) {
      if (by_[d]) continue;
      if (rest == front) p.shape.insert(p.shape.end(), common.begin(), common.end());
      from[d] = static_cast<int64_t>(p.shape.size());
      p.shape.push_back(view_.shape[d]);
      ++rest;
    }
    if (rest <= front) p.shape.insert(p.shape.end(), common.begin(), common.end());
    const Sizes steps = dense_strides(p.shape);
    const int64_t total = count(p.shape);
    for (int64_t i = 0; i < total; ++i) {
      int64_t place = view_.offset;
      for (size_t d = 0; d < n; ++d) {
        int64_t k;
        if (by_[d]) {
          k = 0;  // the number of the element of the index array
          const Sizes& s = by_[d]->shape;
          for (size_t c = 0; c < s.size(); ++c) {
            const size_t at = front + common.size() - s.size() + c;
            k = k * s[c] + (s[c] == 1 ? 0 : i / steps[at] % p.shape[at]);
          }
          k = by_[d]->values[static_cast<size_t>(k)];
          if (k < 0) k += view_.shape[d];
        } else {
          k = i / steps[static_cast<size_t>(from[d])] % view_.shape[d];
        }
        place += k * view_.strides[d];
      }
      p.at.push_back(place);
    }
    return p;
  }

 private:
  int64_t takes(const Item& item) const {
    switch (item.kind) {
      case Item::boolean:
      case Item::ellipsis:
      case Item::newaxis:
        return 0;
      case Item::bools:
        return static_cast<int64_t>(item.sizes.size());
      case Item::var:
        return a_.at(item.at).dtype == DType::int64 ? 1 : a_.at(item.at).ndim();
      default:
        return 1;
    }
  }
  void push(int64_t size, int64_t stride, std::optional<Places> by = {}) {
    view_.shape.push_back(size), view_.strides.push_back(stride), by_.push_back(std::move(by));
  }
  void keep() { push(x_.shape[dim_], x_.strides[dim_]), ++dim_; }
  void pick(Places by) { push(x_.shape[dim_], x_.strides[dim_], std::move(by)), ++dim_; }
  void select(int64_t i) {
    const int64_t size = x_.shape[dim_];
    if (i < -size || i >= size) throw Redraw{"an index out of range"};
    view_.offset += (i < 0 ? i + size : i) * x_.strides[dim_];
    ++dim_;
  }
  void yes_or_no(bool yes) { push(1, 0, Places{{yes}, Sizes(yes, 0)}); }
  void mask(const Sizes& shape, const std::vector<Num>& bits) {
    if (shape.empty()) return yes_or_no(bits.at(0).i != 0);
    for (size_t d = 0; d < shape.size(); ++d) {
      if (shape[d] != x_.shape[dim_ + d]) throw Redraw{"a mask of another size"};
    }
    for (Places& p : nonzero(shape, bits)) pick(std::move(p));
  }

  void take(const Item& item) {
    switch (item.kind) {
      case Item::newaxis:
        return push(1, 0);
      case Item::integer:
        return select(item.at);
      case Item::boolean:
        return yes_or_no(item.at != 0);
      case Item::slice: {
        // As Python has it: bounds from the end where negative, cut to the size.
        const int64_t size = x_.shape[dim_];
        const auto bound = [&](int64_t b) { return std::clamp<int64_t>(b < 0 ? b + size : b, 0, size); };
        const int64_t start = item.start ? bound(*item.start) : 0, stop = item.stop ? bound(*item.stop) : size;
        int64_t length = 0;
        for (int64_t k = start; k < stop; k += item.step) ++length;
        if (length > 0) view_.offset += start * x_.strides[dim_];
        push(length, x_.strides[dim_] * item.step);
        ++dim_;
        return;
      }
      case Item::ints:
        return pick({item.sizes, item.values});
      case Item::bools: {
        std::vector<Num> bits;
        for (const int64_t v : item.values) bits.push_back(whole(DType::boolean, v));
        return mask(item.sizes, bits);
      }
      default: {
        const Array& t = a_.at(item.at);
        const std::vector<Num> all = elements(t);
        if (t.dtype == DType::boolean || t.dtype == DType::uint8) return mask(t.shape, all);
        if (t.dtype != DType::int64) throw Redraw{"an index of another dtype"};
        if (t.shape.empty()) return select(all[0].i);
        Places p{t.shape, {}};
        for (const Num& n : all) p.values.push_back(n.i);
        pick(std::move(p));
      }
    }
  }

  const Args& a_;
  const Array& x_;
  size_t dim_ = 0;
  Array view_;  // after integers, slices and new axes
  std::vector<std::optional<Places>> by_;
};

std::vector<Array> index(const Args& a) {
  const Array& x = a.array(0);
  const Picked p = Indexing(a, x, a.items(1)).picked();
  if (!p.picks) return {p.view};
  std::vector<Num> out;
  for (const int64_t place : p.at) {
    out.push_back(x.store->cells.at(static_cast<size_t>(place)));
    if (x.detached) out.back().d = 0;
  }
  return {fresh(x.dtype, p.shape, std::move(out))};
}

std::vector<Array> index_put(const Args& a) {
  // The same index into a dense copy, so that places are its row-major numbers.
  const Array x = fresh(a.array(0).dtype, a.array(0).shape, elements(a.array(0)));
  const Picked p = Indexing(a, x, a.items(1)).picked();
  const bool add = a.flag(3);
  std::vector<Num> values;
  if (a.is_array(2)) {
    Array value = a.array(2);
    if (p.picks && value.dtype != x.dtype && !value.shape.empty()) throw Redraw{"another dtype than self's"};
    while (value.shape.size() > p.shape.size() && value.shape[0] == 1) value = without(value, 0, 0);
    values = elements(widened(value, p.shape), x.dtype);
  } else {
    values.assign(p.at.size(), number(a.scalar(2), x.dtype));
  }
  std::vector<Num>& cells = x.store->cells;
  std::set<int64_t> seen;
  for (size_t i = 0; i < p.at.size(); ++i) {
    Num& cell = cells[static_cast<size_t>(p.at[i])];
    const Num& v = values[i];
    const bool again = !seen.insert(p.at[i]).second;
    if (!add) {
      // Which of several writes stays is no smooth question.
      if (again && (v.d != 0 || cell.d != 0)) throw Redraw{"a place twice"};
      cell = v;
    } else if (x.dtype == DType::boolean) {
      cell = whole(x.dtype, cell.i | v.i);
    } else if (!is_floating(x.dtype)) {
      cell = whole(x.dtype, static_cast<int64_t>(static_cast<uint64_t>(cell.i) + static_cast<uint64_t>(v.i)));
    } else {
      cell = real(x.dtype, cell.v + v.v, cell.e + v.e, cell.d + v.d);
    }
  }
  return {x};
}

// ---- arguments ----

// An index for x; d's own draws decide its kinds.
std::vector<Item> draw_items(Draw& d, const Array& x) {
  std::vector<Item> items;
  const int style = static_cast<int>(d.dice.below(10));  // 0..4: views only
  bool open = false;
  Sizes common{d.dice.between(1, 3)};
  if (d.dice.chance(30)) common.insert(common.begin(), d.dice.between(1, 2));
  const auto extra = [&] {
    Item item;
    if (d.dice.chance(8)) items.push_back(item);
    if (style >= 5 && d.dice.chance(2)) item.kind = Item::boolean, item.at = d.dice.below(4) > 0, items.push_back(item);
  };
  const auto array_shape = [&] {
    Sizes s = common;
    if (s.size() > 1 && d.dice.chance(30)) s.erase(s.begin());
    if (d.dice.chance(20)) s.back() = 1;
    return s;
  };
  for (size_t k = 0; k < x.shape.size();) {
    extra();
    const int64_t size = x.shape[k];
    Item item;
    int64_t kind = d.dice.below(style < 5 ? 5 : 10);
    if (size == 0 && (kind == 0 || kind > 4)) kind = 1;
    if (kind == 0) {
      item.kind = Item::integer, item.at = d.dice.between(-size, size - 1);
    } else if (kind <= 2) {
      item.kind = Item::slice;
      if (d.dice.chance(60)) item.start = d.dice.between(-size - 1, size + 1);
      if (d.dice.chance(50))
        item.stop = d.dice.chance(70) ? size - d.dice.below(2) : d.dice.between(-size - 1, size + 1);
      if (d.dice.chance(30)) item.step = d.dice.between(1, 3);
    } else if (kind == 3) {
      if (d.dice.chance(40)) break;  // the rest is kept
      item.kind = Item::slice;
    } else if (kind == 4) {
      if (open) continue;
      open = true;
      item.kind = Item::ellipsis;
      items.push_back(item);
      k += static_cast<size_t>(d.dice.below(static_cast<int64_t>(x.shape.size() - k) + 1));
      // What the ellipsis spans is settled by what follows: all dims up to the end.
      continue;
    } else if (kind <= 6) {
      item.kind = Item::ints, item.sizes = array_shape();
      for (int64_t n = count(item.sizes); n > 0; --n) item.values.push_back(d.dice.between(-size, size - 1));
    } else if (kind == 7) {
      item.kind = Item::var;
      item.at = d.indices(d.dice.chance(85) ? array_shape() : Sizes{}, -size, size);
    } else {
      // A mask over one or two dims, as a list or a tensor.
      Sizes over{size};
      if (k + 1 < x.shape.size() && d.dice.chance(40)) over.push_back(x.shape[k + 1]);
      if (kind == 8) {
        item.kind = Item::bools, item.sizes = over;
        for (int64_t n = count(over); n > 0; --n) item.values.push_back(d.dice.below(2));
      } else {
        item.kind = Item::var;
        const DType t = d.dice.chance(80) ? DType::boolean : DType::uint8;
        const int found = d.pick([&](const Array& a) { return a.dtype == t && a.shape == over; });
        item.at = found >= 0 ? found : d.input(t, over);
      }
      k += over.size() - 1;
    }
    items.push_back(item);
    ++k;
  }
  extra();
  return items;
}

bool draw_index(Draw& d) {
  if (!d.array(0)) return false;
  const Array x = d.at(0);
  d.set(1, Arg::of(draw_items(d, x)));
  return true;
}

bool draw_put(Draw& d) {
  if (!draw_index(d)) return false;
  const Array x = d.at(0);
  Step s;
  s.args = d.args;
  const Picked p = Indexing(Args(s, d.env), x, d.args[1].items).picked();
  if (d.dice.chance(25)) {
    Scalar number = d.scalar(x.dtype);
    if (x.dtype == DType::uint8) number = Scalar(std::abs(number.integer()));
    d.set(2, Arg::of(number));
  } else {
    const bool same = p.picks || d.dice.chance(70);
    const int v = d.partner(p.shape, same ? x.dtype : d.dtype(), true);
    if (v < 0) return false;
    d.set(2, Arg::of_var(v));
  }
  if (d.dice.chance(50)) d.set(3, Arg::of(Scalar(d.dice.chance(70))));
  return true;
}

constexpr Row kRows[] = {
    {.name = "index", .params = "self, index", .draw = draw_index, .eval = index, .saves = kIndices, .weight = 8},
    {.name = "index_put",
     .params = "self, index, values, accumulate",
     .draw = draw_put,
     .eval = index_put,
     .inplace = true,
     .saves = kIndices,
     .copies = true,
     .weight = 6},
};

}  // namespace

constinit const std::span<const Row> kIndexing = kRows;

}  // namespace gradwire::property
