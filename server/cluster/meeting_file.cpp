#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <condition_variable>
#include <cstring>
#include <mutex>
#include <set>
#include <sstream>
#include <thread>

#include "server/cluster/meeting.h"

namespace gradwire::server::cluster {

namespace {

constexpr size_t kMaxFile = 1 << 20;
constexpr const char* kDone = "done ";
constexpr Milliseconds kAboutToWrite{1000};

/// The file while this process has its lock.
class Locked {
 public:
  enum class State : uint8_t { held, busy, gone, failed };
  Locked(const std::string& path, bool create) {
    constexpr int kFlags = O_RDWR | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK;
    struct stat own {
    }, there{};
    if (create) {
      fd_ = ::open(path.c_str(), kFlags | O_CREAT | O_EXCL, 0600);
      made = fd_ >= 0;
      if (!made && errno != EEXIST) return;
    }
    if (!made) {
      // To open something else than a file may do things to it.
      if (::lstat(path.c_str(), &there) == 0 && !S_ISREG(there.st_mode)) {
        errno = EINVAL;
        return;
      }
      fd_ = ::open(path.c_str(), kFlags);
      if (fd_ < 0) {
        if (errno == ENOENT) state = create ? State::busy : State::gone;
        return;
      }
    }
    if (::fstat(fd_, &own) < 0) return;
    if (!S_ISREG(own.st_mode)) {
      errno = EINVAL;
      return;
    }
    // A lock of this open file: one of the process would not hold its other threads off.
    struct flock lock {};
    lock.l_type = F_WRLCK, lock.l_whence = SEEK_SET;
    int rc = ::fcntl(fd_, F_OFD_SETLK, &lock);
    if (rc < 0 && errno == EINVAL) rc = ::fcntl(fd_, F_SETLK, &lock);
    if (rc < 0) {
      if (errno == EAGAIN || errno == EACCES) state = State::busy;
      return;
    }
    // The last one of another meeting may have removed it while this one was on its way in.
    const bool same = ::stat(path.c_str(), &there) == 0 && there.st_ino == own.st_ino && there.st_dev == own.st_dev;
    state = same ? State::held : create ? State::busy : State::gone;
  }
  ~Locked() {
    if (fd_ >= 0) ::close(fd_);
  }
  Locked(const Locked&) = delete;
  Locked& operator=(const Locked&) = delete;

  std::string read() const {
    std::string all;
    char block[4096];
    for (;;) {
      const ssize_t n = ::pread(fd_, block, sizeof block, static_cast<off_t>(all.size()));
      if (n < 0 && errno == EINTR) continue;
      if (n <= 0) return all;
      all.append(block, static_cast<size_t>(n));
      if (all.size() > kMaxFile) return all;
    }
  }
  bool write(const std::string& all) const {
    size_t have = 0;
    while (have < all.size()) {
      const ssize_t n = ::pwrite(fd_, all.data() + have, all.size() - have, static_cast<off_t>(have));
      if (n < 0 && errno != EINTR) return false;
      if (n > 0) have += static_cast<size_t>(n);
    }
    return ::ftruncate(fd_, static_cast<off_t>(all.size())) == 0 && ::fsync(fd_) == 0;
  }

  State state = State::failed;
  bool made = false;  // the file, which was not there

 private:
  int fd_ = -1;
};

class FileMeeting final : public Meeting {
 public:
  FileMeeting(std::string path, std::string group_name, Guest self, Moment deadline, Done<Result<Met>> done)
      : path_(std::move(path)),
        group_name_(std::move(group_name)),
        self_(std::move(self)),
        deadline_(deadline),
        done_(std::move(done)) {}
  void stop() noexcept override {
    {
      const std::lock_guard lock(mutex_);
      stop_ = true;
    }
    changed_.notify_all();
  }
  void hold() noexcept override {
    try {
      for (Milliseconds pause{2};; pause = std::min(pause * 2, Milliseconds(50))) {
        std::optional<Result<Met>> met;
        try {
          met = look();
        } catch (const Error& e) {
          met = Result<Met>(e);
        }
        if (!met && std::chrono::steady_clock::now() >= deadline_)
          met = Result<Met>(Error(Code::deadline_exceeded,
                                  "waiting for processes to connect has timed out: " + std::to_string(seen_) + " of " +
                                      std::to_string(self_.world_size) + " have written to " + path_));
        if (met) {
          if (!complete_) withdraw();
          return done_(std::move(*met));
        }
        std::unique_lock lock(mutex_);
        if (changed_.wait_for(lock, pause, [this] { return stop_; })) break;
      }
      withdraw();
    } catch (...) {
      if (done_) done_(Result<Met>(Error(Code::internal, "the meeting in a file has failed")));
    }
  }

