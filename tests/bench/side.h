#pragma once

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <iostream>
#include <map>
#include <sstream>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

// One side of a comparison: a program that measures when it is told to. bench.py runs two of them and lets them take
// turns, so that libraries which do not get along in one process can be compared, and both sides see the same machine.
//
// Standard input      Standard output
//                     ready                  once, at the start
//   use NAME ARG...   ok CHECK               prepares a workload; CHECK is a number that all sides agree on, or nan
//   run N             SECONDS NS             does it N times: how long that took, and nanoseconds for one of them
// Anything wrong is answered with one line "error MESSAGE". The end of the input ends the program.

namespace bench {

/// What is measured: one round of it, and whether the median of the rounds counts (latencies) or their mean.
struct Work {
  std::function<void()> round;
  std::function<double()> check = {};
  bool median = false;
};
using Arguments = std::vector<std::string>;
using Workloads = std::map<std::string, std::function<Work(const Arguments&)>>;

inline int64_t now() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

/// N rounds: seconds in all, and nanoseconds for one.
inline std::pair<double, double> measure(const Work& work, int64_t rounds) {
  std::vector<double> each;
  if (work.median) each.reserve(static_cast<size_t>(rounds));
  const int64_t begin = now();
  for (int64_t i = 0, last = begin; i < rounds; ++i) {
    work.round();
    if (!work.median) continue;
    const int64_t t = now();
    each.push_back(static_cast<double>(t - last));
    last = t;
  }
  const auto total = static_cast<double>(now() - begin);
  if (!work.median) return {total / 1e9, total / static_cast<double>(rounds)};
  std::nth_element(each.begin(), each.begin() + rounds / 2, each.end());
  return {total / 1e9, each[static_cast<size_t>(rounds / 2)]};
}

/// Reads orders until the input ends.
inline int serve(const Workloads& workloads) {
  Work work;
  std::printf("ready\n");
  std::fflush(stdout);
  for (std::string line; std::getline(std::cin, line); std::fflush(stdout)) {
    std::istringstream words(line);
    std::string order, name;
    words >> order;
    try {
      if (order == "use") {
        words >> name;
        Arguments arguments;
        for (std::string a; words >> a;) arguments.push_back(a);
        work = {};  // before the next takes its memory
        work = workloads.at(name)(arguments);
        std::printf("ok %.9g\n", work.check ? work.check() : std::nan(""));
      } else if (order == "run") {
        int64_t rounds = 0;
        words >> rounds;
        if (rounds < 1 || !work.round) throw std::invalid_argument("run N, after use NAME");
        const auto [seconds, ns] = measure(work, rounds);
        std::printf("%.9f %.3f\n", seconds, ns);
      } else {
        throw std::invalid_argument("no order: " + order);
      }
    } catch (const std::exception& e) {
      std::string message = e.what();
      std::replace(message.begin(), message.end(), '\n', ' ');
      std::printf("error %s %s\n", name.c_str(), message.c_str());
    }
  }
  return 0;
}

// What all sides compute with.

constexpr int kChain = 10000;  // adds in a row
constexpr int kSmall = 10;     // elements of a small tensor

/// The same few exact numbers on every side: sums of them do not depend on the order much.
inline std::vector<float> numbers(size_t n, int salt) {
  std::vector<float> v(n);
  for (size_t i = 0; i < n; ++i) v[i] = static_cast<float>((i * 7 + static_cast<size_t>(salt) * 13) % 32) * 0.0625f - 1;
  return v;
}

}  // namespace bench
