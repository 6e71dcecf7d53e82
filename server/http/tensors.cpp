#include <algorithm>
#include <array>
#include <cstring>

#include "engine/io/layout.h"
#include "engine/io/npy.h"
#include "schema/safetensors.h"
#include "server/http/json_tensor.h"
#include "server/http/json_write.h"
#include "server/http/names.h"
#include "server/http/routes.h"
#include "server/http/session_use.h"

namespace gradwire::server::http {
namespace {

namespace io = engine::io;

constexpr std::string_view kJson = "application/json", kNpy = "application/x-npy",
                           kSafetensors = "application/vnd.safetensors";
constexpr size_t kChunk = size_t{64} << 10;       // of an upload whose bytes are converted on their way
constexpr size_t kMaxFileHead = size_t{1} << 20;  // bytes of a safetensors head

Async<TensorInfo> put(Exchange& x, Session* session, std::string name, Room room, bool requires_grad) {
  auto start = [&](Done<Result<TensorInfo>> done) {
    Key key;
    key.name = std::move(name);
    session->put(std::move(key), std::move(room), requires_grad, std::move(done));
  };
  co_return value_or_throw(co_await call<Result<TensorInfo>>(x, start));
}

Async<Room> reserve(Exchange& x, Session* session, DType dtype, Shape shape) {
  auto start = [&](Done<Result<Room>> done) { session->reserve(dtype, std::move(shape), std::move(done)); };
  co_return value_or_throw(co_await call<Result<Room>>(x, start));
}

/// The next room.size bytes of the body go to their place, without a copy where the file's bytes are the tensor's.
Async<void> fill(Exchange& x, const Room& room, bool fortran, bool big_endian) {
  const std::span<std::byte> to(room.data, room.size);
  io::Sink sink(room.dtype, room.shape, fortran, big_endian, to);
  if (sink.plain()) {
    co_await x.read(to);
    co_return;
  }
  std::vector<std::byte> chunk(std::min(kChunk, room.size));
  for (size_t left = room.size; left > 0;) {
    const std::span<std::byte> part(chunk.data(), std::min(chunk.size(), left));
    co_await x.read(part);
    sink.feed(part);
    left -= part.size();
  }
}

Async<std::vector<std::byte>> read_bytes(Exchange& x, size_t n, const char* what) {
  if (n > x.unread) throw Error(Code::bad_tensor, std::string(what) + ": the body is too short");
  std::vector<std::byte> bytes(n);
  co_await x.read(bytes);
  co_return bytes;
}

Async<std::string> put_npy(Exchange& x, Session* session, const std::string& name, bool requires_grad) {
  std::vector<std::byte> head = co_await read_bytes(x, io::kNpyPrefix, "npy");
  const size_t all = io::npy_head_bytes(head);
  const std::vector<std::byte> rest = co_await read_bytes(x, all - head.size(), "npy");
  head.insert(head.end(), rest.begin(), rest.end());
  const io::NpyHead file = io::parse_npy_head(head);
  if (file.data_bytes != x.unread) {
    throw Error(Code::bad_tensor,
                "npy: " + std::to_string(x.unread) + " bytes of data, expected " + std::to_string(file.data_bytes));
  }
  Room room = co_await reserve(x, session, file.dtype, file.shape);
  co_await fill(x, room, file.fortran, file.big_endian);
  const TensorInfo info = co_await put(x, session, name, std::move(room), requires_grad);
  std::string body;
  write_info(body, name, info);
  co_return body;
}

/// One tensor becomes `name`; of several, t becomes `name.t`. None is put before all have arrived.
Async<std::string> put_safetensors(Exchange& x, Session* session, const std::string& name, bool requires_grad) {
  const uint64_t size = x.unread;
  std::vector<std::byte> head = co_await read_bytes(x, kSafetensorsPrefix, "safetensors");
  const size_t all = safetensors_head_bytes(head, size, kMaxFileHead);
  const std::vector<std::byte> rest = co_await read_bytes(x, all - head.size(), "safetensors");
  head.insert(head.end(), rest.begin(), rest.end());
  const SafetensorsHead file = parse_safetensors_head(head, size);
  if (file.tensors.empty()) throw Error(Code::bad_tensor, "safetensors: the file holds no tensor");
  std::vector<std::string> names;
  for (const auto& t : file.tensors) {
    names.push_back(file.tensors.size() == 1 ? name : name + "." + t.name);
    if (const char* fault = name_fault(names.back()))
      throw Error(Code::bad_tensor, "safetensors: " + names.back() + ": " + fault);
  }
  std::vector<Room> rooms;
  for (const auto& t : file.tensors) {
    Room room = co_await reserve(x, session, t.dtype, t.shape);
    co_await fill(x, room, false, false);
    rooms.push_back(std::move(room));
  }
  std::string body;
  for (size_t i = 0; i < rooms.size(); ++i) {
    const TensorInfo info = co_await put(x, session, names[i], std::move(rooms[i]), requires_grad);
    if (i) body += ',';
    write_info(body, names[i], info);
  }
  if (rooms.size() > 1) body = "{\"tensors\":[" + body + "]}";
  co_return body;
}

Async<std::string> put_json(Exchange& x, Session* session, const std::string& name, bool requires_grad) {
  const std::string text = co_await read_json_body(x);
  const DType floating = session->info().dtype;
  auto read = [&] { return read_tensor(Doc(text).root(), floating); };
  const Program::Input t = co_await by_size<Program::Input>(x, text.size(), read);
  Room room = co_await reserve(x, session, t.dtype, t.shape);
  if (!t.bytes.empty()) std::memcpy(room.data, t.bytes.data(), t.bytes.size());
  const TensorInfo info = co_await put(x, session, name, std::move(room), requires_grad || t.requires_grad);
  std::string body;
  write_info(body, name, info);
  co_return body;
}

bool flag(const Head& head, std::string_view key) {
  const std::string* v = head.query_value(key);
  if (!v || *v == "false" || *v == "0") return false;
  if (*v == "true" || *v == "1" || v->empty()) return true;
  throw Error(Code::bad_request, std::string(key) + " must be true or false");
}

Key key_for(const Exchange& x, Part part) {
  Key key = key_of(x.params[1]);
  if (part == Part::grad) key.part = part;
  return key;
}

Async<Result<TensorInfo>> describe(Exchange& x, Session* session, Key key) {
  auto start = [&](Done<Result<TensorInfo>> done) { session->describe(std::move(key), std::move(done)); };
  co_return co_await call<Result<TensorInfo>>(x, start);
}

}  // namespace

Async<Answer> put_tensor(Exchange& x) {
  const SessionUse session(x.service, x.params[0]);
  const std::string& name = x.params[1];
  if (const char* fault = name_fault(name)) throw Error(Code::bad_request, std::string("a tensor's name: ") + fault);
  const bool requires_grad = flag(x.head, "requires_grad");
  const std::string type = media_type(x.head.field("Content-Type"));
  const Result<TensorInfo> before = co_await describe(x, session.operator->(), key_for(x, Part::value));
  Answer answer;
  if (type == kNpy) {
    answer.body = co_await put_npy(x, session.operator->(), name, requires_grad);
  } else if (type == kSafetensors) {
    answer.body = co_await put_safetensors(x, session.operator->(), name, requires_grad);
  } else {
    answer.body = co_await put_json(x, session.operator->(), name, requires_grad);
  }
  answer.status = before ? 200 : 201;
  co_return answer;
}

Async<Answer> get_tensor(Exchange& x) {
  const SessionUse session(x.service, x.params[0]);
  const std::string* part = x.head.query_value("part");
  if (part && *part != "value" && *part != "grad" && *part != "info") {
    throw Error(Code::bad_request, "part must be value, grad or info");
  }
  const Key key = key_for(x, part && *part == "grad" ? Part::grad : Part::value);
  if (part && *part == "info") {
    const TensorInfo info = value_or_throw(co_await describe(x, session.operator->(), key));
    std::string body;
    write_info(body, x.params[1], info);
    co_return Answer::json(std::move(body));
  }

  constexpr std::array kOffers = {kJson, kNpy, kSafetensors};
  const auto form = negotiate(x.head.joined("Accept"), kOffers);
  if (!form)
    throw Error(Code::not_acceptable,
                "a tensor is given as application/json, application/x-npy or application/vnd.safetensors");
  auto start = [&](Done<Result<TensorValue>> done) { session->get(key, std::move(done)); };
  Result<TensorValue> got = co_await call<Result<TensorValue>>(x, start);
  TensorValue value = value_or_throw(std::move(got));
  Answer answer;
  answer.type = kOffers[*form];
  answer.fields.emplace_back("Vary", "Accept");
  if (answer.type == kJson) {
    auto write = [&value] {
      std::string body;
      write_tensor(body, value);
      return body;
    };
    answer.body = co_await by_size<std::string>(x, value.bytes.size, write);
    x.hold(answer.body.size());
    co_return answer;
  }
  if (answer.type == kNpy) {
    if (value.info.dtype == DType::bfloat16)
      throw Error(Code::not_acceptable, "npy has no bfloat16; ask for application/vnd.safetensors");
    answer.body = io::npy_head(value.info.dtype, value.info.shape);
  } else {
    const SafetensorsEntry entry{x.params[1], value.info.dtype, value.info.shape, 0, 0};
    answer.body = safetensors_head(std::span(&entry, 1));
  }
  answer.blob = std::move(value.bytes);
  co_return answer;
}

Async<Answer> list_tensors(Exchange& x) {
  const SessionUse session(x.service, x.params[0]);
  using List = Result<std::vector<std::pair<std::string, TensorInfo>>>;
  auto start = [&](Done<List> done) { session->list(std::move(done)); };
  List got = co_await call<List>(x, start);
  const auto list = value_or_throw(std::move(got));
  auto write = [&list] {
    std::string body = "{\"tensors\":[";
    for (const auto& [name, info] : list) {
      if (body.back() != '[') body += ',';
      write_info(body, name, info);
    }
    return body += "]}";
  };
  std::string body = co_await by_size<std::string>(x, list.size() * 200, write);
  co_return Answer::json(std::move(body));
}

Async<Answer> delete_tensor(Exchange& x) {
  const SessionUse session(x.service, x.params[0]);
  auto start = [&](Done<Result<void>> done) { session->release(key_for(x, Part::value), std::move(done)); };
  value_or_throw(co_await call<Result<void>>(x, start));
  Answer answer;
  answer.status = 204;
  co_return answer;
}

}  // namespace gradwire::server::http
