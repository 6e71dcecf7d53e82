#include "client/safetensors.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <unordered_set>

#include "client/errors.h"
#include "client/nn/files.h"
#include "schema/checked_bytes.h"
#include "schema/utf8.h"

namespace gradwire {

void save_file(const std::string& path, const nn::StateDict<Tensor>& tensors, const Metadata& metadata) {
  nn::save_tensors(path, tensors, metadata);
}
nn::StateDict<Tensor> load_file(Session& session, const std::string& path) {
  return nn::load_tensors<Tensor>(session, path);
}
nn::StateDict<Tensor> load_file(const std::string& path) { return load_file(default_session(), path); }

namespace client {
namespace {

[[noreturn]] void refuse(std::string why) { raise(Error(Code::bad_argument, "safetensors: " + std::move(why))); }

void check_text(std::string_view s) {
  for (size_t n; !s.empty(); s.remove_prefix(n)) {
    if (!(n = utf8_length(s))) refuse("a name is not UTF-8");
  }
}

/// Its directory; "." for a bare name.
std::string folder(const std::string& path) {
  const size_t slash = path.rfind('/');
  return slash == path.npos ? "." : slash == 0 ? "/" : path.substr(0, slash);
}

}  // namespace

SafetensorsWriter::SafetensorsWriter(std::string path, std::span<const SafetensorsEntry> entries,
                                     const Metadata& metadata)
    : path_(std::move(path)) {
  std::unordered_set<std::string_view> names;
  for (const SafetensorsEntry& e : entries) {
    check_text(e.name);
    if (e.name == "__metadata__" || !names.insert(e.name).second)
      refuse("the name '" + e.name + "' cannot be used, or not twice");
  }
  for (const auto& [key, value] : metadata) check_text(key), check_text(value);
  const std::string head = safetensors_head(entries, metadata);
  if (head.size() > kMaxSafetensorsHead) refuse("the head is too large");
  static std::atomic<unsigned> count{0};
  temporary_ = path_ + "." + std::to_string(::getpid()) + "." + std::to_string(++count) + ".part";
  fd_ = ::open(temporary_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0666);
  if (fd_ < 0) fail("create");
  try {
    write(std::as_bytes(std::span(head)));
  } catch (...) {
    ::close(fd_), ::unlink(temporary_.c_str());
    throw;
  }
}

SafetensorsWriter::~SafetensorsWriter() {
  if (fd_ < 0) return;
  ::close(fd_);
  ::unlink(temporary_.c_str());
}

void SafetensorsWriter::fail(const char* what) const {
  const int e = errno;
  raise(Error(Code::unavailable, std::string("cannot ") + what + " " + path_ + ": " + std::strerror(e)));
}

void SafetensorsWriter::write(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t n = ::write(fd_, bytes.data(), std::min(bytes.size(), size_t{1} << 30));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) fail("write");
    bytes = bytes.subspan(static_cast<size_t>(n));
  }
}

void SafetensorsWriter::commit() {
  if (::fsync(fd_) != 0) fail("write");
  const bool closed = ::close(std::exchange(fd_, -1)) == 0;
  if (!closed || ::rename(temporary_.c_str(), path_.c_str()) != 0) {
    const int e = errno;
    ::unlink(temporary_.c_str());
    errno = e;
    fail("write");
  }
  // The new name, too, is to outlive a power cut.
  const int dir = ::open(folder(path_).c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (dir < 0) return;
  ::fsync(dir);
  ::close(dir);
}

SafetensorsReader::SafetensorsReader(const std::string& path)
    : path_(path), fd_(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)) {
  struct stat s {};
  if (fd_ < 0 || ::fstat(fd_, &s) != 0 || !S_ISREG(s.st_mode)) {
    const std::string why = fd_ < 0 ? std::strerror(errno) : "not a file";
    if (fd_ >= 0) ::close(fd_);
    raise(Error(Code::unavailable, "cannot read " + path + ": " + why));
  }
  try {
    const auto size = static_cast<size_t>(s.st_size);
    const size_t head = safetensors_head_bytes(bytes(0, std::min(size, kSafetensorsPrefix)), size);
    head_ = parse_safetensors_head(bytes(0, head), size);
  } catch (const Error& e) {
    ::close(fd_);
    raise(e);
  }
}

SafetensorsReader::~SafetensorsReader() { ::close(fd_); }

std::vector<std::byte> SafetensorsReader::bytes(size_t offset, size_t count) const {
  std::vector<std::byte> out(count);
  for (size_t done = 0; done < count;) {
    const ssize_t n = ::pread(fd_, out.data() + done, count - done, static_cast<off_t>(offset + done));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0)
      raise(Error(Code::unavailable, "cannot read " + path_ + ": " + (n < 0 ? std::strerror(errno) : "it was cut")));
    done += static_cast<size_t>(n);
  }
  return out;
}

std::vector<std::byte> SafetensorsReader::read(const SafetensorsEntry& e) const {
  std::vector<std::byte> out = bytes(head_.data_offset + e.begin, e.end - e.begin);
  // Any other byte than 0 is true, and a tensor's is 1.
  if (e.dtype == DType::boolean)
    for (std::byte& b : out) b = std::byte{b != std::byte{0}};
  return out;
}

}  // namespace client
}  // namespace gradwire
