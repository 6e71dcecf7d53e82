#include <algorithm>

#include "tests/property/rows.h"

namespace gradwire::property {

std::vector<const Row*> all_rows() {
  std::vector<const Row*> all;
  for (const std::span<const Row> family : {kPointwise, kCurves, kCompare, kReduce, kExtremes, kScan, kViews, kJoin,
                                            kIndexing, kPicking, kLinear, kCreation, kCopies}) {
    for (const Row& r : family) all.push_back(&r);
  }
  return all;
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

// Whether a call is recorded for backward.
bool recorded(const Step& step, const Args& args) {
  const Sizes reads = step.reads();
  return !step.row->no_grad &&
         std::any_of(reads.begin(), reads.end(), [&](int64_t v) { return args.at(v).requires_grad(); });
}

// What autograd refuses, or would find changed in backward, is not written.
void check_writable(const Step& step, const Args& args, const Array& self) {
  if (self_overlaps(self)) throw Redraw{"self overlaps itself"};
  for (const int64_t v : step.reads()) {
    if (v != step.args[0].list[0] && !step.row->copies && overlap(self, args.at(v)))
      throw Redraw{"an argument overlaps self"};
  }
  if (self.store->saved) throw Redraw{"backward needs what is there"};
  if (self.store->leaf && !self.detached) throw Redraw{"a leaf"};
  if (self.multi_view && self.requires_grad()) throw Redraw{"one of several views"};
  if (step.row->no_grad && self.requires_grad()) throw Redraw{"history of what is gone"};
  if (!recorded(step, args) || !is_floating(self.dtype)) return;
  for (size_t i = 1; i < step.args.size(); ++i) {
    // What it needs of itself is changed at once.
    if ((step.row->saves & kReads) && step.args[i].kind == Arg::var && args.array(i).store == self.store)
      throw Redraw{"self is needed as it was"};
  }
  if (self.detached) throw Redraw{"history written through detach"};
  if (self.dtype != DType::float64) throw Redraw{"history in another dtype"};
}

// The in-place form of any row: its result, in self's dtype, at self's places.
void into_self(const Step& step, const Args& args, std::vector<Array>& env) {
  const Array result = step.row->eval(args).at(0);
  Array& self = env[static_cast<size_t>(step.args[0].list[0])];
  if (result.shape != self.shape) throw Redraw{"another shape than self's"};
  if (category(result.dtype) > category(self.dtype)) throw Redraw{"a category above self's"};
  check_writable(step, args, self);
  const bool history = recorded(step, args) && is_floating(self.dtype);
  write(self, elements(result, self.dtype));
  if (history) self.store->tracked = true;
}

// Marks what backward will need, and what has a history.
void record(const Step& step, const Args& args, std::vector<Array>& env) {
  const int saves = step.row->saves;
  if (saves & (kReads | kIndices)) {
    for (size_t i = 0; i < step.args.size(); ++i) {
      const Arg& a = step.args[i];
      for (const Item& item : a.items) {
        if (item.kind == Item::var) args.at(item.at).store->saved = true;
      }
      if (!(saves & kReads) || (a.kind != Arg::var && a.kind != Arg::vars)) continue;
      if (step.inplace && i == 0) continue;  // of what is written over there is a copy
      for (const int64_t v : a.list) args.at(v).store->saved = true;
    }
  }
  if (step.inplace) {
    if (saves & kResult) env[static_cast<size_t>(step.args[0].list[0])].store->saved = true;
    return;
  }
  for (const int64_t v : step.outs) {
    Array& out = env[static_cast<size_t>(v)];
    if (saves & kResult) out.store->saved = true;
    if (is_floating(out.dtype) && !out.detached) out.history = true;
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
  const bool keeps = recorded(step, args) && !(step.inplace && !is_floating(args.array(0).dtype));
  if (step.inplace) {
    into_self(step, args, env);
  } else {
    const std::vector<Array> results = step.row->eval(args);
    if (results.size() != step.outs.size()) throw Redraw{"another number of results"};
    for (size_t k = 0; k < results.size(); ++k) keep(results[k], k);
  }
  if (keeps) record(step, args, env);
}

}  // namespace gradwire::property
