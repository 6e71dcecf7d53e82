#include <bit>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <cmath>
#include <cstring>
#include <random>

#include "schema/error.h"
#include "schema/half.h"
#include "server/http/json.h"
#include "server/http/json_program.h"
#include "server/http/json_tensor.h"
#include "server/http/json_write.h"
#include "server/http/names.h"

using namespace gradwire;
using namespace gradwire::server;
using namespace gradwire::server::http;
using Kind = Doc::Kind;

namespace {

std::string message_of(const std::string& json, Code expected) {
  try {
    read_tensor(Doc(json).root(), DType::float32);
  } catch (const Error& e) {
    CHECK(e.code() == expected);
    return e.message();
  }
  return "no error";
}

Program::Input tensor(const std::string& json, DType floating = DType::float32) {
  return read_tensor(Doc(json).root(), floating);
}

template <class T> std::vector<T> values(const Program::Input& t) {
  std::vector<T> v(t.bytes.size() / sizeof(T));
  if (!v.empty()) std::memcpy(v.data(), t.bytes.data(), t.bytes.size());
  return v;
}

TensorValue value_of(DType dtype, Shape shape, const void* data, size_t bytes) {
  TensorValue v;
  v.info.dtype = dtype;
  v.info.shape = std::move(shape);
  v.bytes.data = static_cast<const std::byte*>(data);
  v.bytes.size = bytes;
  return v;
}

std::string written(const TensorValue& v) {
  std::string s;
  write_tensor(s, v);
  return s;
}

bool bad_json(const std::string& text) {
  try {
    Doc doc(text);
  } catch (const Error& e) {
    return e.code() == Code::bad_json;
  }
  return false;
}

std::shared_ptr<const Program> program(const std::string& json, Use use = Use::run) {
  return read_program(Doc(json).root(), DType::float32, use);
}

}  // namespace

TEST_CASE("Numbers keep what their spelling says", "[T13]") {
  const Doc doc(
      "[2, 2.0, 2e0, -9223372036854775808, 9223372036854775807, 9223372036854775808, 123456789012345678901234567890, "
      "-0, 0.1, 5e-324, 1e-400]");
  std::vector<Kind> kinds;
  std::vector<double> reals;
  for (const Doc::Ref e : doc.root().parts()) {
    kinds.push_back(e.kind());
    reals.push_back(e.real());
  }
  CHECK(kinds == std::vector<Kind>{Kind::integer, Kind::real, Kind::real, Kind::integer, Kind::integer, Kind::big,
                                   Kind::big, Kind::integer, Kind::real, Kind::real, Kind::real});
  CHECK(doc.root().first().next().next().next().integer() == INT64_MIN);
  CHECK(reals[8] == 0.1);
  CHECK(reals[9] == 5e-324);
  CHECK(reals[10] == 0);
}

TEST_CASE("JSON bombs are refused with their place", "[T13]") {
  const std::string deep(1'000'000, '[');
  const std::string bomb =
      GENERATE_COPY(as<std::string>{}, deep, std::string(33, '[') + std::string(33, ']'), "{\"a\":1,\"a\":2}",
                    "{\"a\":1,\"\\u0061\":2}", "[1e999]", "[-1e999]", "[NaN]", "[Infinity]", "[\"\\ud800\"]",
                    "[\"\xFF\"]", "[\"\xC0\x80\"]", "[1,]", "[1] 2", "{\"a\"}", "", " ", "[01]", "[+1]", "[.5]", "[1.]",
                    "\"\n\"", "nul", "[1 2]", "// x\n1");
  CAPTURE(bomb.substr(0, 60));
  CHECK(bad_json(bomb));
}

