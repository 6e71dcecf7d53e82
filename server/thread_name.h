#pragma once

#include <sys/prctl.h>

namespace gradwire::server {

/// How the calling thread is shown by top -H, ps -L and debuggers: at most 15 characters.
inline void name_thread(const char* name) { ::prctl(PR_SET_NAME, name); }

}  // namespace gradwire::server
