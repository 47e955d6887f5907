// exp and log in double for the sampler, the same bits on every platform: only +, -, *, / and
// integer operations, each rounded once. Relative error below 1e-15; native/tests/kernels_test.c
// measures it.
#ifndef ES_SAMPLING_MATH64_H
#define ES_SAMPLING_MATH64_H

#include <stdint.h>
#include <string.h>

// ln(2), in two parts: the first has 33 bits, so that a multiple of it by an exponent is exact.
#define ES_LN2_HIGH 0x1.62e42feep-1
#define ES_LN2_LOW  0x1.a39ef35793c76p-33

static inline double es_double_of_bits(uint64_t bits) {
    double x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

static inline uint64_t es_bits_of_double(double x) {
    uint64_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

// 2^n for n in [-1022, 1023].
static inline double es_power_of_two(int64_t n) {
    return es_double_of_bits((uint64_t)(n + 1023) << 52);
}

// exp(x) = 2^n exp(r), |r| <= ln(2) / 2, by Taylor's series: its rest is below 1e-17.
static inline double es_exp64(double x) {
    static const double one_by_factorial[14] = {
        1.0,
        1.0,
        1.0 / 2,
        1.0 / 6,
        1.0 / 24,
        1.0 / 120,
        1.0 / 720,
        1.0 / 5040,
        1.0 / 40320,
        1.0 / 362880,
        1.0 / 3628800,
        1.0 / 39916800,
        1.0 / 479001600,
        1.0 / 6227020800,
    };
    if (!(x < 709.8)) { // beyond, or NaN
        return x + es_double_of_bits(0x7ff0000000000000u);
    }
    if (x < -745.2) {
        return 0.0;
    }
    const double scaled = x * 0x1.71547652b82fep+0; // 1 / ln(2)
    const int64_t n = (int64_t)(scaled + (scaled < 0.0 ? -0.5 : 0.5));
    const double r = (x - (double)n * ES_LN2_HIGH) - (double)n * ES_LN2_LOW;
    double sum = 0.0;
    for (int k = 13; k >= 0; k--) {
        sum = sum * r + one_by_factorial[k];
    }
    // Twice, because 2^n alone may be no normal number. The first product is exact.
    const int64_t half = n / 2;
    return sum * es_power_of_two(half) * es_power_of_two(n - half);
}

// log(x) = e ln(2) + log(m), m in [sqrt(1/2), sqrt(2)), by the series of atanh((m - 1) / (m + 1)).
static inline double es_log64(double x) {
    static const double one_by_odd[11] = {
        1.0 / 3,  1.0 / 5,  1.0 / 7,  1.0 / 9,  1.0 / 11, 1.0 / 13,
        1.0 / 15, 1.0 / 17, 1.0 / 19, 1.0 / 21, 1.0 / 23,
    };
    const double infinity = es_double_of_bits(0x7ff0000000000000u);
    if (x == 0.0) {
        return -infinity;
    }
    if (!(x > 0.0) || x == infinity) { // negative and NaN give NaN
        return x > 0.0 ? infinity : infinity - infinity;
    }
    const int subnormal = x < 0x1p-1022;
    const uint64_t bits = es_bits_of_double(subnormal ? x * 0x1p54 : x);
    int64_t e = (int64_t)(bits >> 52) - 1023 - (subnormal ? 54 : 0);
    double m = es_double_of_bits((bits & 0x000fffffffffffffu) | 0x3ff0000000000000u);
    if (m > 0x1.6a09e667f3bcdp+0) {
        m *= 0.5;
        e++;
    }
    const double s = (m - 1.0) / (m + 1.0);
    const double z = s * s; // at most 0.0295
    double sum = 0.0;
    for (int i = 10; i >= 0; i--) {
        sum = z * (sum + one_by_odd[i]);
    }
    const double log_m = 2.0 * s + 2.0 * s * sum;
    return (double)e * ES_LN2_HIGH + ((double)e * ES_LN2_LOW + log_m);
}

#endif
