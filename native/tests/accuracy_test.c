// How far kernels are from the true values, taken from libm in double: every bound is a check, and
// every measured error is printed. The best kernel set stands for all: they have the same bits.
#include <float.h>

#include "kernels/kernels.h"
#include "kernels/ref/simd.h"
#include "sampling/math64.h"
#include "tests/check.h"

enum { N = 4096 };

static const es_kernels *k;

// Half the distance between the floats around x is 0.5 ulp; subnormals are all equally far apart.
static double ulp(double x) {
    int exponent;
    frexp(x, &exponent);
    return ldexp(1.0, (exponent < -125 ? -125 : exponent) - 24);
}

// The larger of two errors. NaN is the largest of all, and stays.
static double larger(double worst, double error) {
    return isnan(worst) || error <= worst ? worst : error;
}

// The worst error of a function, in ulp of the true value.
typedef struct {
    double ulps;
    float at;
} worst_error;

static void note(worst_error *worst, float x, double got, double truth) {
    const double error = fabs(got - truth) / ulp(truth);
    if (!isnan(worst->ulps) && !(error <= worst->ulps)) {
        *worst = (worst_error){error, x};
    }
}

static void report_worst(const char *name, worst_error worst, double bound) {
    printf("%s: %.3f ulp at %.9g, bound %g\n", name, worst.ulps, worst.at, bound);
    CHECK(worst.ulps <= bound, "%s: %.3f ulp at %.9g", name, worst.ulps, worst.at);
}

typedef void evaluate(const float *x, float *out);
typedef double truth_of(double x);

static void by_exp(const float *x, float *out) {
    for (int i = 0; i < N; i++) {
        out[i] = k->sum_exp(x + i, 1, 0.0f);
    }
}

static void by_tanh(const float *x, float *out) { k->soft_cap(x, 1.0f, N, out); }

static float ones[N];

static void by_silu(const float *x, float *out) { k->gated_silu(x, ones, N, out); }
static void by_gelu(const float *x, float *out) { k->gated_gelu_tanh(x, ones, N, out); }

static double silu(double x) { return x / (1.0 + exp(-x)); }
static double gelu(double x) {
    return x / (1.0 + exp(-2.0 * sqrt(2.0 / acos(-1.0)) * (x + 0.044715 * x * x * x)));
}

// All floats of both signs between `least` and `most` in size, by steps of `step` in their bits.
static worst_error sweep(evaluate *f, truth_of *truth, float least, float most, uint32_t step) {
    static float x[N], out[N];
    worst_error worst = {0};
    const uint32_t end = bits_of_float(most);
    for (uint32_t bits = bits_of_float(least); bits < end;) {
        for (int i = 0; i < N; i += 2, bits += step) {
            x[i] = float_of_bits(bits < end ? bits : end);
            x[i + 1] = -x[i];
        }
        f(x, out);
        for (int i = 0; i < N; i++) {
            note(&worst, x[i], out[i], truth(x[i]));
        }
    }
    return worst;
}

static void check_functions(void) {
    for (int i = 0; i < N; i++) {
        ones[i] = 1.0f;
    }
    const uint32_t step = 331; // odd, so that every low bit comes up
    report_worst("exp", sweep(by_exp, exp, 0x1p-30f, 88.7f, step), 1.0);
    report_worst("tanh", sweep(by_tanh, tanh, 0x1p-30f, 30.0f, step), 2.0);
    report_worst("silu", sweep(by_silu, silu, 0x1p-30f, 80.0f, step), 3.0);
    // The exponent grows with x^3, and what is lost of it with it.
    report_worst("gelu, |x| < 1", sweep(by_gelu, gelu, 0x1p-30f, 1.0f, step), 4.0);
    report_worst("gelu, |x| < 5", sweep(by_gelu, gelu, 1.0f, 5.0f, step), 32.0);
}

static void check_edges(void) {
    float x[16] = {INFINITY, -INFINITY, NAN, 88.8f, -104.0f, 0.0f, -0.0f, -103.0f}, out[16];
    for (int i = 0; i < 8; i++) {
        out[i] = k->sum_exp(x + i, 1, 0.0f);
    }
    CHECK(out[0] == INFINITY && out[1] == 0.0f && isnan(out[2]) && out[3] == INFINITY, "exp edges");
    CHECK(out[4] == 0.0f && out[5] == 1.0f && out[6] == 1.0f && out[7] == 0x1p-149f, "exp edges");
    k->soft_cap(x, 1.0f, 7, out);
    CHECK(out[0] == 1.0f && out[1] == -1.0f && isnan(out[2]) && out[3] == 1.0f, "tanh edges");
    CHECK(out[4] == -1.0f && !signbit(out[5]) && signbit(out[6]), "tanh edges");
    x[1] = -FLT_MAX;
    x[3] = FLT_MAX;
    k->gated_silu(x, ones, 5, out);
    CHECK(out[0] == INFINITY && out[1] == 0.0f && isnan(out[2]) && out[3] == FLT_MAX, "silu edges");
    k->gated_gelu_tanh(x, ones, 5, out);
    CHECK(out[0] == INFINITY && out[1] == 0.0f && isnan(out[2]) && out[3] == FLT_MAX, "gelu edges");
    x[3] = -3.0f;
    k->gated_relu_squared(x, ones, 4, out);
    CHECK(out[1] == 0.0f && isnan(out[2]) && out[3] == 0.0f, "relu edges");
}

