#pragma once

#include "schema/error.h"

namespace gradwire {

// One class a code, all of them Errors: `catch (const gradwire::ShapeMismatch& e)`.
using BadJson = ErrorOf<Code::bad_json>;
using BadTensor = ErrorOf<Code::bad_tensor>;
using BadProgram = ErrorOf<Code::bad_program>;
using UnknownOperator = ErrorOf<Code::unknown_operator>;
using BadArgument = ErrorOf<Code::bad_argument>;
using BadRequest = ErrorOf<Code::bad_request>;
using Unauthenticated = ErrorOf<Code::unauthenticated>;
using Forbidden = ErrorOf<Code::forbidden>;
using NoSession = ErrorOf<Code::no_session>;
using NoTensor = ErrorOf<Code::no_tensor>;
using NoGradient = ErrorOf<Code::no_grad>;
using NoProgram = ErrorOf<Code::no_program>;
using NoObject = ErrorOf<Code::no_object>;
using NoRoute = ErrorOf<Code::no_route>;
using BadMethod = ErrorOf<Code::bad_method>;
using NotAcceptable = ErrorOf<Code::not_acceptable>;
using SlowRequest = ErrorOf<Code::slow_request>;
using LengthRequired = ErrorOf<Code::length_required>;
using TooLarge = ErrorOf<Code::too_large>;
using UriTooLong = ErrorOf<Code::uri_too_long>;
using UnsupportedMediaType = ErrorOf<Code::unsupported_media_type>;
using HeadTooLarge = ErrorOf<Code::head_too_large>;
using NotImplemented = ErrorOf<Code::not_implemented>;
using VersionConflict = ErrorOf<Code::version_conflict>;
using GraphFreed = ErrorOf<Code::graph_freed>;
using Closed = ErrorOf<Code::closed>;
using Cancelled = ErrorOf<Code::cancelled>;
using GroupMismatch = ErrorOf<Code::group_mismatch>;
using ShapeMismatch = ErrorOf<Code::shape_mismatch>;
using DTypeMismatch = ErrorOf<Code::dtype_mismatch>;
using DeviceMismatch = ErrorOf<Code::device_mismatch>;
using IndexOutOfRange = ErrorOf<Code::index_out_of_range>;
using NoGradFn = ErrorOf<Code::no_grad_fn>;
using NotDifferentiable = ErrorOf<Code::not_differentiable>;
using InplaceModified = ErrorOf<Code::inplace_modified>;
using LeafInplace = ErrorOf<Code::leaf_inplace>;
using Singular = ErrorOf<Code::singular>;
using DataLoss = ErrorOf<Code::data_loss>;
using TooManyRequests = ErrorOf<Code::too_many_requests>;
using Overloaded = ErrorOf<Code::overloaded>;
using Draining = ErrorOf<Code::draining>;
using Unavailable = ErrorOf<Code::unavailable>;
using DeadlineExceeded = ErrorOf<Code::deadline_exceeded>;
using MemoryLimit = ErrorOf<Code::memory_limit>;
using Internal = ErrorOf<Code::internal>;

/// Throws the error as the class of its code.
[[noreturn]] void raise(const Error&);

}  // namespace gradwire
