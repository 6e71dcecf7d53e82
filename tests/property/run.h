#pragma once

#include <optional>
#include <string>

#include "tests/property/draw.h"

// A program on the engine, beside the naive interpreter.

namespace gradwire::property {

struct Failure {
  std::string op, what;  // the operator, and what is wrong with which element
  size_t step = 0;
};

/// The rows that the engine has; `skipped` counts the others.
Rows known_rows(int& skipped);
/// Runs both sides and compares after each step. Throws Redraw where the interpreter cannot run the program.
std::optional<Failure> run(const Program& p);
/// A smaller program that still fails.
Program shrunk(Program p, Failure& failure);

}  // namespace gradwire::property
