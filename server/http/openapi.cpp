#include <algorithm>
#include <cstring>

#include "schema/dtype.h"
#include "schema/error.h"
#include "server/http/json_write.h"
#include "server/http/routes.h"

namespace gradwire::server::http {
namespace {

/// What bodies look like; `@DTYPES@` and `@CODES@` are filled in from schema/.
constexpr const char* kSchemas = R"({
"Anything":{"type":"object"},
"Status":{"type":"object","properties":{"status":{"type":"string"}},"required":["status"]},
"DType":{"type":"string","enum":[@DTYPES@]},
"Name":{"type":"string","minLength":1,"maxLength":255,"description":"UTF-8 without '/' and control characters; a last part .grad is reserved"},
"Number":{"oneOf":[{"type":"number"},{"type":"boolean"},{"type":"string","enum":["NaN","Infinity","-Infinity"]}]},
"Data":{"description":"Lists nested as shape says, or one flat list in row-major order; a bare number for a 0-dim tensor","oneOf":[{"$ref":"#/components/schemas/Number"},{"type":"array"}]},
"Tensor":{"type":"object","properties":{"dtype":{"$ref":"#/components/schemas/DType"},"shape":{"type":"array","maxItems":32,"items":{"type":"integer","minimum":0}},"data":{"$ref":"#/components/schemas/Data"},"requires_grad":{"type":"boolean","default":false}},"required":["data"],"additionalProperties":false},
"TensorInfo":{"type":"object","properties":{"name":{"type":"string"},"dtype":{"$ref":"#/components/schemas/DType"},"shape":{"type":"array","items":{"type":"integer"}},"strides":{"type":"array","items":{"type":"integer"}},"device":{"type":"string"},"requires_grad":{"type":"boolean"},"is_leaf":{"type":"boolean"},"grad_fn":{"type":["string","null"]},"version":{"type":"integer"},"bytes":{"type":"integer"}}},
"TensorInfos":{"type":"object","properties":{"tensors":{"type":"array","items":{"$ref":"#/components/schemas/TensorInfo"}}},"required":["tensors"]},
"SessionOptions":{"type":"object","properties":{"device":{"type":"string","maxLength":255},"dtype":{"type":"string","enum":["float16","bfloat16","float32","float64"]},"seed":{"type":"integer","minimum":-9223372036854775808,"maximum":9223372036854775807},"memory_limit":{"type":"integer","minimum":1},"ttl_seconds":{"type":"integer","minimum":1},"name":{"type":"string","maxLength":255},"compat":{"type":"array","items":{"type":"string","maxLength":255}}},"additionalProperties":false},
"Session":{"type":"object","properties":{"id":{"type":"string"},"name":{"type":"string"},"device":{"type":"string"},"dtype":{"$ref":"#/components/schemas/DType"},"tensors":{"type":"integer"},"bytes":{"type":"integer"},"peak_bytes":{"type":"integer"},"memory_limit":{"type":"integer"},"ops_run":{"type":"integer"},"age_seconds":{"type":"number"}},"required":["id"]},
"Sessions":{"type":"object","properties":{"sessions":{"type":"array","items":{"$ref":"#/components/schemas/Session"}}},"required":["sessions"]},
"Step":{"type":"object","properties":{"op":{"type":"string","minLength":1},"in":{"type":"array"},"attrs":{"type":"object"},"out":{"oneOf":[{"$ref":"#/components/schemas/Name"},{"type":"null"},{"type":"array","items":{"oneOf":[{"$ref":"#/components/schemas/Name"},{"type":"null"}]}}]},"grad_mode":{"type":"boolean"},"no_grad":{"type":"boolean"}},"required":["op"],"additionalProperties":false},
"Program":{"type":"object","properties":{"inputs":{"type":"object","additionalProperties":{"$ref":"#/components/schemas/Tensor"}},"ops":{"type":"array","items":{"$ref":"#/components/schemas/Step"}},"fetch":{"type":"array","items":{"type":"string"}},"release":{"type":"array","items":{"type":"string"}}},"additionalProperties":false},
"Definition":{"type":"object","properties":{"inputs":{"description":"The names of the inputs that every run gives; or tensors that all runs share, with {} or null for what every run gives","oneOf":[{"type":"array","items":{"$ref":"#/components/schemas/Name"}},{"type":"object","additionalProperties":{"oneOf":[{"$ref":"#/components/schemas/Tensor"},{"type":"object","maxProperties":0},{"type":"null"}]}}]},"ops":{"type":"array","items":{"$ref":"#/components/schemas/Step"}},"fetch":{"type":"array","items":{"type":"string"}},"release":{"type":"array","items":{"type":"string"}}},"additionalProperties":false},
"StoredProgram":{"type":"object","properties":{"name":{"type":"string"},"inputs":{"type":"array","items":{"type":"string"}},"fetch":{"type":"array","items":{"type":"string"}},"ops":{"type":"integer"}},"required":["name"]},
"Feeds":{"type":"object","properties":{"inputs":{"type":"object","additionalProperties":{"$ref":"#/components/schemas/Tensor"}},"fetch":{"type":"array","items":{"type":"string"}}},"additionalProperties":false},
"Result":{"type":"object","properties":{"tensors":{"type":"object","additionalProperties":{"oneOf":[{"$ref":"#/components/schemas/Tensor"},{"type":"null"}]}},"warnings":{"type":"array","items":{"type":"object"}}},"required":["tensors","warnings"]},
"GroupOptions":{"type":"object","properties":{"backend":{"type":"string","maxLength":255,"default":"gloo"},"init_method":{"type":"string","maxLength":4096,"default":"env://"},"world_size":{"type":"integer","minimum":0,"maximum":1000000},"rank":{"type":"integer","minimum":0,"maximum":1000000},"group_name":{"type":"string","maxLength":255},"timeout_seconds":{"type":"number","exclusiveMinimum":0,"maximum":604800,"default":1800},"environment":{"type":"object","maxProperties":64,"additionalProperties":{"type":"string","maxLength":4096},"description":"What env:// reads: MASTER_ADDR, MASTER_PORT, WORLD_SIZE, RANK"}},"additionalProperties":false},
"Group":{"type":"object","properties":{"name":{"type":"string"},"rank":{"type":"integer"},"world_size":{"type":"integer"},"epoch":{"type":"integer"}},"required":["name","rank","world_size","epoch"]},
"Operators":{"type":"object","properties":{"operators":{"type":"array","items":{"type":"object"}}},"required":["operators"]},
"Info":{"type":"object","properties":{"name":{"type":"string"},"version":{"type":"string"},"devices":{"type":"array","items":{"type":"string"}}},"required":["name","version"]},
"Error":{"type":"object","properties":{"error":{"type":"object","properties":{"code":{"type":"string","enum":[@CODES@]},"message":{"type":"string"},"step":{"type":"integer"},"op":{"type":"string"}},"required":["code","message"]}},"required":["error"]}
})";

