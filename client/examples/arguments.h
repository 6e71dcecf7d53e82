#pragma once

#include <exception>
#include <functional>
#include <iostream>
#include <map>
#include <stdexcept>
#include <string>

#include "schema/error.h"

/// A number of things, from the command line.
inline int count_of(const std::string& text) {
  size_t read = 0;
  const long long n = std::stoll(text, &read);
  if (read != text.size() || n < 1 || n > 100000)
    throw std::runtime_error("a number between 1 and 100000 is expected, not " + text);
  return static_cast<int>(n);
}

/// What the main() of an example does: reads `--name value` pairs, answers --help, runs, and says what went wrong, with
/// the line of the example that caused it. Returns the exit status: 2 for an error.
inline int run_example(const std::string& name, const char* help, int argc, char** argv,
                       const std::map<std::string, std::function<void(const std::string&)>>& options,
                       const std::function<int()>& run) {
  try {
    for (int i = 1; i < argc; ++i) {
      const std::string option = argv[i];
      if (option == "--help") {
        std::cout << help;
        return 0;
      }
      const auto known = options.find(option);
      if (known == options.end()) throw std::runtime_error("unknown option " + option + "; see --help");
      if (++i == argc) throw std::runtime_error(option + " needs a value; see --help");
      known->second(argv[i]);
    }
    return run();
  } catch (const gradwire::Error& e) {
    std::cerr << name << ": " << gradwire::name(e.code()) << ": " << e.what();
    if (e.where().line) std::cerr << " (" << e.where().file << ":" << e.where().line << ")";
    std::cerr << "\n";
  } catch (const std::exception& e) {
    std::cerr << name << ": " << e.what() << "\n";
  }
  return 2;
}
