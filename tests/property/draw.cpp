#include "tests/property/draw.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace gradwire::property {
namespace {

constexpr int64_t kMostElements = 300;
constexpr DType kTypes[] = {DType::boolean, DType::uint8,   DType::int8,     DType::int16,   DType::int32,
                            DType::int64,   DType::float16, DType::bfloat16, DType::float32, DType::float64};

uint64_t mixed(uint64_t x) {  // splitmix64
  x += 0x9E3779B97F4A7C15;
  x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9;
  x = (x ^ x >> 27) * 0x94D049BB133111EB;
  return x ^ x >> 31;
}

}  // namespace

uint64_t Dice::bits() { return mixed(state_++); }

Draw::Draw(uint64_t seed, uint64_t index, bool gradients) : dice(mixed(seed) ^ mixed(index * 2 + 1)) {
  dice = Dice(dice.bits());
  program.seed = seed, program.index = index, program.gradients = gradients;
}

int Draw::pick(const Fits& fits) {
  // Later variables more often: programs get deep.
  std::vector<int> all;
  for (size_t v = 0; v < env.size(); ++v) {
    if (env[v].valid() && (!fits || fits(env[v]))) all.push_back(static_cast<int>(v));
  }
  if (all.empty()) return -1;
  const auto n = static_cast<int64_t>(all.size());
  return all[static_cast<size_t>(std::max(dice.below(n), dice.below(n)))];
}

bool Draw::array(size_t i, const Fits& fits) {
  const int v = pick(fits);
  if (v < 0) return false;
  set(i, Arg::of_var(v));
  return true;
}

int Draw::partner(const Sizes& shape, DType dtype, bool into) {
  const int found = pick([&](const Array& a) {
    if (a.dtype != dtype) return false;
    if (broadcasts(a.shape, shape)) return true;
    return !into && broadcasts(shape, a.shape) && count(a.shape) <= kMostElements;
  });
  if (found >= 0 && dice.chance(90)) return found;
  Sizes mine = shape;
  if (dice.chance(30)) mine.erase(mine.begin(), mine.begin() + dice.below(static_cast<int64_t>(mine.size()) + 1));
  for (int64_t& s : mine) {
    if (dice.chance(20)) s = 1;
  }
  return input(dtype, mine);
}

int Draw::add(Step step) {
  const int v = program.variables++;
  step.outs = {v};
  interpret(step, env);
  program.steps.push_back(std::move(step));
  return v;
}

int Draw::input(DType dtype, const Sizes& shape, std::vector<Num> values) {
  Step s;
  s.literal = fresh(dtype, shape, std::move(values));
  return add(std::move(s));
}

int Draw::input(DType dtype, const Sizes& shape) {
  std::vector<Num> values(static_cast<size_t>(count(shape)));
  const int style = static_cast<int>(dice.below(10));
  for (Num& n : values) {
    n = value(dtype);
    if (!is_floating(dtype)) continue;
    if (style < 3) n.v = std::max(std::abs(n.v), 0.25);
    if (style == 3) n.v = round_to(dtype, n.v * (0.5 + dice.uniform()));
    if (style == 4 && !program.gradients && dice.chance(20)) {
      const double odd[] = {std::numeric_limits<double>::infinity(), -std::numeric_limits<double>::infinity(),
                            std::nan(""), -0.0};
      if (dice.chance(40)) n.v = odd[dice.below(4)];
    }
    if (program.gradients) {
      n.v = round_to(dtype, (0.25 + 1.75 * dice.uniform()) * (style < 5 || dice.chance(50) ? 1 : -1));
      n.d = 0;
    }
  }
  Step s;
  if (program.gradients && dtype == DType::float64 && dice.chance(70)) {
    s.leaf = true;
    for (Num& n : values) n.d = 2 * dice.uniform() - 1;
  }
  s.literal = fresh(dtype, shape, std::move(values));
  return add(std::move(s));
}

int Draw::indices(const Sizes& shape, int64_t low, int64_t high) {
  std::vector<Num> values(static_cast<size_t>(count(shape)));
  if (!values.empty() && low >= high) throw Redraw{"no index fits"};
  for (Num& n : values) n.i = dice.between(low, high - 1);
  return input(DType::int64, shape, std::move(values));
}

Sizes Draw::shape() {
  Sizes s(static_cast<size_t>(dice.chance(10) ? 0 : dice.between(1, dice.chance(20) ? 4 : 3)));
  const bool empty = dice.chance(5), large = dice.chance(8);
  for (int64_t& size : s) size = dice.chance(15) ? 1 : dice.between(2, 4);
  if (!s.empty() && empty) s[static_cast<size_t>(dice.below(static_cast<int64_t>(s.size())))] = 0;
  if (!s.empty() && large) {
    int64_t& size = s[static_cast<size_t>(dice.below(static_cast<int64_t>(s.size())))];
    size = dice.between(9, 70);
    if (count(s) > kMostElements) size = 5;
  }
  return s;
}

DType Draw::dtype() {
  if (program.gradients) {
    const int64_t k = dice.below(20);
    return k == 0 ? DType::int64 : k == 1 ? DType::boolean : DType::float64;
  }
  return kTypes[dice.below(10)];
}

