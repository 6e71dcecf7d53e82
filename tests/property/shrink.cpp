#include <algorithm>
#include <set>

#include "tests/property/run.h"

namespace gradwire::property {
namespace {

// The failure of a candidate; none where it runs well or cannot run.
std::optional<Failure> failing(const Program& p) {
  try {
    return run(p);
  } catch (const Redraw&) {
    return std::nullopt;
  }
}

// Without step k and all that needs what it makes.
Program without(const Program& p, size_t k) {
  Program q = p;
  q.steps.clear();
  std::set<int64_t> gone(p.steps[k].outs.begin(), p.steps[k].outs.end());
  for (size_t i = 0; i < p.steps.size(); ++i) {
    const Step& s = p.steps[i];
    const Sizes reads = s.reads();
    if (i == k || std::any_of(reads.begin(), reads.end(), [&](int64_t v) { return gone.contains(v); })) {
      gone.insert(s.outs.begin(), s.outs.end());
      continue;
    }
    q.steps.push_back(s);
  }
  return q;
}

// With the values that step k makes as literals in its place.
std::optional<Program> literals(const Program& p, size_t k) {
  const Step& s = p.steps[k];
  if (!s.row || s.inplace) return std::nullopt;
  std::vector<Array> env;
  for (size_t i = 0; i <= k; ++i) interpret(p.steps[i], env);
  Program q = p;
  q.steps.erase(q.steps.begin() + static_cast<std::ptrdiff_t>(k));
  for (const int64_t v : s.outs) {
    const Array& a = env[static_cast<size_t>(v)];
    Step made;
    made.outs = {v};
    std::vector<Num> values = elements(a);
    for (Num& n : values) n.e = 0;
    made.literal = fresh(a.dtype, a.shape, std::move(values));
    made.leaf = p.gradients && a.dtype == DType::float64 && a.requires_grad();
    q.steps.insert(q.steps.begin() + static_cast<std::ptrdiff_t>(k), std::move(made));
  }
  return q;
}

}  // namespace

Program shrunk(Program p, Failure& failure) {
  const auto better = [&](const Program& q) {
    auto f = failing(q);
    if (!f) return false;
    failure = *f, p = q;
    return true;
  };
  Program cut = p;  // what follows the failing step has no part in it, unless it fails at the end
  cut.steps.resize(failure.step + 1);
  better(cut);
  for (bool smaller = true; smaller;) {
    smaller = false;
    for (size_t k = p.steps.size(); k-- > 0;) {
      if (k < p.steps.size() && better(without(p, k))) smaller = true;
    }
    for (size_t k = 0; k < p.steps.size(); ++k) {
      try {
        const std::optional<Program> q = literals(p, k);
        if (q && better(*q)) smaller = true;
      } catch (const Redraw&) {}
    }
  }
  return p;
}

}  // namespace gradwire::property
