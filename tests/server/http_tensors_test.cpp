#include <catch2/generators/catch_generators.hpp>

#include "engine/io/npy.h"
#include "schema/safetensors.h"
#include "server/http/json.h"
#include "tests/server/http_support.h"

using namespace gradwire;
using namespace gradwire::server;
using namespace gradwire::server::http_test;
namespace io = gradwire::engine::io;

namespace {

const std::string kJson = "Content-Type: application/json\r\n", kNpy = "Content-Type: application/x-npy\r\n",
                  kSafe = "Content-Type: application/vnd.safetensors\r\n";

std::string bytes_of(const std::vector<float>& v) { return {reinterpret_cast<const char*>(v.data()), v.size() * 4}; }

}  // namespace

TEST_CASE("A session is opened, described, listed and closed", "[rest2]") {
  Site site;
  Peer peer(site);
  const Reply made =
      peer.ask("POST", "/v1/sessions", R"({"name":"mine","dtype":"float64","seed":7,"ttl_seconds":60})", kJson);
  REQUIRE(made.status == 201);
  const std::string s = made.fields.at("location");
  CHECK(s.size() == std::string("/v1/sessions/").size() + 32);
  CHECK(made.body.find("\"id\":\"" + s.substr(13) + "\"") != std::string::npos);
  CHECK(made.body.find("\"name\":\"mine\"") != std::string::npos);
  CHECK(peer.ask("GET", s).body.find("\"dtype\":\"float64\"") != std::string::npos);
  CHECK(peer.ask("GET", "/v1/sessions").body.find(s.substr(13)) != std::string::npos);
  CHECK(peer.ask("PUT", s + "/tensors/x", R"({"data":[1.5]})", kJson).body.find("float64") != std::string::npos);
  CHECK(peer.ask("DELETE", s).status == 204);
  CHECK(peer.ask("GET", s).status == 404);
  CHECK(peer.ask("DELETE", s).status == 404);
}

TEST_CASE("A tensor is put, read, described, listed and released", "[rest2]") {
  Site site;
  Peer peer(site);
  const std::string s = open_session(peer);
  CHECK(peer.ask("PUT", s + "/tensors/layer1.0.weight", R"({"dtype":"float32","shape":[2,3],"data":[[1,2,3],[4,5,6]]})",
                 kJson)
            .status == 201);
  CHECK(peer.ask("PUT", s + "/tensors/layer1.0.weight?requires_grad=true",
                 R"({"dtype":"float32","shape":[2,3],"data":[1,2,3,4,5,6.5]})", kJson)
            .status == 200);
  CHECK(peer.ask("GET", s + "/tensors/layer1.0.weight").body ==
        R"({"dtype":"float32","shape":[2,3],"data":[[1.0,2.0,3.0],[4.0,5.0,6.5]],"requires_grad":true})");
  const std::string info = peer.ask("GET", s + "/tensors/layer1.0.weight?part=info").body;
  CHECK(
      info.find(R"("shape":[2,3],"strides":[3,1],"device":"cpu","requires_grad":true,"is_leaf":true,"grad_fn":null)") !=
      std::string::npos);
  CHECK(peer.ask("GET", s + "/tensors").body.find("\"name\":\"layer1.0.weight\"") != std::string::npos);
  CHECK(code_of(peer.ask("GET", s + "/tensors/layer1.0.weight?part=grad").body) == "no_grad");
  CHECK(code_of(peer.ask("GET", s + "/tensors/layer1.0.weight.grad").body) == "no_grad");
  CHECK(peer.ask("DELETE", s + "/tensors/layer1.0.weight").status == 204);
  CHECK(peer.ask("GET", s + "/tensors/layer1.0.weight").status == 404);
}

TEST_CASE("A name may hold any UTF-8", "[rest2]") {
  Site site;
  Peer peer(site);
  const std::string s = open_session(peer);
  CHECK(peer.ask("PUT", s + "/tensors/gr%C3%BC%C3%9Fe%20%22x%22", R"({"data":[1]})", kJson).status == 201);
  CHECK(peer.ask("GET", s + "/tensors")
            .body.find("\"gr\xC3\xBC\xC3\x9F"
                       "e \\\"x\\\"\"") != std::string::npos);
}

TEST_CASE("The contract's program gives its loss and its gradient", "[rest3]") {
  Site site;
  Peer peer(site);
  const std::string s = open_session(peer);
  const Reply r = peer.ask("POST", s + "/run", R"({
    "inputs": {"x": {"dtype": "float32", "shape": [2, 3], "data": [1,2,3,4,5,6], "requires_grad": true}},
    "ops": [{"op": "mul", "in": ["x", "x"], "out": "y"}, {"op": "sum", "in": ["y"], "attrs": {"dim": [1], "keepdim": false}, "out": "s"},
            {"op": "sum", "in": ["s"], "out": "loss"}, {"op": "backward", "in": ["loss"]}],
    "fetch": ["loss", "x.grad", "y.grad", "loss"], "release": ["y", "s"]})",
                           kJson);
  REQUIRE(r.status == 200);
  CHECK(r.body.starts_with(R"({"tensors":{"loss":{"dtype":"float32","shape":[],"data":91.0,"requires_grad":)"));
  CHECK(r.body.find(R"("x.grad":{"dtype":"float32","shape":[2,3],"data":[[2.0,4.0,6.0],[8.0,10.0,12.0]])") !=
        std::string::npos);
  CHECK(r.body.find("\"y.grad\":null") != std::string::npos);
  CHECK_NOTHROW(http::Doc(r.body));
  CHECK(peer.ask("GET", s + "/tensors/x?part=grad").body.find("[[2.0,4.0,6.0],[8.0,10.0,12.0]]") != std::string::npos);
  CHECK(peer.ask("GET", s + "/tensors/y").status == 404);
}

