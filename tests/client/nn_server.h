#pragma once

#include <stdlib.h>

#include "client/gradwire.h"

/// One server for the tests of a program; each test has a session of its own, the default one.
struct NnFixture {
  static gradwire::Client& server() {
    ::setenv("GRADWIRED", GRADWIRE_BIN "/gradwired", 1);
    static gradwire::Client client = gradwire::connect("local", {.connect_timeout = std::chrono::seconds(60)});
    return client;
  }
  gradwire::Session session = server().open({.seed = 3});
  NnFixture() { gradwire::set_default_session(session); }
};
