#pragma once

#include <deque>
#include <list>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "server/cluster/message.h"

namespace gradwire::server::cluster {

/// What the ranks of one group have called, and what is said to them: the heart of the promise that no byte moves
/// before all say the same. A plain value that knows no time but what it is given.
class Agreement {
 public:
  explicit Agreement(int size);

  struct Outcome {
    std::vector<std::pair<int, Verdict>> verdicts;  // (rank, what it is told), in the order of telling
    std::optional<std::vector<int>> split;          // all have called new_group with these ranks, sorted: `sequence`
    uint64_t sequence = 0;
  };
  /// Throws Error{bad_request} where the member breaks the rules: then it is not heard any more.
  Outcome call(int rank, const Call&, Moment now);

  /// The collective that was not called by all before its first caller's deadline, in words.
  std::optional<Error> overdue(Moment now) const;
  /// Sends and receives whose other side has not come in time: withdrawn.
  Outcome expired(Moment now);

 private:
  struct Ballot {
    std::vector<std::optional<Call>> calls;  // by rank
    int have = 0;
    Moment deadline = Moment::max();
  };
  struct Waiting {
    int rank;
    Call call;
    Moment deadline;
  };
  struct Mailbox {  // of a receiver, each in the order of arrival
    std::list<Waiting> sends, recvs;
  };

  Outcome decide();
  Outcome pair_up(int rank, const Call&, Moment deadline);
  void match(Outcome&, const Waiting& send, const Waiting& recv);

  const int size_;
  uint64_t decided_ = 0;         // collectives
  std::vector<uint64_t> next_;   // by rank: the number of its next collective
  std::deque<Ballot> open_;      // the first is number decided_
  std::vector<Mailbox> mail_;    // by receiver
  std::vector<size_t> waiting_;  // by rank: its sends and receives that wait
  uint64_t tag_ = 0;
};

/// How the calls of all ranks for one collective differ: "all_reduce: tensors are not equal in size or data type: rank
/// 0 has float32 of 4 elements, rank 1 has ..."; empty if they do not.
std::string difference(const std::vector<const Call*>&);

/// "rank 2", "ranks 0, 3 and 7 others".
std::string these(const std::vector<int>& ranks);

}  // namespace gradwire::server::cluster
