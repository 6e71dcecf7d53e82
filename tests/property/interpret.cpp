#include <algorithm>
#include <stdexcept>

#include "tests/property/rows.h"

namespace gradwire::property {

std::vector<const Row*> all_rows() {
  std::vector<const Row*> all;
  for (const std::span<const Row> family :
       {kPointwise, kCompare, kReduce, kScan, kViews, kJoin, kIndexing, kPicking, kLinear, kCreation, kCopies}) {
    for (const Row& r : family) all.push_back(&r);
  }
  return all;
}

const Row& row_of(std::string_view name) {
  for (const Row* r : all_rows()) {
    if (r->name == name) return *r;
  }
  throw std::invalid_argument("no row " + std::string(name));
}

std::vector<std::string> names_of(const Row& row) {
  std::vector<std::string> names;
  std::string word;
  for (const char* p = row.params;; ++p) {
    if (*p == ' ') continue;
    if (*p != ',' && *p != '\0') {
      word += *p;
      continue;
    }
    if (!word.empty() && word != "*") names.push_back(word);
    word.clear();
    if (*p == '\0') return names;
  }
}

size_t keyword_only_from(const Row& row) {
  const std::string_view all = row.params;
  const size_t star = all.find('*');
  if (star == std::string_view::npos) return names_of(row).size();
  return static_cast<size_t>(std::count(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(star), ','));
}

Array literal(const Step& step) {
  Array a = fresh(step.literal.dtype, step.literal.shape, elements(step.literal));
  a.store->leaf = step.leaf;
  return a;
}

namespace {

// The in-place form of any row: its result, in self's dtype, at self's places.
void into_self(const Step& step, const Args& args, std::vector<Array>& env) {
  const Array result = step.row->eval(args).at(0);
  Array& self = env[static_cast<size_t>(step.args[0].list[0])];
  if (result.shape != self.shape) throw Redraw{"another shape than self's"};
  if (category(result.dtype) > category(self.dtype)) throw Redraw{"a category above self's"};
  if (self_overlaps(self)) throw Redraw{"self overlaps itself"};
  for (const int64_t v : step.reads()) {
    if (v != step.args[0].list[0] && !step.row->copies && overlap(self, args.at(v)))
      throw Redraw{"an argument overlaps self"};
  }
  write(self, elements(result, self.dtype));
}

void mark_history(const Step& step, const Args& args, std::vector<Array>& env) {
  const Sizes reads = step.reads();
  const bool wanted = !step.row->no_grad &&
                      std::any_of(reads.begin(), reads.end(), [&](int64_t v) { return args.at(v).requires_grad(); });
  if (!wanted) return;
  if (step.row->saves) {
    for (const int64_t v : reads) args.at(v).store->saved = true;
  }
  if (step.inplace) {
    Array& self = env[static_cast<size_t>(step.args[0].list[0])];
    if (self.detached) throw Redraw{"history written through detach"};
    self.store->tracked = true;
    return;
  }
  for (const int64_t v : step.outs) {
    Array& out = env[static_cast<size_t>(v)];
    if (!is_floating(out.dtype)) continue;
    out.history = !out.detached;
    if (step.row->saves) out.store->saved = true;
  }
}

}  // namespace

void interpret(const Step& step, std::vector<Array>& env) {
  const auto keep = [&](const Array& a, size_t k) {
    const auto v = static_cast<size_t>(step.outs.at(k));
    if (v >= env.size()) env.resize(v + 1);
    env[v] = a;
  };
  if (!step.row) return keep(literal(step), 0);
  const Args args(step, env);
  if (step.inplace) {
    into_self(step, args, env);
  } else {
    const std::vector<Array> results = step.row->eval(args);
    if (results.size() != step.outs.size()) throw Redraw{"another number of results"};
    for (size_t k = 0; k < results.size(); ++k) keep(results[k], k);
  }
  mark_history(step, args, env);
}

}  // namespace gradwire::property