// --- scalars of ref, and of the sampler ----------------------------------------------------------

// Against libm's, on systems where that is right.
static void check_scalar_fma(void) {
    random_source source = {11};
    int n_different = 0;
    for (int i = 0; i < 2000000; i++) {
        const float_kind kind = i % 2 == 0 ? WIDE : TAME;
        float a = random_float(&source, kind), b = random_float(&source, kind);
        float c = random_float(&source, kind);
        if (i % 4 == 1) { // nearly cancelling
            c = -a * b * (1.0f + 0x1p-22f * random_unit(&source));
        } else if (i % 4 == 3) { // the product only decides a tie
            a *= 0x1p-30f;
        }
        const float ours = scalar_fma(a, b, c), libms = fmaf(a, b, c);
        n_different += bits_of_float(ours) != bits_of_float(libms) && !isnan(libms);
    }
    CHECK(n_different == 0, "scalar_fma differs from fmaf %d times", n_different);
}

static void check_scalar_halfs(void) {
    int n_wrong = 0;
    for (uint32_t half = 0; half < 0x10000; half++) {
        const float x = scalar_widen((uint16_t)half);
        const uint32_t exponent = half >> 10 & 0x1f;
        const double size = exponent == 0 ? ldexp(half & 0x3ff, -24)
                                          : ldexp((half & 0x3ff) | 0x400, (int)exponent - 25);
        const double truth = half & 0x8000 ? -size : size;
        n_wrong += exponent != 0x1f && (x != truth || !signbit(x) != !signbit(truth));
        n_wrong += exponent == 0x1f && (half & 0x3ff) == 0 && !isinf(x);
        n_wrong += exponent == 0x1f && (half & 0x3ff) != 0 && !isnan(x);
        n_wrong += !isnan(x) && scalar_narrow(x) != half;
    }
    CHECK(n_wrong == 0, "%d halfs are widened or narrowed wrongly", n_wrong);
}

static void check_math64(void) {
    double worst_exp = 0.0, worst_log = 0.0;
    random_source source = {5};
    for (int i = 0; i < 2000000; i++) {
        const double x = (double)(int64_t)random_bits(&source) * (708.0 / 0x1p63);
        worst_exp = larger(worst_exp, fabs(es_exp64(x) / exp(x) - 1.0));
        // Near 1, where log is near 0, and over all exponents.
        const double y = i % 2 == 0 ? 1.0 + x * 0x1p-12 : exp(x);
        worst_log = larger(worst_log, fabs(es_log64(y) / log(y) - 1.0));
    }
    printf("exp64: %.2e, log64: %.2e relative to libm, bound 1e-15\n", worst_exp, worst_log);
    CHECK(worst_exp <= 1e-15, "exp64 is off by %.2e", worst_exp);
    CHECK(worst_log <= 1e-15, "log64 is off by %.2e", worst_log);
    CHECK(es_exp64(-INFINITY) == 0.0 && es_exp64(INFINITY) == INFINITY && isnan(es_exp64(NAN)) &&
              es_exp64(0.0) == 1.0 && es_exp64(710.0) == INFINITY && es_exp64(-746.0) == 0.0,
          "exp64 edges");
    CHECK(es_log64(0.0) == -INFINITY && isnan(es_log64(-1.0)) && es_log64(INFINITY) == INFINITY &&
              isnan(es_log64(NAN)) && es_log64(1.0) == 0.0,
          "log64 edges");
    CHECK(fabs(es_log64(0x1p-1074) + 744.44007192138126) < 1e-12, "log64 of a subnormal");
}

// --- reductions, and attention -------------------------------------------------------------------

