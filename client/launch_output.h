#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace gradwire::client {

/// A file descriptor, closed with its owner.
class Fd {
 public:
  explicit Fd(int fd = -1) : fd_(fd) {}
  Fd(Fd&& f) noexcept;
  Fd& operator=(Fd&& f) noexcept;
  ~Fd() { close(); }
  int get() const { return fd_; }
  explicit operator bool() const { return fd_ >= 0; }
  void close();

 private:
  int fd_;
};

/// Where lines go: standard output or standard error, in colours on a terminal (unless NO_COLOR is set).
class Sink {
 public:
  explicit Sink(int fd);
  int fd() const { return fd_; }
  bool empty() const { return begin_ == text_.size(); }
  /// 256 KiB wait to be written: no more should be read.
  bool full() const;
  /// "[rank] line"
  void add(int rank, std::string_view line);
  /// A line of the launcher's own.
  void say(std::string_view line);
  /// Writes a piece, without waiting once poll says that there is room. Returns 0, or the error number when nothing
  /// can be written any more.
  int write();
  /// From now on nothing is kept or written.
  void drop();

 private:
  int fd_;
  bool colour_ = false, broken_ = false;
  std::string text_;
  size_t begin_ = 0;  // of what is not written yet
};

/// One output of one rank: lines of at most 64 KiB from a pipe that does not wait.
class Stream {
 public:
  Stream() = default;
  Stream(Fd pipe, Sink& sink, int rank) : pipe_(static_cast<Fd&&>(pipe)), sink_(&sink), rank_(rank) {}
  bool open() const { return static_cast<bool>(pipe_); }
  int fd() const { return pipe_.get(); }
  /// Reads once; at the end of the output closes it.
  void read();
  /// Reads what is in the pipe now, then closes it.
  void finish();

 private:
  void close();
  Fd pipe_;
  Sink* sink_ = nullptr;
  int rank_ = 0;
  std::string line_;   // its beginning
  int64_t count_ = 0;  // bytes read
};

}  // namespace gradwire::client
