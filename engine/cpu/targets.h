#pragma once

// Which of Highway's targets are compiled: the baseline, AVX2 and AVX3 (AVX-512). Included before any Highway header.
#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_SSE4)
