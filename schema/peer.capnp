@0xd3f1a9c04be27586;
# Servers among themselves. A link carries messages and no calls: each stands for itself, they arrive in the order of
# sending, and nothing is kept for what is not answered. One link is one member of a group and of the groups made of it;
# the other end is the server of rank 0, where all of the group's messages meet. Fields are appended only.
using Cxx = import "/capnp/c++.capnp";
$Cxx.namespace("gradwire::wire");
using Types = import "types.capnp";

struct PeerMessage {
  group @0 :UInt64;  # whose business it is; 0: the link's own
  epoch @1 :UInt64;  # of that group: what an earlier one said is heard no more
  union {
    ping @2 :Void;         # "I am here", by both sides
    hello @3 :PeerHello;   # the first message of who has dialled
    join @4 :PeerJoin;     # the second
    retry @5 :Void;        # the answer where nobody has called that meeting yet: come again
    seated @6 :PeerSeated; # all have come; group and epoch are the new group's
    blob @7 :Data;         # how the data plane of this rank is reached
    connect @8 :PeerConnect;
    connected @9 :Void;
    formed @10 :Void;
    call @11 :PeerCall;
    verdict @12 :PeerVerdict;
    failed @13 :Types.Error;  # this member's data plane has failed
    broken @14 :PeerBroken;  # the group has
    leave @15 :Void;          # this member wants no more of the group
  }
}

struct PeerBroken {
  error @0 :Types.Error;
  left @1 :Bool;  # a rank left of its own will: what had begun to move may arrive
}

struct PeerHello {
  minVersion @0 :UInt32;
  maxVersion @1 :UInt32;
  address @2 :Text;  # of the server that dials; its certificate has this name
}

struct PeerJoin {
  meeting @0 :Text;
  worldSize @1 :Int32;
  rank @2 :Int32;
}

struct PeerSeated {
  rank @0 :Int32;
  addresses @1 :List(Text);  # of all ranks' servers
}

struct PeerConnect {
  blobs @0 :List(Data);  # by rank
  key @1 :Data;          # 32 random bytes, this group's and epoch's own
}

struct PeerCall {
  sequence @0 :UInt64;  # of the group's collectives; for send and recv a number of this member's own
  what @1 :UInt8;       # Collective, ReduceOp and DType by their numbers
  op @2 :UInt8;
  dtype @3 :UInt8;
  count @4 :Int64;
  root @5 :Int32;
  patience @6 :Int64;   # milliseconds until its deadline
  split @7 :Bool;       # new_group instead: only sequence, patience and ranks count
  ranks @8 :List(Int32);
  part @9 :UInt64;      # of tensors that travel together: which
}

struct PeerVerdict {
  sequence @0 :UInt64;
  pairwise @1 :Bool;     # of a send or recv
  failed @2 :Bool;
  error @3 :Types.Error;
  tag @4 :UInt64;        # of a send or recv: what pairs them up
  source @5 :Int32;      # and where it comes from
  child @6 :UInt64;      # of a split: the new group, 0 for who is not in it
  rank @7 :Int32;        # there
  size @8 :Int32;
}
