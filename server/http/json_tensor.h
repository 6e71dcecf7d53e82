#pragma once

#include <string>

#include "schema/dtype.h"
#include "server/http/json.h"
#include "server/program.h"

namespace gradwire::server::http {

/// A tensor in the notation of rest-api.md section 1 (dtype, shape, data, requires_grad). Where dtype is absent it is
/// what torch.tensor would give, with `floating` as the default dtype. Throws Error{bad_tensor} that names the
/// offending position, as "data[1][0]".
Program::Input read_tensor(Doc::Ref tensor, DType floating);

/// The dtype that this text names. Throws Error{bad_tensor}.
DType read_dtype(Doc::Ref text);
/// A list of sizes, checked against the limits of schema/shape.h for this dtype. Throws Error{bad_tensor}.
Shape read_shape(Doc::Ref list, DType dtype);

}  // namespace gradwire::server::http
