#pragma once

// Which of Highway's targets are compiled: the baseline, AVX2 and AVX3 (AVX-512). Included before any Highway header.
// The bits 1 to 7 are the later forms of AVX-512 (not all named in Highway 1.0): they gain nothing here.
#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_SSE4 | 0xFELL)
