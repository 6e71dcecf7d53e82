// A program that uses the SDK: sdk_side ADDRESS, of a server that runs.

#include <cmath>
#include <iterator>

#include "client/gradwire.h"
#include "tests/bench/side.h"

namespace {

using namespace gradwire;
using bench::Arguments;
using bench::Work;

Work chain(Session& s, bool record, bool backward) {
  Tensor x = from_span(s, bench::numbers(bench::kSmall, 1), bench::kSmall, {.requires_grad = record});
  Tensor b = from_span(s, bench::numbers(bench::kSmall, 2), bench::kSmall);
  auto y = [x, b, record] {
    GradMode mode(record);
    Tensor y = x;
    for (int i = 0; i < bench::kChain; ++i) y = y + b;
    return y;
  };
  auto back = [x, y] { return grad(std::vector<Tensor>{y().sum()}, std::vector<Tensor>{x})[0]; };
  auto check = [=] { return (backward ? back() : y()).sum().item<double>(); };
  return {[=]() mutable {
            (void)(backward ? back() : y());
            s.sync();
          },
          check};
}

int64_t bytes(const Arguments& mib) { return std::stoll(mib.at(0)) << 20; }

}  // namespace

int main(int argc, char** argv) try {
  if (argc != 2) return std::fprintf(stderr, "usage: sdk_side ADDRESS\n"), 2;
  const auto client = connect(argv[1]);
  Session s = client.session();
  return bench::serve({
      {"chain", [&](const Arguments&) { return chain(s, false, false); }},
      {"chain_recorded", [&](const Arguments&) { return chain(s, true, false); }},
      {"chain_backward", [&](const Arguments&) { return chain(s, true, true); }},
      // The smallest call that comes back: one number of a tensor that is there.
      {"call",
       [&](const Arguments&) { return Work{.round = [t = tensor(s, {1.0f})] { t.item<float>(); }, .median = true}; }},
      {"call_op",
       [&](const Arguments&) {
         return Work{.round = [t = tensor(s, {1.0f})] { (t + t).item<float>(); }, .median = true};
       }},
      {"upload",
       [&](const Arguments& mib) {
         auto v = std::make_shared<std::vector<float>>(static_cast<size_t>(bytes(mib)) / sizeof(float), 1.f);
         return Work{[v, &s] {
           const Tensor t = from_span(s, *v, static_cast<int64_t>(v->size()));
           s.sync();
         }};
       }},
      {"download",
       [&](const Arguments& mib) {
         auto v = std::make_shared<std::vector<float>>(static_cast<size_t>(bytes(mib)) / sizeof(float), 1.f);
         return Work{[v, t = ones(s, static_cast<int64_t>(v->size()))] { t.copy_to(std::span(*v)); }};
       }},
  });
} catch (const std::exception& e) {
  std::printf("error %s\n", e.what());
  return 1;
}