TEST_CASE("The limits of JSON hold at the limit and break one over it", "[T13]") {
  CHECK_FALSE(bad_json(std::string(32, '[') + std::string(32, ']')));
  std::string many = "[0";
  for (size_t i = 2; i < kMaxJsonValues; ++i) many += ",0";
  CHECK_FALSE(bad_json(many + "]"));
  CHECK(bad_json(many + ",0]"));
  CHECK_FALSE(bad_json("\"" + std::string(1 << 20, 'x') + "\""));
  CHECK_THROWS_AS(Doc(std::string(kMaxJson + 1, ' ')), Error);
}

TEST_CASE("Distinct keys may share hashes and beginnings", "[T13]") {
  std::string object = "{\"\":0";
  for (int i = 0; i < 20000; ++i)
    object += ",\"" + std::string(static_cast<size_t>(i % 7), 'k') + std::to_string(i) + "\":" + std::to_string(i);
  CHECK_FALSE(bad_json(object + "}"));
  CHECK(bad_json(object + ",\"\":1}"));
}

TEST_CASE("A dtype that is absent comes from the data, as torch.tensor does", "[rest1]") {
  CHECK(tensor(R"({"data":[true,false]})").dtype == DType::boolean);
  CHECK(tensor(R"({"data":[true,2]})").dtype == DType::int64);
  CHECK(tensor(R"({"data":[1,2]})").dtype == DType::int64);
  CHECK(tensor(R"({"data":[1,2.0]})").dtype == DType::float32);
  CHECK(tensor(R"({"data":["NaN"]})", DType::float64).dtype == DType::float64);
  CHECK(tensor(R"({"data":[]})").dtype == DType::float32);
  CHECK(tensor(R"({"data":[]})").shape == Shape{0});
  CHECK(tensor(R"({"data":5})").shape == Shape{});
  CHECK(tensor(R"({"data":[[[1],[2]],[[3],[4]]]})").shape == Shape{2, 2, 1});
}

TEST_CASE("Data may be nested, flat, a bare number or empty", "[rest1]") {
  const std::vector<int64_t> six = {1, 2, 3, 4, 5, 6};
  CHECK(values<int64_t>(tensor(R"({"shape":[2,3],"data":[[1,2,3],[4,5,6]]})")) == six);
  CHECK(values<int64_t>(tensor(R"({"shape":[2,3],"data":[1,2,3,4,5,6]})")) == six);
  CHECK(values<int64_t>(tensor(R"({"shape":[],"data":7})")) == std::vector<int64_t>{7});
  CHECK(values<int64_t>(tensor(R"({"shape":[],"data":[7]})")) == std::vector<int64_t>{7});
  CHECK(tensor(R"({"shape":[0,3],"data":[]})").bytes.empty());
  CHECK(tensor(R"({"shape":[2,0],"data":[[],[]]})").bytes.empty());
  CHECK(values<float>(tensor(R"({"dtype":"float32","data":["NaN","Infinity","-Infinity",true]})"))[2] == -INFINITY);
  CHECK(values<uint8_t>(tensor(R"({"dtype":"bool","data":[0,1,2.5,false]})")) == std::vector<uint8_t>{0, 1, 1, 0});
  CHECK(values<double>(tensor(R"({"dtype":"float64","data":[100000000000000000000]})"))[0] == 1e20);
}