constexpr const char* kParameters = R"({
"part":{"name":"part","in":"query","schema":{"type":"string","enum":["value","grad","info"],"default":"value"}},
"requires_grad":{"name":"requires_grad","in":"query","schema":{"type":"boolean","default":false}}
})";

constexpr const char* kBinary[] = {"application/x-npy", "application/vnd.safetensors"};

void replace(std::string& text, std::string_view mark, const std::string& by) {
  text.replace(text.find(mark), mark.size(), by);
}

std::string schemas() {
  std::string dtypes, codes;
  for (const DTypeRow& r : kDTypeRows) dtypes += std::string(dtypes.empty() ? "\"" : ",\"") + r.name + "\"";
  for (const CodeRow& r : kCodeRows) codes += std::string(codes.empty() ? "\"" : ",\"") + r.name + "\"";
  std::string text = kSchemas;
  replace(text, "@DTYPES@", dtypes);
  replace(text, "@CODES@", codes);
  return text;
}

std::string content(const char* schema, bool binary) {
  std::string text =
      std::string("{\"application/json\":{\"schema\":{\"$ref\":\"#/components/schemas/") + schema + "\"}}";
  if (binary) {
    for (const char* type : kBinary) text += std::string(",\"") + type + "\":{}";
  }
  return text + "}";
}

