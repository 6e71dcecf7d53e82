// The twenty lines of the README: a server computes, this program only says what.
//   hello [ADDRESS]      without one it starts a gradwired of its own
#include <iostream>

#include "client/gradwire.h"

int main(int argc, char** argv) {
  auto client = gradwire::connect(argc > 1 ? argv[1] : "local");
  auto x = gradwire::tensor({{1., 2.}, {3., 4.}}, {.requires_grad = true});
  auto y = (x * x * x).sum();

  y.backward({.retain_graph = true});
  std::cout << "y      = " << y.item<float>() << "\nx.grad = " << x.grad() << "\n";

  // The gradient is a tensor like any other: differentiate it again.
  auto g = gradwire::grad(y, {x}, {.create_graph = true})[0];
  auto h = gradwire::grad(g.sum(), {x})[0];
  std::cout << "d2y/dx2 = " << h << "\n";

  try {
    (x + gradwire::tensor({1., 2., 3.})).item<float>();
  } catch (const gradwire::ShapeMismatch& e) {
    std::cout << "line " << e.where().line << ": " << e.what() << "\n";
  }
}
