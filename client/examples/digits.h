#pragma once

#include <fstream>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

#include "client/gradwire.h"

/// Images of handwritten digits, 8x8 pixels, and what they show: data/README.md.
struct Digits {
  std::vector<float> pixels;  // 64 an image, 0 to 1
  std::vector<int64_t> labels;
  int64_t count() const { return static_cast<int64_t>(labels.size()); }
};

inline Digits read_digits(const std::string& file) {
  std::ifstream in(file);
  if (!in) throw std::runtime_error("cannot read " + file);
  Digits d;
  for (std::string line; std::getline(in, line);) {
    std::istringstream numbers(line);
    for (std::string n; std::getline(numbers, n, ',');) d.pixels.push_back(std::stof(n) / 16);
    d.labels.push_back(static_cast<int64_t>(d.pixels.back() * 16));
    d.pixels.pop_back();
    if (d.pixels.size() != 64 * d.labels.size()) throw std::runtime_error("a line of " + file + " has not 65 numbers");
  }
  return d;
}

/// On the server: every fifth image, which nobody trains on, or the others.
struct DigitsPart {
  gradwire::Tensor images, labels;  // (N, 1, 8, 8) float32, (N) int64
  int64_t count = 0;
  DigitsPart(const Digits& all, bool test) {
    Digits part;
    for (int64_t i = 0; i < all.count(); ++i) {
      if ((i % 5 == 4) != test) continue;
      part.pixels.insert(part.pixels.end(), all.pixels.begin() + i * 64, all.pixels.begin() + (i + 1) * 64);
      part.labels.push_back(all.labels[static_cast<size_t>(i)]);
    }
    count = part.count();
    images = gradwire::from_span(part.pixels, {count, 1, 8, 8});
    labels = gradwire::from_span(part.labels);
  }
};
