#include "server/cluster/tls.h"

#include <openssl/pem.h>
#include <openssl/x509.h>

#include <cctype>
#include <fstream>
#include <sstream>
#include <vector>

#include "schema/error.h"

namespace gradwire::server::cluster {

namespace {

std::string file(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  std::ostringstream out;
  out << in.rdbuf();
  if (!in || out.str().empty()) throw Error(Code::bad_argument, "cannot read '" + path + "'");
  return out.str();
}

template <class F> auto parsed(const std::string& path, const char* what, F f) {
  const std::string pem = file(path);
  try {
    return f(kj::StringPtr(pem.c_str(), pem.size()));
  } catch (const kj::Exception&) {
    throw Error(Code::bad_argument, "'" + path + "' is not " + what + " in PEM");
  }
}

/// An authority's file may hold several certificates, each trusted for itself.
std::vector<kj::TlsCertificate> authorities(const std::string& path) {
  return parsed(path, "a certificate", [](kj::StringPtr all) {
    static constexpr std::string_view kEnd = "-----END CERTIFICATE-----";
    std::vector<kj::TlsCertificate> out;
    std::string rest(all.begin(), all.size());
    for (size_t end; (end = rest.find(kEnd)) != std::string::npos; rest.erase(0, end + kEnd.size())) {
      const std::string one = rest.substr(0, end + kEnd.size()) + "\n";
      out.emplace_back(kj::StringPtr(one.c_str(), one.size()));
    }
    if (out.empty()) out.emplace_back(all);  // throws
    return out;
  });
}

kj::TlsContext::Options options(const kj::TlsKeypair& own, const std::vector<kj::TlsCertificate>& trusted) {
  kj::TlsContext::Options o;
  o.useSystemTrustStore = false;
  o.verifyClients = true;
  o.minVersion = kj::TlsVersion::TLS_1_2;
  o.defaultKeypair = own;
  o.trustedCertificates = kj::arrayPtr(trusted.data(), trusted.size());
  return o;
}

/// "*.gradwire.svc" stands for all names that have one label more. (The library knows no other name of a peer.)
bool is_name(std::string name, std::string host) {
  for (auto* text : {&name, &host}) {
    for (char& c : *text) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  }
  if (name.starts_with("*.")) {
    const size_t dot = host.find('.');
    return dot != std::string::npos && dot > 0 && host.substr(dot) == name.substr(1);
  }
  return name == host;
}

/// The library takes a key that is not the certificate's, and then has none.
bool fits(const std::string& certificate, const std::string& key) {
  const auto bio = [](const std::string& path) {
    const std::string pem = file(path);
    BIO* b = BIO_new(BIO_s_mem());
    if (b) BIO_write(b, pem.data(), static_cast<int>(pem.size()));
    return std::unique_ptr<BIO, decltype(&BIO_free)>(b, &BIO_free);
  };
  const std::unique_ptr<X509, decltype(&X509_free)> x(
      PEM_read_bio_X509(bio(certificate).get(), nullptr, nullptr, nullptr), &X509_free);
  const std::unique_ptr<EVP_PKEY, decltype(&EVP_PKEY_free)> k(
      PEM_read_bio_PrivateKey(bio(key).get(), nullptr, nullptr, nullptr), &EVP_PKEY_free);
  return x && k && X509_check_private_key(x.get(), k.get()) == 1;
}

Opened opened(kj::AuthenticatedStream s) {
  // Shared, as std::function wants what it holds to be copied.
  auto identity = std::make_shared<kj::Own<kj::PeerIdentity>>(kj::mv(s.peerIdentity));
  return {kj::mv(s.stream), [identity](const std::string& host) {
            auto* tls = dynamic_cast<kj::TlsPeerIdentity*>(identity->get());
            return tls && tls->hasCertificate() && is_name(tls->getCommonName().cStr(), host);
          }};
}

}  // namespace

struct Tls::Impl {
  Impl(const std::string& certificate, const std::string& key, const std::string& authority)
      : own{parsed(key, "a private key", [](kj::StringPtr pem) { return kj::TlsPrivateKey(pem); }),
            parsed(certificate, "a certificate", [](kj::StringPtr pem) { return kj::TlsCertificate(pem); })},
        trusted(authorities(authority)),
        context(options(own, trusted)) {}
  kj::TlsKeypair own;
  std::vector<kj::TlsCertificate> trusted;
  kj::TlsContext context;
};

Tls::Tls(const std::string& certificate, const std::string& key, const std::string& authority) {
  try {
    impl_ = std::make_unique<Impl>(certificate, key, authority);
  } catch (const kj::Exception&) {
    throw Error(Code::bad_argument,
                "'" + certificate + "', '" + key + "' and '" + authority + "' cannot be used for TLS");
  }
  if (!fits(certificate, key))
    throw Error(Code::bad_argument, "'" + key + "' is not the private key of '" + certificate + "'");
}
Tls::~Tls() = default;

kj::Promise<Opened> Tls::accept(kj::Own<kj::AsyncIoStream> io) {
  return impl_->context.wrapServer(kj::AuthenticatedStream{kj::mv(io), kj::UnknownPeerIdentity::newInstance()})
      .then([](kj::AuthenticatedStream s) { return opened(kj::mv(s)); });
}

kj::Promise<Opened> Tls::dial(kj::Own<kj::AsyncIoStream> io, const std::string& host) {
  // The library reads the name at once, and keeps it.
  return impl_->context
      .wrapClient(kj::AuthenticatedStream{kj::mv(io), kj::UnknownPeerIdentity::newInstance()},
                  kj::StringPtr(host.c_str(), host.size()))
      .then([](kj::AuthenticatedStream s) { return opened(kj::mv(s)); });
}

}  // namespace gradwire::server::cluster
