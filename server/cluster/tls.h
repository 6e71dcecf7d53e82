#pragma once

#include <kj/async-io.h>
#include <kj/compat/tls.h>

#include <functional>
#include <memory>
#include <string>

namespace gradwire::server::cluster {

/// A connection, and whether who is at its other end may call itself by a name.
struct Opened {
  kj::Own<kj::AsyncIoStream> io;
  std::function<bool(const std::string& host)> is;
};

/// Mutual TLS between servers: both sides show a certificate of one authority. A server that is dialled must have its
/// host among the names of its certificate (an address as a DNS name, and for newer versions of the library as an IP
/// address too); one that dials must have the host that it says it is reached by as the common name, which may be
/// "*.domain".
class Tls {
 public:
  /// PEM files. Throws Error{bad_argument} that names the file.
  Tls(const std::string& certificate, const std::string& key, const std::string& authority);
  ~Tls();
  kj::Promise<Opened> accept(kj::Own<kj::AsyncIoStream>);
  kj::Promise<Opened> dial(kj::Own<kj::AsyncIoStream>, const std::string& host);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace gradwire::server::cluster
