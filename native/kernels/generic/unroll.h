// Unrolls the loop that follows, whose count is a constant after inlining: an array of
// accumulators then lives in registers.
#ifndef ES_KERNELS_GENERIC_UNROLL_H
#define ES_KERNELS_GENERIC_UNROLL_H

#if defined(__clang__)
#define UNROLL _Pragma("clang loop unroll(full)")
#else
#define UNROLL _Pragma("GCC unroll 16")
#endif

#endif
