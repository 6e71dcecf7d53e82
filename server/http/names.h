#pragma once

#include <string_view>

namespace gradwire::server::http {

/// What is wrong with a name for a new tensor, program or generator; null if nothing. Names are 1 to 255 bytes of
/// UTF-8 without '/' and control characters; a last part ".grad" and "#41" mean something else.
const char* name_fault(std::string_view name);

}  // namespace gradwire::server::http