TEST_CASE("A stored program runs with new inputs, one request a step", "[rest3]") {
  Site site;
  Peer peer(site);
  const std::string s = open_session(peer);
  REQUIRE(peer.ask("PUT", s + "/tensors/w", R"({"data":[10.0]})", kJson).status == 201);
  const Reply stored =
      peer.ask("PUT", s + "/programs/step",
               R"({"inputs":["x"],"ops":[{"op":"mul","in":["x","w"],"out":"y"}],"fetch":["y"]})", kJson);
  CHECK(stored.status == 201);
  CHECK(stored.body == R"({"name":"step","inputs":["x"],"fetch":["y"],"ops":1})");
  for (int i = 1; i < 4; ++i) {
    const Reply r =
        peer.ask("POST", s + "/programs/step/run", R"({"inputs":{"x":{"data":[)" + std::to_string(i) + ".0]}}}", kJson);
    CHECK(r.status == 200);
    CHECK(r.body.find("\"data\":[" + std::to_string(i) + "0.0]") != std::string::npos);
  }
  CHECK(peer.ask("POST", s + "/programs/step/run", "{}", kJson).status == 400);
  CHECK(peer.ask("DELETE", s + "/programs/step").status == 204);
  CHECK(code_of(peer.ask("POST", s + "/programs/step/run", "{}", kJson).body) == "no_program");
}

TEST_CASE("What every run gives is declared by its name, and the error for other ways says so", "[rest3]") {
  Site site;
  Peer peer(site);
  const std::string path = open_session(peer) + "/programs/p";
  const std::string ops = R"("ops":[{"op":"mul","in":["x","x"],"out":"y"}],"fetch":["y"]})";
  const Reply refused = peer.ask("PUT", path, R"({"inputs":{"x":{"dtype":"float32","shape":[2]}},)" + ops, kJson);
  CHECK(refused.status == 400);
  CHECK(refused.body.find("inputs 'x': a tensor needs data; what every run gives is declared by its name: "
                          R"(\"inputs\": [\"x\"])") != std::string::npos);
  for (const char* inputs : {R"(["x"])", R"({"x":{}})", R"({"x":null})"})
    CHECK(peer.ask("PUT", path, std::string(R"({"inputs":)") + inputs + "," + ops, kJson).status == 201);
  // The contract has these forms, for storing only.
  const std::string api = peer.ask("GET", "/v1/openapi.json").body;
  CHECK(api.find("#/components/schemas/Definition") != std::string::npos);
  CHECK(api.find(R"("Definition":{"type":"object","properties":{"inputs":{"description")") != std::string::npos);
}

TEST_CASE("npy goes in and comes out by Content-Type and Accept", "[rest1]") {
  Site site;
  Peer peer(site);
  const std::string s = open_session(peer);
  const std::string file = io::npy_head(DType::float32, Shape{2, 2}) + bytes_of({1, 2, 3, 4});
  CHECK(peer.ask("PUT", s + "/tensors/x", file, kNpy).status == 201);
  const Reply r = peer.ask("GET", s + "/tensors/x", "", "Accept: application/x-npy\r\n");
  CHECK(r.fields.at("content-type") == "application/x-npy");
  CHECK(r.body == file);
  CHECK(code_of(peer.ask("PUT", s + "/tensors/x", file + "x", kNpy).body) == "bad_tensor");
  CHECK(code_of(peer.ask("PUT", s + "/tensors/x", file.substr(0, file.size() - 1), kNpy).body) == "bad_tensor");
  CHECK(code_of(peer.ask("GET", s + "/tensors/x", "", "Accept: image/png\r\n").body) == "not_acceptable");
}

TEST_CASE("A column-major big-endian npy arrives row-major", "[rest1]") {
  Site site;
  Peer peer(site);
  const std::string s = open_session(peer);
  std::string head = io::npy_head(DType::float32, Shape{2, 2});
  head.replace(head.find("<f4"), 3, ">f4");
  head.replace(head.find("False,"), 6, "True, ");
  std::string data;
  for (const float f : {1.0f, 3.0f, 2.0f, 4.0f}) {
    const std::string le = bytes_of({f});
    data.append(le.rbegin(), le.rend());
  }
  CHECK(peer.ask("PUT", s + "/tensors/x", head + data, kNpy).status == 201);
  CHECK(peer.ask("GET", s + "/tensors/x").body.find("[[1.0,2.0],[3.0,4.0]]") != std::string::npos);
}

