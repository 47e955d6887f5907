// What keeps accumulators in registers.
#ifndef ES_KERNELS_GENERIC_UNROLL_H
#define ES_KERNELS_GENERIC_UNROLL_H

// Unrolls the loop that follows, whose count is a constant after inlining: an array of
// accumulators is then so many registers.
#if defined(__clang__)
#define UNROLL _Pragma("clang loop unroll(full)")
#pragma clang diagnostic ignored "-Wpass-failed" // some of ref's are better as calls of memset
#else
#define UNROLL _Pragma("GCC unroll 16")
#endif

// Two rounds of the loop that follows at a time.
#if defined(__clang__)
#define UNROLL_TWICE _Pragma("clang loop unroll_count(2)")
#else
#define UNROLL_TWICE _Pragma("GCC unroll 2")
#endif

// Makes the compiler forget what it has read through a pointer, and read it again when it needs it.
#define FORGET(pointer) __asm__("" : "+r"(pointer))

#endif
