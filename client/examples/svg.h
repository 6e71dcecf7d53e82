#pragma once

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <string>
#include <vector>

/// Draws a curve with its axes as an SVG picture. Returns false if the file cannot be written.
inline bool write_curve(const std::string& file, const std::string& title, const std::string& x_label,
                        const std::vector<float>& y) {
  constexpr double kWidth = 720, kHeight = 400, kLeft = 64, kRight = 16, kTop = 40, kBottom = 48;
  const double top = std::max(1e-6f, *std::max_element(y.begin(), y.end()));
  const double n = std::max<double>(1, static_cast<double>(y.size()) - 1);
  const auto px = [&](double i) { return kLeft + (kWidth - kLeft - kRight) * i / n; };
  const auto py = [&](double v) { return kTop + (kHeight - kTop - kBottom) * (1 - v / top); };
  std::string svg;
  char text[512];
  const auto add = [&](const char* format, auto... values) {
    std::snprintf(text, sizeof text, format, values...);
    svg += text;
  };
  add("<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %g %g\" font-family=\"sans-serif\" font-size=\"13\">\n",
      kWidth, kHeight);
  add("<rect width=\"%g\" height=\"%g\" fill=\"white\"/>\n", kWidth, kHeight);
  add("<text x=\"%g\" y=\"24\" font-size=\"16\">%s</text>\n", kLeft, title.c_str());
  for (int i = 0; i <= 4; ++i) {
    const double v = top * i / 4, at = n * i / 4;
    add("<line x1=\"%g\" x2=\"%g\" y1=\"%.1f\" y2=\"%.1f\" stroke=\"#ddd\"/>\n", kLeft, kWidth - kRight, py(v), py(v));
    add("<text x=\"%g\" y=\"%.1f\" text-anchor=\"end\">%.2f</text>\n", kLeft - 8, py(v) + 4, v);
    add("<text x=\"%.1f\" y=\"%g\" text-anchor=\"middle\">%.0f</text>\n", px(at), kHeight - kBottom + 20, at + 1);
  }
  add("<text x=\"%g\" y=\"%g\" text-anchor=\"middle\">%s</text>\n", (kLeft + kWidth - kRight) / 2, kHeight - 8,
      x_label.c_str());
  svg += "<polyline fill=\"none\" stroke=\"#1f6feb\" stroke-width=\"2\" points=\"";
  for (size_t i = 0; i < y.size(); ++i) add("%.1f,%.1f ", px(static_cast<double>(i)), py(y[i]));
  svg += "\"/>\n</svg>\n";
  std::ofstream out(file);
  out << svg;
  return static_cast<bool>(out.flush());
}