TEST_CASE("safetensors goes in with one or several tensors", "[rest1]") {
  Site site;
  Peer peer(site);
  const std::string s = open_session(peer);
  const std::vector<SafetensorsEntry> one = {{"anything", DType::bfloat16, {2}, 0, 0}};
  CHECK(peer.ask("PUT", s + "/tensors/x", safetensors_head(one) + std::string("\x80\x3F\x00\x40", 4), kSafe).status ==
        201);
  CHECK(peer.ask("GET", s + "/tensors/x").body.find("\"data\":[1.0,2.0]") != std::string::npos);
  CHECK(code_of(peer.ask("GET", s + "/tensors/x", "", "Accept: application/x-npy\r\n").body) == "not_acceptable");
  const Reply r = peer.ask("GET", s + "/tensors/x", "", "Accept: application/vnd.safetensors\r\n");
  CHECK(r.body.ends_with(std::string("\x80\x3F\x00\x40", 4)));

  const std::vector<SafetensorsEntry> two = {{"weight", DType::float32, {2}, 0, 0}, {"bias", DType::float32, {}, 0, 0}};
  CHECK(peer.ask("PUT", s + "/tensors/fc", safetensors_head(two) + bytes_of({1, 2, 3}), kSafe).status == 201);
  CHECK(peer.ask("GET", s + "/tensors/fc.weight").body.find("[1.0,2.0]") != std::string::npos);
  CHECK(peer.ask("GET", s + "/tensors/fc.bias").body.find("\"data\":3.0") != std::string::npos);
}

TEST_CASE("An upload over the session's memory is refused before it is sent", "[T21]") {
  Site site;
  Peer peer(site);
  const std::string s = open_session(peer, R"({"memory_limit":1000000})");
  const std::string head = io::npy_head(DType::float32, Shape{1 << 20});
  peer.send("PUT " + s + "/tensors/x HTTP/1.1\r\nHost: localhost\r\n" + kNpy +
            "Content-Length: " + std::to_string(head.size() + (4 << 20)) + "\r\n\r\n" + head);
  const Reply r = peer.reply();
  CHECK(r.status == 507);
  CHECK(code_of(r.body) == "memory_limit");
}

TEST_CASE("All dtypes travel as JSON", "[rest1]") {
  Site site;
  Peer peer(site);
  const std::string s = open_session(peer);
  const auto [dtype, data] = GENERATE(table<std::string, std::string>({
      {"bool", "[true,false]"},
      {"uint8", "[0,255]"},
      {"int8", "[-128,127]"},
      {"int16", "[-32768,32767]"},
      {"int32", "[-2147483648,2147483647]"},
      {"int64", "[-9223372036854775808,9223372036854775807]"},
      {"float16", "[0.1,\"NaN\",-0.0,65504.0]"},
      {"bfloat16", "[0.1,\"Infinity\",-0.0]"},
      {"float32", "[0.1,\"-Infinity\",1e-45]"},
      {"float64", "[0.1,5e-324,1.7976931348623157e+308]"},
  }));
  CAPTURE(dtype);
  CHECK(peer.ask("PUT", s + "/tensors/x", "{\"dtype\":\"" + dtype + "\",\"data\":" + data + "}", kJson).status == 201);
  const std::string back = peer.ask("GET", s + "/tensors/x").body;
  std::string want = data;
  // Halves come back exactly, as the doubles that most readers compare.
  if (dtype == "float16") want = "[0.0999755859375,\"NaN\",-0.0,65504.0]";
  if (dtype == "bfloat16") want = "[0.10009765625,\"Infinity\",-0.0]";
  CHECK(back.find("\"data\":" + want) != std::string::npos);
}

TEST_CASE("A long JSON body is read beside the loop and comes back the same", "[T8]") {
  Site site;
  Peer peer(site);
  const std::string s = open_session(peer);
  std::string data = "[0.5";
  for (int i = 1; i < 100000; ++i) data += "," + std::to_string(i) + ".5";
  data += "]";
  REQUIRE(peer.ask("PUT", s + "/tensors/x", "{\"dtype\":\"float64\",\"data\":" + data + "}", kJson).status == 201);
  CHECK(peer.ask("GET", s + "/tensors/x").body.find("\"data\":" + data) != std::string::npos);
  CHECK(code_of(peer.ask("PUT", s + "/tensors/x", "{\"data\":" + data, kJson).body) == "bad_json");
}

TEST_CASE("The service tells what it is", "[rest2]") {
  Site site;
  Peer peer(site);
  const std::string info = peer.ask("GET", "/v1/info").body;
  CHECK(info.find("\"devices\":[\"cpu\"") != std::string::npos);
  CHECK(peer.ask("GET", "/v1/operators").body.find("\"name\":\"add") != std::string::npos);
  CHECK(peer.ask("GET", "/metrics").body.find("gradwire_http_requests_total") != std::string::npos);
  const std::string api = peer.ask("GET", "/v1/openapi.json").body;
  CHECK(api.starts_with("{\"openapi\":\"3.1.0\""));
  CHECK_NOTHROW(http::Doc(api));
}
