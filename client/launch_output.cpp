#include "client/launch_output.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <utility>

namespace gradwire::client {
namespace {

constexpr size_t kLongestLine = 64 * 1024;  // without its newline
constexpr size_t kOutputBound = 256 * 1024;
constexpr size_t kPiece = 4096;  // what a pipe that is ready for writing takes without waiting (PIPE_BUF)

}  // namespace

Fd::Fd(Fd&& f) noexcept : fd_(std::exchange(f.fd_, -1)) {}

Fd& Fd::operator=(Fd&& f) noexcept {
  std::swap(fd_, f.fd_);
  return *this;
}

void Fd::close() {
  if (fd_ >= 0) ::close(fd_);
  fd_ = -1;
}

Sink::Sink(int fd) : fd_(fd) {
  const char* term = std::getenv("TERM");
  const char* plain = std::getenv("NO_COLOR");
  colour_ = ::isatty(fd) && !(plain && *plain) && !(term && std::string_view(term) == "dumb");
}

bool Sink::full() const { return text_.size() - begin_ >= kOutputBound; }

void Sink::add(int rank, std::string_view line) {
  if (broken_) return;
  if (colour_) text_ += "\033[3" + std::to_string(1 + rank % 6) + "m";
  text_ += "[" + std::to_string(rank) + "]";
  if (colour_) text_ += "\033[0m";
  text_ += ' ';
  text_ += line;
  text_ += '\n';
}

void Sink::say(std::string_view line) {
  if (broken_) return;
  text_ += "gradwire: ";
  text_ += line;
  text_ += '\n';
}

int Sink::write() {
  const ssize_t n = ::write(fd_, text_.data() + begin_, std::min(kPiece, text_.size() - begin_));
  if (n < 0) {
    const int error = errno;
    if (error == EINTR || error == EAGAIN) return 0;
    drop();
    return error;
  }
  begin_ += static_cast<size_t>(n);
  if (empty() || begin_ >= kOutputBound) text_.erase(0, begin_), begin_ = 0;
  return 0;
}

void Sink::drop() { broken_ = true, text_.clear(), begin_ = 0; }

void Stream::read() {
  char part[16 * 1024];
  const ssize_t n = ::read(pipe_.get(), part, sizeof part);
  if (n < 0 && (errno == EINTR || errno == EAGAIN)) return;
  if (n <= 0) return close();
  count_ += n;
  for (std::string_view rest(part, static_cast<size_t>(n)); !rest.empty();) {
    const size_t end = std::min(rest.find('\n'), rest.size()), take = std::min(end, kLongestLine - line_.size());
    line_ += rest.substr(0, take);
    rest.remove_prefix(take);
    const bool whole = rest.starts_with('\n');
    if (whole) rest.remove_prefix(1);
    if (whole || (line_.size() == kLongestLine && !rest.empty())) {
      sink_->add(rank_, line_);
      line_.clear();
    }
  }
}

void Stream::finish() {
  int there = 0;
  if (open() && ::ioctl(fd(), FIONREAD, &there) == 0)
    for (const int64_t end = count_ + there; open() && count_ < end;) read();
  if (open()) close();
}

void Stream::close() {
  if (!line_.empty()) sink_->add(rank_, line_);
  line_.clear();
  pipe_.close();
}

}  // namespace gradwire::client
