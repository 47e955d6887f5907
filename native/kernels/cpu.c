#include "kernels/cpu.h"

#if defined(__x86_64__) || defined(_M_X64)
#include <cpuid.h>
#elif defined(__aarch64__) && defined(__linux__)
#include <sys/auxv.h>
#elif defined(__aarch64__) && defined(__APPLE__)
#include <stddef.h>
#include <sys/sysctl.h>
#elif defined(__aarch64__) && defined(_WIN32)
#include <windows.h>
#endif

#if defined(__x86_64__) || defined(_M_X64)

// Bits that must all be set: Intel's manual, volume 2, CPUID.
#define BIT(n) (1u << (n))
enum {
    LEAF1_ECX = BIT(12) | BIT(27) | BIT(28) | BIT(29), // FMA, OSXSAVE, AVX, F16C
    LEAF7_EBX_AVX2 = BIT(5),
    LEAF7_EBX_AVX512 = BIT(16) | BIT(17) | BIT(30), // F, DQ, BW
    LEAF7_ECX_AVX512 = BIT(11),                     // VNNI
    LEAF7_1_EAX_AVXVNNI = BIT(4),                   // of its subleaf 1
    XCR0_AVX = 0x06,                                // the system saves xmm and ymm
    XCR0_AVX512 = 0xe6,                             // and zmm and masks
};
static const unsigned leaf7_ebx_vl = BIT(31);

static unsigned xcr0(void) {
    unsigned low, high;
    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return low;
}

static int has_all(unsigned bits, unsigned wanted) { return (bits & wanted) == wanted; }

// Whether the system saves `state`, and leaf 7 has these bits.
static int runs(unsigned state, unsigned wanted_ebx, unsigned wanted_ecx) {
    unsigned eax, ebx, ecx, edx;
    if (!__get_cpuid(1, &eax, &ebx, &ecx, &edx) || !has_all(ecx, LEAF1_ECX)) {
        return 0; // without OSXSAVE xgetbv would fault
    }
    if (!has_all(xcr0(), state) || !__get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx)) {
        return 0;
    }
    return has_all(ebx, wanted_ebx) && has_all(ecx, wanted_ecx);
}

int es_cpu_runs_avx2(void) { return runs(XCR0_AVX, LEAF7_EBX_AVX2, 0); }

int es_cpu_runs_avxvnni(void) {
    unsigned eax, ebx, ecx, edx;
    if (!es_cpu_runs_avx2() || !__get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) || eax < 1) {
        return 0; // eax: the last subleaf
    }
    __cpuid_count(7, 1, eax, ebx, ecx, edx);
    return has_all(eax, LEAF7_1_EAX_AVXVNNI);
}

int es_cpu_runs_avx512(void) {
    const unsigned ebx = LEAF7_EBX_AVX2 | LEAF7_EBX_AVX512 | leaf7_ebx_vl;
    return runs(XCR0_AVX512, ebx, LEAF7_ECX_AVX512);
}

int es_cpu_runs_neon(void) { return 0; }
int es_cpu_runs_i8mm(void) { return 0; }

#else

int es_cpu_runs_avx2(void) { return 0; }
int es_cpu_runs_avxvnni(void) { return 0; }
int es_cpu_runs_avx512(void) { return 0; }

int es_cpu_runs_neon(void) {
#if defined(__aarch64__) && defined(__linux__)
    return (getauxval(AT_HWCAP) & HWCAP_ASIMDDP) != 0;
#elif defined(__aarch64__) && defined(__APPLE__)
    return 1; // every 64-bit Mac has dot products
#elif defined(__aarch64__) && defined(_WIN32)
    return IsProcessorFeaturePresent(PF_ARM_V82_DP_INSTRUCTIONS_AVAILABLE) != 0;
#else
    return 0;
#endif
}

// With int8 matrix products come dot products. Windows is not asked: its older headers lack the
// question.
int es_cpu_runs_i8mm(void) {
#if defined(__aarch64__) && defined(__linux__)
    enum { CAP2_I8MM = 1 << 13 }; // HWCAP2_I8MM, which older headers lack
    return es_cpu_runs_neon() && (getauxval(AT_HWCAP2) & CAP2_I8MM) != 0;
#elif defined(__aarch64__) && defined(__APPLE__)
    int has = 0;
    size_t size = sizeof has;
    return sysctlbyname("hw.optional.arm.FEAT_I8MM", &has, &size, NULL, 0) == 0 && has != 0;
#else
    return 0;
#endif
}

#endif