TEST_CASE("What is wrong with a tensor's data names its place", "[rest1]") {
  CHECK(message_of(R"({"data":[[1,2],[3]]})", Code::bad_tensor) ==
        "data[1]: expected sequence of length 2 at dim 1 (got 1)");
  CHECK(message_of(R"({"data":[[1,2],3]})", Code::bad_tensor) ==
        "data[1]: expected a list of length 2 at dim 1, got an integer");
  CHECK(message_of(R"({"data":[1,[2]]})", Code::bad_tensor).starts_with("data[1]: "));
  CHECK(message_of(R"({"shape":[2,3],"data":[1,2,3,4,5]})", Code::bad_tensor) ==
        "shape '[2, 3]' is invalid for input of size 5");
  CHECK(message_of(R"({"shape":[2,2],"data":[[1,2,3],[4]]})", Code::bad_tensor).starts_with("data[0]: "));
  CHECK(message_of(R"({"dtype":"int32","data":[[1,2],[3,4.5]]})", Code::bad_tensor) ==
        "data[1][1]: fractional value for dtype int32");
  CHECK(message_of(R"({"dtype":"uint8","data":[0,256]})", Code::bad_tensor) ==
        "data[1]: value is out of range for uint8");
  CHECK(message_of(R"({"dtype":"int8","data":-129})", Code::bad_tensor) == "data: value is out of range for int8");
  CHECK(message_of(R"({"data":[9223372036854775808]})", Code::bad_tensor) ==
        "data[0]: value is out of range for int64");
  CHECK(message_of(R"({"dtype":"int64","data":["NaN"]})", Code::bad_tensor).starts_with("data[0]: "));
  CHECK(message_of(R"({"data":["nan"]})", Code::bad_tensor).starts_with("data[0]: "));
  CHECK(message_of(R"({"data":[null]})", Code::bad_tensor).starts_with("data[0]: "));
  CHECK(message_of(R"({"data":[{"a":1}]})", Code::bad_tensor).starts_with("data[0]: "));
}

TEST_CASE("Hostile tensors are refused before memory is spent", "[T18]") {
  const std::string json =
      GENERATE(as<std::string>{}, R"({"shape":[1099511627776],"data":[1]})",
               R"({"shape":[281474976710656,2],"data":[]})", R"({"shape":[-1],"data":[]})",
               R"({"shape":[9223372036854775807,9223372036854775807],"data":[]})", R"({"shape":[1.5],"data":[1]})",
               R"({"shape":"2","data":[1]})", R"({"dtype":"float33","data":[1]})", R"({"dtype":7,"data":[1]})",
               R"({"shape":[1]})", R"({"data":[1],"requires_grad":1})", R"({"data":[1],"colour":"red"})", R"([1,2])",
               R"({"shape":[1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1],"data":[1]})");
  CAPTURE(json);
  CHECK_FALSE(message_of(json, Code::bad_tensor).empty());
}

TEST_CASE("int64 is exact both ways", "[T13]") {
  const std::vector<int64_t> all = {INT64_MIN, INT64_MIN + 1, -9007199254740993, 0, 9007199254740993, INT64_MAX};
  const std::string text = written(value_of(DType::int64, {6}, all.data(), 48));
  CHECK(text.find(
            "[-9223372036854775808,-9223372036854775807,-9007199254740993,0,9007199254740993,9223372036854775807]") !=
        std::string::npos);
  CHECK(values<int64_t>(tensor(text)) == all);
}

TEST_CASE("All halves come back with the same bits from their text", "[T27]") {
  const DType dtype = GENERATE(DType::float16, DType::bfloat16);
  std::vector<uint16_t> all(65536);
  for (size_t i = 0; i < all.size(); ++i) all[i] = static_cast<uint16_t>(i);
  const auto back = values<uint16_t>(tensor(written(value_of(dtype, {65536}, all.data(), 131072))));
  size_t wrong = 0;
  for (size_t i = 0; i < all.size(); ++i) {
    const float f = dtype == DType::float16 ? half_to_float(all[i]) : bfloat16_to_float(all[i]);
    if (std::isnan(f)) {
      const float g = dtype == DType::float16 ? half_to_float(back[i]) : bfloat16_to_float(back[i]);
      wrong += !std::isnan(g);
    } else {
      wrong += back[i] != all[i];
    }
  }
  CHECK(wrong == 0);
}

TEST_CASE("Halves are rounded to nearest even", "[T27]") {
  CHECK(float_to_half(2049.0f) == float_to_half(2048.0f));
  CHECK(float_to_half(2051.0f) == float_to_half(2052.0f));
  CHECK(half_to_float(float_to_half(65519.9f)) == 65504.0f);
  CHECK(std::isinf(half_to_float(float_to_half(65520.0f))));
  CHECK(float_to_half(0x1p-25f) == 0);
  CHECK(float_to_half(0x1.8p-25f) == 1);
  CHECK(float_to_half(-0.0f) == 0x8000);
  CHECK(bfloat16_to_float(float_to_bfloat16(0x1.01p0f)) == 0x1.00p0f);
  CHECK(bfloat16_to_float(float_to_bfloat16(0x1.03p0f)) == 0x1.04p0f);
}

