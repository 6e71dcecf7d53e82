#include <catch2/catch_test_macros.hpp>

#include "tests/engine/registry_checks.h"

using namespace gradwire;
using namespace gradwire::engine;

TEST_CASE("The gradient of every row is what central differences give", "[registry][D43][C34][C35][B28]") {
  Engine e;
  for (const OpRow& row : catalogue()) {
    if (row.inplace || !has_gradient(row)) continue;
    INFO(row.sig.full_name());
    CHECK(first_gradient_fault(e.cx, row) == "");
  }
}

TEST_CASE("The second gradient of every row is what differences of the first give", "[registry][D43][D14][D18][C36]") {
  Engine e;
  for (const OpRow& row : catalogue()) {
    if (row.inplace || !has_gradient(row)) continue;
    INFO(row.sig.full_name());
    CHECK(second_gradient_fault(e.cx, row) == "");
  }
}

TEST_CASE("A broken vjp fails the first-gradient test of its row, and of no row that does not record it",
          "[registry][D43]") {
  Engine e;
  std::vector<std::vector<bool>> recorded;
  for (const OpRow& row : catalogue())
    recorded.push_back(row.inplace || !has_gradient(row) ? std::vector<bool>() : recorded_by(e.cx, row));
  for (const OpRow& row : catalogue()) {
    if (row.inplace || !row.def->vjp) continue;
    int noticed = 0;
    for (int gradient = 0; gradient < row.params && gradient < 6; ++gradient) {
      ChangedRow changed(row);
      changed.break_vjp(gradient);
      INFO(row.sig.full_name() << ", gradient " << gradient);
      const std::string own = first_gradient_fault(e.cx, row);
      if (ChangedRow::breaks == 0) continue;  // this parameter gets none
      CHECK(own != "");
      ++noticed;
      for (const OpRow& other : catalogue()) {
        if (other.inplace || !has_gradient(other)) continue;
        const std::vector<bool>& records = recorded[other.id];
        const size_t form = row.id + 1u;  // its in-place form, where it has one
        if (records[row.id] || (row.def->inplace && records[form])) continue;
        INFO(other.sig.full_name());
        CHECK(first_gradient_fault(e.cx, other) == "");
      }
      if (row.takes_list) break;
    }
    INFO(row.sig.full_name());
    CHECK(noticed > 0);
  }
}

TEST_CASE("Without any one of its saves a row's gradient fails", "[registry][D43]") {
  Engine e;
  for (const OpRow& row : catalogue()) {
    if (row.inplace) continue;
    for (int dropped = 0; dropped < row.def->saves.count; ++dropped) {
      INFO(row.sig.full_name() << ", save " << dropped);
      ChangedRow changed(row);
      Saves left;
      for (int k = 0; k < changed.def.saves.count; ++k) {
        if (k != dropped) left.at[left.count++] = changed.def.saves.at[k];
      }
      changed.def.saves = left;
      changed.apply();
      CHECK((first_gradient_fault(e.cx, row) != "" || second_gradient_fault(e.cx, row) != ""));
    }
  }
}
