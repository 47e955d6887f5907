// Rope tables: cosines and sines of position times frequency, in double, rounded once.
//
// The libraries' sin and cos differ from system to system in the last bit, and so would the
// answers; these are polynomials over an exact enough reduction (after FreeBSD's msun, k_sin.c and
// k_cos.c: the same coefficients), the same everywhere.
#include <math.h>

#include "plan/executor.h"

static const double TWO_OVER_PI = 6.36619772367581382433e-01;
// pi/2 in three parts of 33 bits, so that a quotient of up to 20 bits times a part is exact.
static const double HALF_PI_1 = 1.57079632673412561417e+00;
static const double HALF_PI_2 = 6.07710050630396597660e-11;
static const double HALF_PI_3 = 2.02226624871116645580e-21;

static double sin_near_zero(double x) {
    const double z = x * x;
    double p = 1.58969099521155010221e-10;
    p = fma(p, z, -2.50507602534068634195e-08);
    p = fma(p, z, 2.75573137070700676789e-06);
    p = fma(p, z, -1.98412698298579493134e-04);
    p = fma(p, z, 8.33333333332248946124e-03);
    p = fma(p, z, -1.66666666666666324348e-01);
    return fma(x * z, p, x);
}

static double cos_near_zero(double x) {
    const double z = x * x;
    double p = -1.13596475577881948265e-11;
    p = fma(p, z, 2.08757232129817482790e-09);
    p = fma(p, z, -2.75573143513906633035e-07);
    p = fma(p, z, 2.48015872894767294178e-05);
    p = fma(p, z, -1.38888888888741095749e-03);
    p = fma(p, z, 4.16666666666666019037e-02);
    return fma(z * z, p, fma(-0.5, z, 1.0));
}

// For 0 <= x < 2^20 radians, which positions times frequencies never leave.
static void cos_sin(double x, double *cosine, double *sine) {
    const double n = floor(fma(x, TWO_OVER_PI, 0.5));
    const double r = fma(-n, HALF_PI_3, fma(-n, HALF_PI_2, fma(-n, HALF_PI_1, x)));
    const double s = sin_near_zero(r), c = cos_near_zero(r);
    const int64_t quadrant = (int64_t)n & 3;
    const double cosines[] = {c, -s, -c, s};
    const double sines[] = {s, c, -s, -c};
    *cosine = cosines[quadrant];
    *sine = sines[quadrant];
}

static void table_units(void *context, int64_t first, int64_t end, int32_t worker) {
    es_executor *executor = context;
    (void)worker;
    for (int64_t row = first; row < end; row++) {
        const double position = executor->batch->positions[row];
        for (int32_t i = 0; i < executor->plan.n_ropes; i++) {
            const es_rope *rope = &executor->plan.ropes[i];
            float *table = executor->rope_tables[i] + row * 2 * rope->n_pairs;
            for (int32_t pair = 0; pair < rope->n_pairs; pair++) {
                double cosine, sine;
                cos_sin(position * rope->frequencies[pair], &cosine, &sine);
                table[pair] = (float)(cosine * rope->magnitude);
                table[rope->n_pairs + pair] = (float)(sine * rope->magnitude);
            }
        }
    }
}

void es_fill_rope_tables(es_executor *executor) {
    es_pool_run(executor->pool, table_units, executor, executor->batch->n_rows, 8);
}