TEST_CASE("Random floats come back with the same bits from their text", "[T27]") {
  std::mt19937_64 bits(7);
  std::vector<float> f(50000);
  std::vector<double> d(50000);
  for (size_t i = 0; i < f.size(); ++i) {
    do f[i] = std::bit_cast<float>(static_cast<uint32_t>(bits()));
    while (std::isnan(f[i]));
    do d[i] = std::bit_cast<double>(bits());
    while (std::isnan(d[i]));
  }
  f[0] = -0.0f, f[1] = 0x1p-149f, f[2] = INFINITY, f[3] = 16777216.0f, d[0] = -0.0, d[1] = 5e-324,
  d[2] = 1.7976931348623157e308;
  const auto fs = values<float>(tensor(written(value_of(DType::float32, {50000}, f.data(), f.size() * 4))));
  const auto ds = values<double>(tensor(written(value_of(DType::float64, {50000}, d.data(), d.size() * 8))));
  CHECK(std::memcmp(fs.data(), f.data(), f.size() * 4) == 0);
  CHECK(std::memcmp(ds.data(), d.data(), d.size() * 8) == 0);
}

TEST_CASE("Tensors are written nested, shortest and as reals", "[rest1]") {
  const std::vector<float> v = {1, 0.1f, -0.0f, 1e22f, NAN, -INFINITY};
  CHECK(written(value_of(DType::float32, {2, 3}, v.data(), 24)) ==
        R"({"dtype":"float32","shape":[2,3],"data":[[1.0,0.1,-0.0],[1e+22,"NaN","-Infinity"]],"requires_grad":false})");
  CHECK(written(value_of(DType::float32, {}, v.data(), 4)).find("\"data\":1.0,") != std::string::npos);
  CHECK(written(value_of(DType::float32, {1099511627776, 0}, v.data(), 0)).find("\"data\":[],") != std::string::npos);
  CHECK(written(value_of(DType::float32, Shape(30, 1), v.data(), 4)).find("\"data\":[1.0],") != std::string::npos);
  const uint8_t b[] = {1, 0};
  CHECK(written(value_of(DType::boolean, {2, 1}, b, 2)).find("[[true],[false]]") != std::string::npos);
}

TEST_CASE("An answer in JSON has a limit", "[T13]") {
  const std::vector<uint8_t> much(kMaxJsonAnswer / 2 + 1);
  CHECK_THROWS_AS(written(value_of(DType::uint8, {static_cast<int64_t>(much.size())}, much.data(), much.size())),
                  Error);
}

TEST_CASE("Texts in answers are valid UTF-8 and valid JSON", "[T13]") {
  std::string s;
  write_text(s, "a\"\\\n\x01\x7F\xC3\xA4\xFF\xED\xA0\x80");
  CHECK(s == "\"a\\\"\\\\\\u000a\\u0001\\u007f\xC3\xA4\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD\"");
  CHECK_NOTHROW(Doc(s));
  CHECK(error_body(Error(Code::shape_mismatch, "no", "add").at(0, 3)) ==
        R"({"error":{"code":"shape_mismatch","message":"no","step":3,"op":"add"}})");
}

