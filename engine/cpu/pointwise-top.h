#pragma once

// What the files pointwise_*.cpp include before the namespace of a SIMD target.

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <span>
#include <tuple>
#include <type_traits>
#include <utility>

#include "engine/cpu/half.h"
#include "engine/cpu/pointwise.h"
#include "engine/math.h"