 private:
  [[noreturn]] void fail(const std::string& why) const {
    throw Error(Code::bad_argument, "file:// rendezvous: '" + path_ + "' " + why);
  }

  struct Content {
    std::vector<std::pair<std::string, Guest>> guests;  // with the name of their group, in the order of arrival
    std::set<std::string> done;
  };
  Content parse(const std::string& text) const {
    Content c;
    std::istringstream in(text);
    for (std::string line; std::getline(in, line);) {
      if (line.starts_with(kDone)) {
        c.done.insert(line.substr(std::strlen(kDone)));
      } else if (auto entry = read_line(line); entry && text.size() <= kMaxFile) {
        c.guests.emplace_back(std::move(entry->group_name), std::move(entry->guest));
      } else {
        fail("is there already, and is no meeting of servers: it must be a path that does not exist yet");
      }
    }
    return c;
  }

  /// What it comes to, or nothing yet.
  std::optional<Result<Met>> look() {
    const Locked file(path_, !written_);
    made_ = made_ || file.made;
    switch (file.state) {
      case Locked::State::busy:
        return std::nullopt;
      case Locked::State::gone:
        fail("was removed while ranks were still coming");
      case Locked::State::failed:
        fail(std::string("cannot be used: ") + std::strerror(errno));
      case Locked::State::held:
        break;
    }
    std::string text = file.read();
    if (text.empty() && !written_ && !made_) {
      // Its rank is about to write into it; or it is somebody else's.
      const Moment now = std::chrono::steady_clock::now();
      if (now - empty_since_.value_or(now) > kAboutToWrite)
        fail("is there already, and is empty: it must be a path that does not exist yet");
      if (!empty_since_) empty_since_ = now;
      return std::nullopt;
    }
    Content content = parse(text);
    std::vector<Guest> mine;
    for (auto& [name, guest] : content.guests) {
      if (name == group_name_) mine.push_back(guest);
    }
    if (!written_) {
      if (static_cast<int>(mine.size()) >= self_.world_size)
        fail("is there already, and its " + std::to_string(mine.size()) +
             " ranks have come: it must be a path that does not exist yet");
      mine.push_back(self_);
      content.guests.emplace_back(group_name_, self_);
      text += write_line(group_name_, self_) + "\n";
      if (!file.write(text)) fail(std::string("cannot be written: ") + std::strerror(errno));
      written_ = true;
    }
    seen_ = mine.size();
    for (auto& g : mine) {
      if (g.world_size != self_.world_size)
        throw Error(Code::group_mismatch, "world sizes are not equal: " + g.address + " has " +
                                              std::to_string(g.world_size) + ", " + self_.address + " has " +
                                              std::to_string(self_.world_size));
    }
    if (static_cast<int>(mine.size()) < self_.world_size) return std::nullopt;
    complete_ = true;
    content.done.insert(self_.id);
    const bool last = std::all_of(content.guests.begin(), content.guests.end(),
                                  [&](auto& g) { return content.done.contains(g.second.id); });
    if (last) {
      ::unlink(path_.c_str());
    } else if (!file.write(text + kDone + self_.id + "\n")) {
      fail(std::string("cannot be written: ") + std::strerror(errno));
    }
    return Result<Met>(seat_guests(mine, self_.id));
  }

  void withdraw() noexcept {
    if (!written_) return;
    for (int tries = 0; tries < 50; ++tries) {
      try {
        const Locked file(path_, false);
        if (file.state == Locked::State::held) {
          std::istringstream in(file.read());
          std::string rest;
          for (std::string line; std::getline(in, line);) {
            if (line.find(self_.id) == std::string::npos) rest += line + "\n";
          }
          if (rest.empty()) {
            ::unlink(path_.c_str());
          } else {
            file.write(rest);
          }
          return;
        }
        if (file.state != Locked::State::busy) return;
        std::this_thread::sleep_for(Milliseconds(2));
      } catch (...) {
        return;
      }
    }
  }

  const std::string path_, group_name_;
  const Guest self_;
  const Moment deadline_;
  Done<Result<Met>> done_;
  bool made_ = false, written_ = false, complete_ = false;  // the thread's
  std::optional<Moment> empty_since_;
  size_t seen_ = 0;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool stop_ = false;
};

}  // namespace

MeetingPtr meet_in_file(std::string path, std::string group_name, Guest self, Moment deadline, Done<Result<Met>> done,
                        Joins::Ticket ticket) {
  return begin(
      std::make_shared<FileMeeting>(std::move(path), std::move(group_name), std::move(self), deadline, std::move(done)),
      std::move(ticket));
}

}  // namespace gradwire::server::cluster