TEST_CASE("Every form of argument has its place in a program", "[rest3]") {
  const auto p = program(R"({"ops":[{"op":"f","in":["x","y.grad",2,2.0,true,null,["a","x"],[3,2]],
    "attrs":{"s":"NaN","t":{"tensor":"w"},"ts":{"tensors":["a",null,"w.grad"]},"g":{"generator":"g"},"l":[1,2.5,"-Infinity"],"b":[true,false],"e":[]},
    "out":["p",null],"no_grad":true}]})");
  REQUIRE(p->steps.size() == 1);
  const Program::Step& s = p->steps[0];
  CHECK_FALSE(s.broken);
  CHECK(s.grad_mode == false);
  CHECK(s.outs == std::vector<std::optional<std::string>>{"p", std::nullopt});
  const auto arg = [&](const Program::Range& r, size_t i = 0) { return p->args[r.first + i]; };
  REQUIRE(s.positional.size() == 8);
  CHECK(arg(s.positional[0]).kind == ArgKind::tensor);
  CHECK(p->names[arg(s.positional[0]).id] == "x");
  CHECK(arg(s.positional[1]).part == Part::grad);
  CHECK(p->names[arg(s.positional[1]).id] == "y");
  CHECK(arg(s.positional[2]).kind == ArgKind::integer);
  CHECK(arg(s.positional[3]).kind == ArgKind::real);
  CHECK(arg(s.positional[4]).kind == ArgKind::boolean);
  CHECK(arg(s.positional[5]).kind == ArgKind::none);
  CHECK(arg(s.positional[6]).kind == ArgKind::tensors);
  CHECK(arg(s.positional[6]).count == 2);
  CHECK(arg(s.positional[6], 2).id == arg(s.positional[0]).id);
  CHECK(arg(s.positional[7]).kind == ArgKind::ints);
  CHECK(p->ints[s.positional[7].ints + 1] == 2);
  std::map<std::string, Program::Range> named(s.named.begin(), s.named.end());
  CHECK(arg(named["s"]).kind == ArgKind::text);
  CHECK(p->texts[static_cast<size_t>(arg(named["s"]).i)] == "NaN");
  CHECK(arg(named["t"]).kind == ArgKind::tensor);
  CHECK(arg(named["ts"]).count == 3);
  CHECK(arg(named["ts"], 2).kind == ArgKind::none);
  CHECK(arg(named["ts"], 3).part == Part::grad);
  CHECK(p->names[arg(named["g"]).id] == "g");
  CHECK(arg(named["l"]).kind == ArgKind::floats);
  CHECK(std::bit_cast<double>(p->ints[named["l"].ints + 2]) == -INFINITY);
  CHECK(arg(named["b"]).kind == ArgKind::bools);
  CHECK(arg(named["e"]).kind == ArgKind::ints);
}

TEST_CASE("Every element of an index has its kind", "[rest3]") {
  const auto p = program(
      R"({"ops":[{"op":"index","in":["x"],"attrs":{"index":[1,{"slice":[null,-1,2]},"...",null,true,[[0,1],[2,3]],[true,false],[],{"tensor":"i"}]}},
                                     {"op":"index","in":["x"],"attrs":{"index":-1}}]})");
  REQUIRE(p->steps.size() == 2);
  const Program::Range r = p->steps[0].named[0].second;
  std::vector<ArgKind> kinds;
  for (size_t i = 0; i < 10; ++i) kinds.push_back(p->args[r.first + i].kind);
  CHECK(kinds == std::vector<ArgKind>{ArgKind::index, ArgKind::integer, ArgKind::slice, ArgKind::ellipsis,
                                      ArgKind::none, ArgKind::boolean, ArgKind::int_array, ArgKind::bool_array,
                                      ArgKind::int_array, ArgKind::tensor});
  CHECK(p->args[r.first].count == 9);
  CHECK(p->args[r.first + 2].count == 6);  // stop and step
  CHECK(p->args[r.first + 6].count == 2);
  const std::vector<int64_t> ints(p->ints.begin() + r.ints, p->ints.begin() + r.ints + 13);
  CHECK(ints == std::vector<int64_t>{0, -1, 2, 2, 2, 0, 1, 2, 3, 2, 1, 0, 0});
  CHECK(p->args[p->steps[1].named[0].second.first].kind == ArgKind::index);
}

