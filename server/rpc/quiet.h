#pragma once

#include <kj/exception.h>

namespace gradwire::server {

/// For the thread of a loop: KJ's own words about broken connections are no news; and traces of exceptions cost more
/// than they tell.
class Quiet final : public kj::ExceptionCallback {
  void logMessage(kj::LogSeverity, const char*, int, int, kj::String&&) override {}
  StackTraceMode stackTraceMode() override { return StackTraceMode::NONE; }
};

}  // namespace gradwire::server
