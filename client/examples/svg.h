#pragma once

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <string>
#include <vector>

struct Curve {
  std::string label;
  std::vector<float> y;  // at 1, 2, …
};

/// Draws curves below each other, each with its axes, as an SVG picture. Returns false if the file cannot be written.
inline bool write_curves(const std::string& file, const std::string& title, const std::string& x_label,
                         const std::vector<Curve>& curves) {
  constexpr double kWidth = 720, kPanel = 260, kLeft = 64, kRight = 16, kTop = 36, kBottom = 28, kTitle = 36;
  const double height = kTitle + kPanel * static_cast<double>(curves.size()) + 20;
  std::string svg;
  char text[512];
  const auto add = [&](const char* format, auto... values) {
    std::snprintf(text, sizeof text, format, values...);
    svg += text;
  };
  add("<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %g %g\" font-family=\"sans-serif\" font-size=\"13\">\n",
      kWidth, height);
  add("<rect width=\"%g\" height=\"%g\" fill=\"white\"/>\n", kWidth, height);
  add("<text x=\"%g\" y=\"26\" font-size=\"17\">%s</text>\n", kLeft, title.c_str());
  double from = kTitle;
  for (const Curve& curve : curves) {
    const auto [least, most] = std::minmax_element(curve.y.begin(), curve.y.end());
    // From zero where that does not flatten the curve.
    const double bottom = *least > 0.5f * *most ? std::floor(static_cast<double>(*least)) : 0;
    const double top = std::max(bottom + 1e-6, static_cast<double>(*most));
    const double n = std::max<double>(1, static_cast<double>(curve.y.size()) - 1);
    const auto px = [&](double i) { return kLeft + (kWidth - kLeft - kRight) * i / n; };
    const auto py = [&](double v) {
      return from + kTop + (kPanel - kTop - kBottom) * (1 - (v - bottom) / (top - bottom));
    };
    add("<text x=\"%g\" y=\"%g\">%s</text>\n", kLeft, from + 24, curve.label.c_str());
    for (int i = 0; i <= 4; ++i) {
      const double v = bottom + (top - bottom) * i / 4, at = n * i / 4;
      add("<line x1=\"%g\" x2=\"%g\" y1=\"%.1f\" y2=\"%.1f\" stroke=\"#ddd\"/>\n", kLeft, kWidth - kRight, py(v),
          py(v));
      add("<text x=\"%g\" y=\"%.1f\" text-anchor=\"end\">%.2f</text>\n", kLeft - 8, py(v) + 4, v);
      add("<text x=\"%.1f\" y=\"%g\" text-anchor=\"middle\">%.0f</text>\n", px(at), from + kPanel - kBottom + 18,
          at + 1);
    }
    svg += "<polyline fill=\"none\" stroke=\"#1f6feb\" stroke-width=\"2\" points=\"";
    for (size_t i = 0; i < curve.y.size(); ++i)
      add("%.1f,%.1f ", px(static_cast<double>(i)), py(static_cast<double>(curve.y[i])));
    svg += "\"/>\n";
    from += kPanel;
  }
  add("<text x=\"%g\" y=\"%g\" text-anchor=\"middle\">%s</text>\n</svg>\n", (kLeft + kWidth - kRight) / 2, height - 8,
      x_label.c_str());
  std::ofstream out(file);
  out << svg;
  return static_cast<bool>(out.flush());
}
