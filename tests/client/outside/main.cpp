#include <client/gradwire.h>
#include <client/nn/nn.h>

#include <iostream>

int main() {
  auto client = gradwire::connect("local");
  auto x = gradwire::tensor({1., 2., 3.}, {.requires_grad = true});
  (x * x).sum().backward();
  std::cout << x.grad() << "\n";
  gradwire::nn::Sequential model(gradwire::nn::Linear(3, 2), gradwire::nn::Tanh());
  return model(x).shape() == gradwire::Shape{2} && model.summary().size() > 9 ? 0 : 1;
}
