@0xb2f1c1d6a0e5b3f1;
# Structs that both sides of the wire, and servers among themselves, share. Fields are appended only.
using Cxx = import "/capnp/c++.capnp";
$Cxx.namespace("gradwire::wire");

struct OpCall {  # two words: schema/op_call.h says what they mean
  op @0 :UInt16;
  gradMode @1 :Bool;
  args @2 :UInt8;
  line @3 :UInt32;
  out @4 :UInt64;
}

struct Arg {  # two words
  kind @0 :UInt8;
  part @1 :UInt8;
  count @2 :UInt32;
  value @3 :UInt64;  # the bits of i, f or id
}

struct Line {
  file @0 :UInt32;
  line @1 :UInt32;
}

struct Fetch {
  id @0 :UInt64;
  part @1 :UInt8;
  kind @2 :UInt8;
}

struct Batch {
  seq @0 :UInt64;
  acked @1 :UInt64;
  epoch @2 :UInt64;
  digest @3 :UInt64;  # of everything but acked: a repeat with another digest is bad_program
  calls @4 :List(OpCall);
  args @5 :List(Arg);
  ints @6 :List(Int64);
  texts @7 :List(Data);
  lines @8 :List(Line);
  fetches @9 :List(Fetch);
}

struct Error {
  code @0 :UInt8;
  message @1 :Text;
  op @2 :Text;
  seq @3 :UInt64;
  step @4 :Int64;
  file @5 :Text;
  line @6 :UInt32;
}

struct TensorInfo {
  dtype @0 :UInt8;
  shape @1 :List(Int64);
  strides @2 :List(Int64);
  device @3 :Text;
  requiresGrad @4 :Bool;
  isLeaf @5 :Bool;
  gradFn @6 :Text;
  version @7 :UInt64;
  bytes @8 :Int64;
  count @9 :Int64;  # of a list result; -1: a single tensor
}

struct Fetched {
  present @0 :Bool;     # false: there is no such gradient
  info @1 :TensorInfo;
  size @2 :UInt64;      # bytes of the value, contiguous, row-major, little-endian
  data @3 :Data;        # all of them up to 64 KiB; else empty: read(seq, index, offset)
}

struct Warning {
  op @0 :Text;
  message @1 :Text;
  step @2 :Int64;
  file @3 :Text;
  line @4 :UInt32;
}

struct Outcome {
  seq @0 :UInt64;
  failed @1 :Bool;
  error @2 :Error;
  fetched @3 :List(Fetched);
  warnings @4 :List(Warning);
}
