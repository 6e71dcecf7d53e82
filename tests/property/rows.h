#pragma once

#include <span>

#include "tests/property/program.h"

// The operators that the property test knows: how to draw arguments for one, and what it means.

namespace gradwire::property {

class Draw;

/// Whose present values the gradient of an operator may need.
enum Saves { kNothing = 0, kReads = 1, kResult = 2, kIndices = 4 };

struct Row {
  const char* name;    // the catalogue's: "max.dim"
  const char* params;  // names, with '*' before those that only come by name
  bool (*draw)(Draw&);
  std::vector<Array> (*eval)(const Args&);
  bool inplace = false;  // name_ too
  bool only_inplace = false;
  int saves = kReads | kResult;
  bool copies = false;   // in place it may read what overlaps self: it reads before it writes
  bool no_grad = false;  // what comes out has no history
  int weight = 2;        // how often it is drawn, against others
};

extern const std::span<const Row> kPointwise, kCurves, kCompare, kReduce, kExtremes, kScan, kViews, kJoin, kIndexing,
    kPicking, kLinear, kCreation, kCopies;
std::vector<const Row*> all_rows();
std::vector<std::string> names_of(const Row& row);
size_t keyword_only_from(const Row& row);

/// Carries a step out in the naive interpreter.
void interpret(const Step& step, std::vector<Array>& env);
/// A literal's values, fresh for a run.
Array literal(const Step& step);

}  // namespace gradwire::property