static void check_rms_norm(void) {
    static float x[N], weight[N], out[N];
    random_source source = {3};
    random_floats(&source, TAME, N, x);
    random_floats(&source, TAME, N, weight);
    double squares = 0.0, worst = 0.0;
    for (int i = 0; i < N; i++) {
        squares += (double)x[i] * x[i];
    }
    k->rms_norm(x, weight, N, 1e-5f, out);
    for (int i = 0; i < N; i++) {
        const double truth = x[i] / sqrt(squares / N + 1e-5) * weight[i];
        worst = larger(worst, fabs(out[i] - truth) / ulp(truth));
    }
    printf("rms_norm of %d: %.2f ulp, bound 8\n", N, worst);
    CHECK(worst <= 8.0, "rms_norm is off by %.2f ulp", worst);
}

static void check_sum_exp(void) {
    static float x[N];
    random_source source = {4};
    random_floats(&source, TAME, N, x);
    double sum = 0.0;
    for (int i = 0; i < N; i++) {
        sum += exp((double)x[i] - 8.0);
    }
    const double error = fabs(k->sum_exp(x, N, 8.0f) / sum - 1.0);
    printf("sum_exp of %d: %.2e relative, bound 1e-6\n", N, error);
    CHECK(error <= 1e-6, "sum_exp is off by %.2e", error);
}

enum { TOKENS = 1000, HEAD = 64 };

static uint16_t keys[(TOKENS + 15) / 16 * 16 * HEAD], values[(TOKENS + 15) / 16 * 16 * HEAD];

// Attention over TOKENS tokens in double, straight from the cache's halfs.
static void attend_in_double(const float *query, float scale, float cap, int32_t first,
                             double *out) {
    double sum = 0.0;
    memset(out, 0, HEAD * sizeof *out);
    for (int t = first; t < TOKENS; t++) {
        double score = 0.0;
        for (int d = 0; d < HEAD; d++) {
            score += query[d] * (double)scalar_widen(keys[(t / 16 * HEAD + d) * 16 + t % 16]);
        }
        score *= scale;
        const double weight = exp(cap > 0.0f ? cap * tanh(score / cap) : score);
        sum += weight;
        for (int d = 0; d < HEAD; d++) {
            out[d] += weight * scalar_widen(values[t * HEAD + d]);
        }
    }
    for (int d = 0; d < HEAD; d++) {
        out[d] /= sum;
    }
}

static double attention_error(float cap, int32_t first) {
    int32_t table[(TOKENS + 15) / 16];
    float query[HEAD], o[HEAD], merged_o[HEAD] = {0}, out[HEAD], token[HEAD];
    random_source source = {9};
    random_floats(&source, TAME, HEAD, query);
    for (int t = 0; t < TOKENS; t++) {
        table[t / 16] = t / 16;
        random_floats(&source, TAME, HEAD, token);
        k->store_key(ES_KV_F16, token, HEAD, keys + t / 16 * 16 * HEAD, t % 16);
        random_floats(&source, TAME, HEAD, token);
        k->store_value(ES_KV_F16, token, HEAD, values + t / 16 * 16 * HEAD, t % 16);
    }
    const es_attention_cache cache = {.k_pool = (const uint8_t *)keys,
                                      .v_pool = (const uint8_t *)values,
                                      .table = table,
                                      .key_size = HEAD,
                                      .value_size = HEAD,
                                      .scale = 0.02f,
                                      .soft_cap = cap,
                                      .type = ES_KV_F16};
    const es_attention_query whole = {query, first, TOKENS};
    es_attention_partial merged = {-INFINITY, 0.0f, merged_o}, partial = {0.0f, 0.0f, o};
    for (int64_t chunk = 0; chunk * ES_KV_CHUNK < TOKENS; chunk++) {
        k->attention_chunk(&cache, chunk, &whole, 1, &partial);
        k->attention_merge(&merged, &partial, 1, HEAD);
    }
    k->attention_finish(&merged, HEAD, out);
    double truth[HEAD], worst = 0.0;
    attend_in_double(query, cache.scale, cap, first, truth);
    for (int d = 0; d < HEAD; d++) {
        worst = larger(worst, fabs(out[d] - truth[d]));
    }
    return worst;
}

static void check_attention(void) {
    const struct {
        float cap;
        int32_t first;
    } variants[] = {{0.0f, 0}, {10.0f, 0}, {0.0f, 700}};
    for (int i = 0; i < 3; i++) {
        const double error = attention_error(variants[i].cap, variants[i].first);
        printf("attention from %d, cap %g: %.2e of values below 8, bound 1e-5\n",
               (int)variants[i].first, variants[i].cap, error);
        CHECK(error <= 1e-5, "attention is off by %.2e", error);
    }
}

int main(void) {
    k = es_kernels_select(NULL);
    check_functions();
    check_edges();
    check_scalar_fma();
    check_scalar_halfs();
    check_math64();
    check_rms_norm();
    check_sum_exp();
    check_attention();
    return report();
}
