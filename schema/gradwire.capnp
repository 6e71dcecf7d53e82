@0xd6a4e2c95b8f7a13;
# Client and server. Errors are data, never RPC exceptions: every answer that can fail carries one. Methods and fields
# are appended only; nothing relies on RPC cancellation.
using Cxx = import "/capnp/c++.capnp";
$Cxx.namespace("gradwire::wire");
using Types = import "types.capnp";

interface Login {  # the bootstrap object: nothing else can be reached before login
  hello @0 (minVersion :UInt32, maxVersion :UInt32) -> (minVersion :UInt32, maxVersion :UInt32, features :UInt64, failed :Bool, error :Types.Error);
  login @1 (token :Text) -> (error :Types.Error, failed :Bool, gate :Gate);
}

struct ServerInfo {
  version @0 :Text;
  devices @1 :List(Text);
  catalogueHash @2 :UInt64;  # equal to the client's: operators travel by index
  operators @3 :List(Text);  # full names in index order, sent only when asked
  threads @4 :UInt32;
  lanes @5 :UInt32;
}

struct SessionOptions {
  device @0 :Text;
  name @1 :Text;
  dtype @2 :UInt8 = 8;       # the default dtype, float32
  hasSeed @3 :Bool;
  seed @4 :UInt64;
  memoryLimit @5 :Int64;     # bytes; 0: the server's default
  ttlSeconds @6 :Int64;      # lease after the connection is gone; 0: the server's default
  compat @7 :List(Text);
}

struct SessionInfo {
  id @0 :Text;
  name @1 :Text;
  device @2 :Text;
  tensors @3 :Int64;
  bytes @4 :Int64;
  memoryLimit @5 :Int64;
  opsRun @6 :UInt64;
  ageSeconds @7 :Float64;
  peakBytes @8 :Int64;       # the most it has held at a time
}

interface Gate {  # what a logged-in client may do
  info @0 (operators :Bool) -> (info :ServerInfo, failed :Bool, error :Types.Error);
  open @1 (options :SessionOptions) -> (failed :Bool, error :Types.Error, session :Session, id :Text, secret :Data);
  resume @2 (id :Text, secret :Data) -> (failed :Bool, error :Types.Error, session :Session, lastSeq :UInt64);
  sessions @3 () -> (sessions :List(SessionInfo), failed :Bool, error :Types.Error);
  runJson @4 (program :Text) -> (failed :Bool, error :Types.Error, answer :Text);  # a program of rest-api.md in a session of its own
}

interface Session {
  run @0 (batch :Types.Batch) -> (outcome :Types.Outcome);
  # Bulk data: reserve room, write it in chunks of at most 1 MiB with several calls in flight, then use the upload's
  # number as the argument of an `upload` call of a batch. An upload that no batch takes ends with the session.
  reserve @1 (dtype :UInt8, shape :List(Int64)) -> (failed :Bool, error :Types.Error, upload :UInt64, size :UInt64);
  write @2 (upload :UInt64, offset :UInt64, data :Data) -> (failed :Bool, error :Types.Error);
  # A fetched value that was too large for its outcome, by pieces of at most 1 MiB, until it is acked.
  read @3 (seq :UInt64, index :UInt32, offset :UInt64, size :UInt32) -> (failed :Bool, error :Types.Error, data :Data);
  cancel @4 (seq :UInt64) -> (failed :Bool, error :Types.Error);
  close @5 () -> (failed :Bool, error :Types.Error);
}