/// "/v1/sessions/{session}" -> each name in braces
template <class F> void each_parameter(std::string_view pattern, F f) {
  for (size_t at = pattern.find('{'); at != std::string_view::npos; at = pattern.find('{', at + 1)) {
    f(std::string(pattern.substr(at + 1, pattern.find('}', at) - at - 1)));
  }
}

std::string operation(const Route& r) {
  std::string id = r.method;
  for (const char* c = r.pattern; *c; ++c) id += *c == '/' || *c == '.' ? '_' : *c == '{' || *c == '}' ? '\0' : *c;
  std::erase(id, '\0');
  std::string text = "{\"operationId\":";
  write_text(text, id);
  text += ",\"summary\":";
  write_text(text, r.doc);
  std::string parameters;
  each_parameter(r.pattern, [&](const std::string& p) {
    if (!parameters.empty()) parameters += ',';
    parameters +=
        "{\"name\":\"" + p + "\",\"in\":\"path\",\"required\":true,\"schema\":{\"type\":\"string\",\"minLength\":1}}";
  });
  if (r.query) parameters += std::string(",{\"$ref\":\"#/components/parameters/") + r.query + "\"}";
  if (!parameters.empty()) text += ",\"parameters\":[" + parameters + "]";
  if (r.in) {
    // A session, a group and a run of a stored program need no options.
    const bool optional = std::strcmp(r.in, "SessionOptions") == 0 || std::strcmp(r.in, "GroupOptions") == 0 ||
                          std::strcmp(r.in, "Feeds") == 0;
    text += std::string(",\"requestBody\":{\"required\":") + (optional ? "false" : "true") +
            ",\"content\":" + content(r.in, r.body == Body::tensor) + "}";
  }
  const auto response = [&](int status, const std::string& what) {
    return std::string("\"").append(std::to_string(status)) + "\":{\"description\":" + what + "}";
  };
  std::string good = "\"done\"";
  if (r.gives == Gives::text) good += ",\"content\":{\"text/plain\":{\"schema\":{\"type\":\"string\"}}}";
  if (r.out) good += ",\"content\":" + content(r.out, r.gives == Gives::tensor);
  text += ",\"responses\":{" + response(r.status, good);
  if (r.body == Body::tensor) text += "," + response(201, good);
  text += ",\"default\":{\"description\":\"an error\",\"content\":" + content("Error", false) + "}}}";
  return text;
}

std::string document() {
  std::string text =
      R"({"openapi":"3.1.0","info":{"title":"Gradwire","version":"1","description":"Autograd over the wire: tensors, graphs and programs in sessions.","license":{"name":"Apache-2.0","identifier":"Apache-2.0"}},"servers":[{"url":"/"}],"paths":{)";
  std::vector<std::string_view> seen;
  for (const Route& r : routes()) {
    if (std::find(seen.begin(), seen.end(), r.pattern) != seen.end()) continue;
    if (!seen.empty()) text += ',';
    seen.emplace_back(r.pattern);
    write_text(text, r.pattern);
    text += ":{";
    bool first = true;
    for (const Route& same : routes()) {
      if (std::string_view(same.pattern) != r.pattern) continue;
      if (!first) text += ',';
      first = false;
      std::string method = same.method;
      for (char& c : method) c = static_cast<char>(c | 0x20);
      text += std::string("\"").append(method) + "\":" + operation(same);
    }
    text += '}';
  }
  return text + "},\"components\":{\"schemas\":" + schemas() + ",\"parameters\":" + kParameters + "}}";
}

}  // namespace

const std::string& openapi() {
  static const std::string text = document();
  return text;
}

}  // namespace gradwire::server::http
