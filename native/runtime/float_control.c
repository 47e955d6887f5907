// The floating-point control register: round to nearest, subnormals kept, nothing traps.
#include "runtime/os.h"

#if defined(__x86_64__) || defined(_M_X64)

uint64_t es_os_float_control_begin(void) {
    const uint64_t previous = __builtin_ia32_stmxcsr();
    __builtin_ia32_ldmxcsr(0x1f80);
    return previous;
}

void es_os_float_control_end(uint64_t previous) { __builtin_ia32_ldmxcsr((unsigned)previous); }

#elif defined(__aarch64__)

uint64_t es_os_float_control_begin(void) {
    uint64_t previous;
    __asm__ volatile("mrs %0, fpcr" : "=r"(previous));
    __asm__ volatile("msr fpcr, %0" : : "r"((uint64_t)0));
    return previous;
}

void es_os_float_control_end(uint64_t previous) {
    __asm__ volatile("msr fpcr, %0" : : "r"(previous));
}

#else
#error "edgeserve knows the floating-point control register of x86-64 and AArch64 only"
#endif