TEST_CASE("A step that makes no sense leaves the steps before it", "[rest3]") {
  const std::string step = GENERATE(
      as<std::string>{}, R"(7)", R"({})", R"({"op":1})", R"({"op":"f","inn":[]})", R"({"op":"f","in":"x"})",
      R"({"op":"f","in":[{"slice":1}]})", R"({"op":"f","in":[9223372036854775808]})",
      R"({"op":"f","in":["x",[[[1],[2,3]]]]})", R"({"op":"f","attrs":[]})", R"({"op":"f","attrs":{"a":{"b":1}}})",
      R"({"op":"f","attrs":{"a":["x","y"]}})", R"({"op":"index","attrs":{"index":[1.5]}})",
      R"({"op":"index","attrs":{"index":[{"slice":[1,2]}]}})",
      R"({"op":"index","attrs":{"index":[{"slice":[1.5,2,3]}]}})", R"({"op":"index","attrs":{"index":["x"]}})",
      R"({"op":"index","attrs":{"index":[[1,true]]}})", R"({"op":"f","out":7})", R"({"op":"f","out":"a/b"})",
      R"({"op":"f","out":"x.grad"})", R"({"op":"f","out":"#1"})", R"({"op":"f","out":""})",
      R"({"op":"f","grad_mode":1})", R"({"op":"f","grad_mode":true,"no_grad":true})", R"({"op":"f","in":[""]})");
  CAPTURE(step);
  const auto p = program(R"({"ops":[{"op":"a","out":"x"},)" + step + R"(,{"op":"never"}]})");
  REQUIRE(p->steps.size() == 2);
  CHECK_FALSE(p->steps[0].broken);
  REQUIRE(p->steps[1].broken);
  CHECK(p->steps[1].broken->step() == 1);
  CHECK(http_status(p->steps[1].broken->code()) == 400);
}

TEST_CASE("A program that makes no sense as a whole is refused before a step runs", "[rest3]") {
  const std::string text = GENERATE(as<std::string>{}, "[]", "7", R"({"op":[]})", R"({"ops":{}})", R"({"fetch":"x"})",
                                    R"({"fetch":[1]})", R"({"release":[null]})", R"({"inputs":[]})",
                                    R"({"inputs":{"a/b":{"data":1}}})", R"({"inputs":{"x.grad":{"data":1}}})");
  CAPTURE(text);
  try {
    program(text);
    FAIL("no error");
  } catch (const Error& e) {
    CHECK(e.code() == Code::bad_program);
  }
  try {
    program(R"({"inputs":{"x":{"data":[[1],2]}}})");
    FAIL("no error");
  } catch (const Error& e) {
    CHECK(e.code() == Code::bad_tensor);
    CHECK(e.message().starts_with("inputs 'x': data[1]"));
  }
}

TEST_CASE("A stored program declares its inputs", "[rest3]") {
  CHECK(program(R"({"inputs":["x","y"]})", Use::define)->declared_inputs == std::vector<std::string>{"x", "y"});
  const auto p = program(R"({"inputs":{"x":null,"y":{},"z":{"data":1}}})", Use::define);
  CHECK(p->declared_inputs == std::vector<std::string>{"x", "y"});
  CHECK(p->inputs.size() == 1);
}

TEST_CASE("Names have rules", "[rest2]") {
  CHECK(name_fault("layer1.0.conv1.weight") == nullptr);
  CHECK(name_fault("gr\xC3\xBC\xC3\x9F") == nullptr);
  CHECK(name_fault(std::string(255, 'a')) == nullptr);
  CHECK(name_fault("#x") == nullptr);
  for (const std::string& bad :
       {std::string(), std::string(256, 'a'), std::string("a/b"), std::string("a\nb"), std::string("a\0b", 3),
        std::string("\x7F"), std::string("\xFF"), std::string("x.grad"), std::string(".grad"), std::string("#41")}) {
    CAPTURE(bad);
    CHECK(name_fault(bad) != nullptr);
  }
}
