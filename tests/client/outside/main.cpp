#include <client/gradwire.h>

#include <iostream>

int main() {
  auto client = gradwire::connect("local");
  auto x = gradwire::tensor({1., 2., 3.}, {.requires_grad = true});
  (x * x).sum().backward();
  std::cout << x.grad() << "\n";
}
