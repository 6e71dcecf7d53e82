#pragma once

#include "engine/op.h"

// Bodies of the rows in linalg.cpp. All but `product` and its gradient are made of operators.

namespace gradwire::engine::linalg {

// linalg_product.cpp: matmul itself
Tensor product(const Call&);
Grads product_vjp(const Vjp&);
/// Throws "expected scalar type Float but found Double" where the two differ.
void check_same_dtype(const Tensor& a, const Tensor& b);
/// "Float", as PyTorch's messages have it.
std::string torch_name(DType);

// linalg_add.cpp: products added to something
Tensor addmm(const Call&);
Tensor addmv(const Call&);
Tensor addr(const Call&);
Tensor addbmm(const Call&);
Tensor baddbmm(const Call&);
Tensor linear(const Call&);
void check_bmm(const Tensor& a, const Tensor& b);
/// Throws "outer: Expected 1-D argument vec2, but got 2-D" for anything but a vector.
void check_vector(const Tensor& t, const char* op, const char* name);
/// The product of all pairs of elements of two vectors.
Tensor outer(const Tensor& a, const Tensor& b);

// linalg_more.cpp
/// a's dims da against b's dims db: the sum over both at once. Other dims of a, then of b, are left.
Tensor tensordot(Context&, const Tensor& a, const Tensor& b, std::span<const int64_t> da, std::span<const int64_t> db);
Tensor tensordot(const Call&);        // by how many dims
Tensor tensordot_lists(const Call&);  // by two lists of dims
Tensor tensordot_pair(const Call&);   // by a list of two lists
Tensor inner(const Call&);
Tensor kron(const Call&);
Tensor matrix_power(const Call&);
Tensor cross(const Call&);
Tensor trace(const Call&);

}  // namespace gradwire::engine::linalg