DType Draw::float_type() { return program.gradients ? DType::float64 : kTypes[dice.between(6, 9)]; }

Scalar Draw::scalar(DType beside) {
  const int64_t k = dice.below(10);
  if (k == 0) return Scalar(dice.chance(50));
  if (k < 5 || (inplace && !is_floating(beside))) return Scalar(dice.between(beside == DType::uint8 ? 0 : -3, 7));
  // Every floating dtype holds these.
  return Scalar(static_cast<double>(dice.between(-12, 12)) / 4);
}

int64_t Draw::dim(int64_t ndim) {
  ndim = std::max<int64_t>(ndim, 1);
  return dice.between(-ndim, ndim - 1);
}

Num Draw::value(DType dtype) {
  Num n;
  if (is_floating(dtype)) {
    n.v = static_cast<double>(dice.between(-32, 32)) / 8;
  } else if (dtype == DType::boolean) {
    n.i = dice.below(2);
  } else if (dice.chance(4)) {  // anything that it holds
    n.i = wrap(dtype, dice.bits());
  } else {
    n.i = wrap(dtype, static_cast<uint64_t>(dice.between(dtype == DType::uint8 ? 0 : -4, 9)));
  }
  return n;
}

namespace {

// What is computed with: small, and with gradients finite.
bool fits(const Draw& d, const Array& a) {
  if (count(a.shape) > kMostElements || a.shape.size() > 6) return false;
  if (!d.program.gradients || !is_floating(a.dtype)) return true;
  const std::vector<Num> all = elements(a);
  return std::all_of(all.begin(), all.end(), [](const Num& n) { return std::isfinite(n.v); });
}

bool exceeds(const Array& a) {
  if (!is_floating(a.dtype)) return false;
  const std::vector<Num> all = elements(a);
  return std::any_of(all.begin(), all.end(), [](const Num& n) { return n.e > 1e-3 * std::max(1.0, std::abs(n.v)); });
}

void name_some(Draw& d, Step& s) {
  const size_t only = keyword_only_from(*s.row);
  size_t from = s.args.size();
  if (d.dice.chance(20)) from = static_cast<size_t>(d.dice.below(static_cast<int64_t>(s.args.size()) + 1));
  for (size_t i = 0; i < s.args.size(); ++i) {
    if (s.args[i].kind == Arg::dtype) from = std::min(from, i);  // a text by position is a tensor's name
    s.args[i].named = i >= std::min(from, only);
  }
}

// One more operator, or nothing if what was drawn does not fit.
bool draw_step(Draw& d, const Row& row, bool inplace) {
  const size_t steps = d.program.steps.size(), known = d.env.size();
  const int variables = d.program.variables;
  const auto undo = [&] {
    d.program.steps.resize(steps), d.env.resize(known), d.program.variables = variables;
    return false;
  };
  try {
    Step s;
    s.row = &row, s.inplace = inplace;
    d.args.assign(names_of(row).size(), Arg());
    d.inplace = inplace;
    if (!row.draw(d)) return undo();
    s.args = d.args;
    if (inplace && s.args[0].kind != Arg::var) return undo();
    const std::vector<Array> results = row.eval(Args(s, d.env));
    if (results.empty() || !std::all_of(results.begin(), results.end(), [&](const Array& a) { return fits(d, a); }))
      return undo();
    if (!inplace) {
      for (size_t k = 0; k < results.size(); ++k) s.outs.push_back(d.program.variables++);
    }
    name_some(d, s);
    interpret(s, d.env);
    for (const int64_t v : s.outs) {
      const Array& a = d.env[static_cast<size_t>(v)];
      if (a.requires_grad() && a.dtype != DType::float64) return undo();
    }
    d.program.steps.push_back(std::move(s));
    return true;
  } catch (const Redraw&) {
    return undo();
  }
}

}  // namespace

Program draw_program(const Rows& rows, uint64_t seed, uint64_t index, bool gradients, Redraws& redraws) {
  int64_t weights = 0;
  for (const Known& k : rows) weights += k.row->weight;
  for (uint64_t attempt = 0;; ++attempt) {
    Draw d(seed + attempt * 0x100000001, index, gradients);
    d.program.seed = seed;
    for (int64_t n = d.dice.between(1, 4); n > 0; --n)
      d.input(d.dice.chance(60) ? d.float_type() : d.dtype(), d.shape());
    int64_t operators = d.dice.between(1, 64);
    bool good = true;
    for (int64_t tries = 40 * operators; operators > 0 && tries > 0 && good; --tries) {
      if (d.dice.chance(3)) d.input(d.dtype(), d.shape());
      int64_t k = d.dice.below(weights);
      size_t r = 0;
      while ((k -= rows[r].row->weight) >= 0) ++r;
      const Known& known = rows[r];
      const bool inplace = known.row->only_inplace || (known.inplace && d.dice.chance(50));
      if (!draw_step(d, *known.row, inplace)) continue;
      --operators;
      const Step& s = d.program.steps.back();
      for (const int64_t v : s.inplace ? s.args[0].list : s.outs)
        good = good && !exceeds(d.env[static_cast<size_t>(v)]);
    }
    ++redraws.drawn;
    if (good) return d.program;
    ++redraws.redrawn;
  }
}

}  // namespace gradwire::property
