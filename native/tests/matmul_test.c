// Weights and their matmul: repacking loses nothing, every kernel set gives the reference's bits,
// and a row's result does not depend on how many rows there are. Blocks and activations include
// the extremes at which 16-bit sums would overflow. Prints a checksum of every set's results, and
// "N passed, M failed".
//   matmul_test          everything
//   matmul_test quick    the same with fewer sizes, for slow emulators
#include <stdlib.h>

#include "kernels/kernels.h"
#include "tests/check.h"

enum { MAX_ROWS = 512, SOME_ROWS = 40, N_MODES = 6 };

static int is_quick;

static void check(int ok, const char *what, const char *set, const char *type, int64_t detail) {
    CHECK(ok, "%s, %s, %s, %lld", what, set, type, (long long)detail);
}

static void *allocate(size_t bytes) {
    void *p = aligned_alloc(64, (bytes + 63) / 64 * 64);
    if (p == NULL) {
        printf("out of memory\n");
        exit(1);
    }
    memset(p, 0, bytes);
    return p;
}

static random_source source = {1};

static uint32_t bits32(void) { return (uint32_t)(random_bits(&source) >> 32); }

// --- weights -------------------------------------------------------------------------------------

// Where a block's float16 numbers are; -1 ends the list.
static const int *halfs_of(es_type type) {
    static const int none[] = {-1}, one[] = {0, -1}, two[] = {0, 2, -1};
    static const int q2_k[] = {80, 82, -1}, q3_k[] = {108, -1}, q6_k[] = {208, -1};
    switch (type) {
    case ES_TYPE_F32:
    case ES_TYPE_BF16:
    case ES_TYPE_MXFP4:
        return none;
    case ES_TYPE_Q4_1:
    case ES_TYPE_Q5_1:
    case ES_TYPE_Q4_K:
    case ES_TYPE_Q5_K:
        return two;
    case ES_TYPE_Q2_K:
        return q2_k;
    case ES_TYPE_Q3_K:
        return q3_k;
    case ES_TYPE_Q6_K:
        return q6_k;
    default:
        return one;
    }
}

// Finite: about 2^-11 to 2^5 of either sign; sometimes zero, subnormal or the largest.
static uint16_t random_half(void) {
    const uint32_t bits = bits32();
    const uint16_t sign = (uint16_t)(bits & 0x8000);
    switch (bits >> 28) {
    case 0:
        return sign;
    case 1:
        return (uint16_t)(sign | (bits & 0x3ff));
    case 2:
        return (uint16_t)(sign | 0x7bff);
    default:
        return (uint16_t)(sign | (4 + (bits >> 16) % 16) << 10 | (bits & 0x3ff));
    }
}

static void random_block(const es_type_info *info, int mode, uint8_t *block) {
    static const uint8_t extremes[] = {0xff, 0x00, 0x80, 0x7f, 0x88};
    for (int32_t i = 0; i < info->block_bytes; i++) {
        block[i] = mode == 0 ? (uint8_t)(bits32() >> 24) : extremes[mode - 1];
    }
    if (info->type == ES_TYPE_F32) {
        block[3] = (uint8_t)((bits32() & 0x80) | (0x38 + bits32() % 8)); // +-1e-5 .. 1
    } else if (info->type == ES_TYPE_BF16) {
        block[1] = (uint8_t)((bits32() & 0x80) | (0x38 + bits32() % 8));
    } else if (info->type == ES_TYPE_MXFP4) {
        block[0] = (uint8_t)(bits32() % 8 == 0 ? bits32() % 3 : 110 + bits32() % 20);
    }
    for (const int *at = halfs_of((es_type)info->type); *at >= 0; at++) {
        const uint16_t half = random_half();
        memcpy(block + *at, &half, sizeof half);
    }
}

typedef struct {
    es_weight *weight;
    uint8_t *src; // as a GGUF file has it
    size_t row_bytes;
} test_weight;

static test_weight make_weight(const es_type_info *info, int64_t n_rows, int64_t n_cols, int mode) {
    test_weight made = {NULL, NULL, (size_t)(n_cols / info->block_elements * info->block_bytes)};
    made.src = allocate((size_t)n_rows * made.row_bytes);
    for (size_t at = 0; at < (size_t)n_rows * made.row_bytes; at += (size_t)info->block_bytes) {
        random_block(info, mode, made.src + at);
    }
    check(es_weight_create((es_type)info->type, n_rows, n_cols, &made.weight) == ES_OK, "create",
          "-", info->name, n_rows);
    memset(made.weight->data, 0xff, (size_t)es_weight_bytes(made.weight));
    // In two parts, as parallel loading does it.
    const int64_t first = n_rows > 16 ? 16 : n_rows;
    es_status status =
        es_weight_fill(made.weight, 0, first, made.src, (size_t)first * made.row_bytes);
    if (status == ES_OK && first < n_rows) {
        status = es_weight_fill(made.weight, first, n_rows - first,
                                made.src + (size_t)first * made.row_bytes,
                                (size_t)(n_rows - first) * made.row_bytes);
    }
    check(status == ES_OK, "fill", "-", info->name, n_rows);
    return made;
}

static void free_weight(test_weight *made) {
    es_weight_free(made->weight);
    free(made->src);
}

static void check_repack(const es_type_info *info) {
    static const int64_t row_counts[] = {1, 15, 16, 17, 40};
    for (size_t i = 0; i < sizeof row_counts / sizeof *row_counts; i++) {
        // Floats in numbers that are no multiple of what is moved at a time.
        const int64_t n_blocks = (int64_t)(1 + 2 * i) * (info->block_elements == 1 ? 37 : 1);
        const int64_t n_cols = info->block_elements * n_blocks;
        test_weight made = make_weight(info, row_counts[i], n_cols, 0);
        const size_t bytes = (size_t)n_cols * sizeof(float);
        float *want = allocate(bytes), *got = allocate(bytes);
        for (int64_t row = 0; row < row_counts[i]; row++) {
            es_dequantize((es_type)info->type, made.src + (size_t)row * made.row_bytes,
                          made.row_bytes, n_cols, want);
            es_kernels_ref()->weight_row(made.weight, row, got);
            check(memcmp(want, got, bytes) == 0, "repack", "-", info->name, row);
        }
        free(want);
        free(got);
        free_weight(&made);
    }
}

static void check_refusals(void) {
    es_weight *weight = NULL;
    uint8_t src[16 * 34] = {0};
    const char *name = "Q8_0";
    check(es_weight_create(ES_TYPE_Q8_0, 1, 32, NULL) == ES_ERR_NULL, "null", "-", name, 0);
    check(es_weight_create((es_type)9, 1, 32, &weight) == ES_ERR_TYPE, "type", "-", name, 0);
    check(es_weight_create(ES_TYPE_Q8_0, 1, 33, &weight) == ES_ERR_LENGTH, "cols", "-", name, 0);
    check(es_weight_create(ES_TYPE_Q8_0, 0, 32, &weight) == ES_ERR_LENGTH, "rows", "-", name, 0);
    check(es_weight_create(ES_TYPE_Q8_0, INT64_MAX / 64, INT64_MAX / 64 * 32, &weight) ==
              ES_ERR_MEMORY,
          "huge", "-", name, 0);
    check(weight == NULL, "untouched", "-", name, 0);
    check(es_weight_create(ES_TYPE_Q8_0, 18, 32, &weight) == ES_OK, "create", "-", name, 0);
    check(es_weight_bytes(weight) == 32 * 34, "bytes", "-", name, 0);
    check(es_weight_fill(NULL, 0, 16, src, sizeof src) == ES_ERR_NULL, "null", "-", name, 1);
    check(es_weight_fill(weight, 0, 16, NULL, 0) == ES_ERR_NULL, "null", "-", name, 2);
    check(es_weight_fill(weight, 1, 16, src, sizeof src) == ES_ERR_RANGE, "start", "-", name, 1);
    check(es_weight_fill(weight, -16, 16, src, sizeof src) == ES_ERR_RANGE, "start", "-", name, 2);
    check(es_weight_fill(weight, 0, 15, src, 15 * 34) == ES_ERR_RANGE, "part", "-", name, 15);
    check(es_weight_fill(weight, 16, 3, src, 3 * 34) == ES_ERR_RANGE, "past the end", "-", name, 3);
    check(es_weight_fill(weight, 0, 16, src, sizeof src - 1) == ES_ERR_SIZE, "size", "-", name, 0);
    check(es_weight_fill(weight, 16, 2, src, 2 * 34) == ES_OK, "last rows", "-", name, 2);
    es_weight_free(weight);
    es_weight_free(NULL);
}

// --- activations ---------------------------------------------------------------------------------

typedef struct {
    es_activation a;
    float *x;
    int8_t *q;
    float *d;
    float *s;
    int16_t *sums;
} test_rows;

static int8_t random_quant(int mode, int64_t i) {
    switch (mode) {
    case 1:
        return 127;
    case 2:
        return -127;
    case 3:
        return i % 2 == 0 ? 127 : -127;
    case 4:
        return i % 4 < 2 ? 127 : -127;
    case 5:
        return 0;
    default:
        return (int8_t)((int)(bits32() >> 8) % 255 - 127);
    }
}

static void fill_sums(test_rows *rows, int64_t n) {
    for (int64_t i = 0; i < n; i += 16) {
        int sum = 0;
        for (int64_t k = i; k < i + 16; k++) {
            sum += rows->q[k];
        }
        rows->sums[i / 16] = (int16_t)sum;
    }
    for (int64_t i = 0; i < n; i += 32) {
        rows->s[i / 32] = (float)(rows->sums[i / 16] + rows->sums[i / 16 + 1]);
    }
}

static test_rows make_rows(int64_t n_rows, int64_t n_cols, int mode) {
    const int64_t stride = (n_cols + 255) / 256 * 256, n = n_rows * stride;
    test_rows rows = {.x = allocate((size_t)n * sizeof *rows.x),
                      .q = allocate((size_t)n),
                      .d = allocate((size_t)n / 32 * sizeof *rows.d),
                      .s = allocate((size_t)n / 32 * sizeof *rows.s),
                      .sums = allocate((size_t)n / 16 * sizeof *rows.sums)};
    for (int64_t i = 0; i < n; i++) {
        rows.q[i] = random_quant(mode, i);
        rows.x[i] = (float)((int)(bits32() >> 8) % 4001 - 2000) / 1024.0f;
    }
    for (int64_t i = 0; i < n / 32; i++) {
        rows.d[i] = (float)(bits32() >> 16) * (bits32() % 16 == 0 ? 1e-30f : 1e-6f);
    }
    fill_sums(&rows, n);
    rows.a =
        (es_activation){rows.x, rows.q, rows.d, rows.s, rows.sums, stride, stride, stride / 32};
    return rows;
}

static void free_rows(test_rows *rows) {
    free(rows->x);
    free(rows->q);
    free(rows->d);
    free(rows->s);
    free(rows->sums);
}

// --- matmul --------------------------------------------------------------------------------------

static es_activation row_of(const es_activation *a, int64_t row) {
    es_activation one = *a;
    one.x += row * a->stride_x;
    one.q += row * a->stride_q;
    one.d += row * a->stride_d;
    one.s += row * a->stride_d;
    one.sums += row * a->stride_q / 16;
    return one;
}

// Row by row, by the reference.
static float *reference(const es_weight *weight, const es_activation *a, int64_t n_rows) {
    const int64_t ld = weight->n_panels * 16;
    float *out = allocate((size_t)(n_rows * ld) * sizeof *out);
    for (int64_t row = 0; row < n_rows; row++) {
        const es_activation one = row_of(a, row);
        es_kernels_ref()->matmul(weight, 0, weight->n_panels, &one, 1, out + row * ld, ld);
    }
    return out;
}

static void check_rows(const es_kernels *kernels, const es_weight *weight, const char *type,
                       const es_activation *a, int64_t n_rows, const float *want) {
    const int64_t ld = weight->n_panels * 16;
    const size_t bytes = (size_t)(n_rows * ld) * sizeof(float);
    float *got = allocate(bytes);
    memset(got, 0xff, bytes); // NaN
    kernels->matmul(weight, 0, weight->n_panels, a, n_rows, got, ld);
    check(memcmp(want, got, bytes) == 0, "rows", kernels->name, type, n_rows);
    free(got);
}

// The second panel alone, into a matrix that is wider than it.
static void check_panel(const es_kernels *kernels, const es_weight *weight, const char *type,
                        const es_activation *a, const float *want) {
    enum { ROWS = 9, LD = 24 };
    const int64_t ld = weight->n_panels * 16;
    float got[ROWS * LD];
    for (int i = 0; i < ROWS * LD; i++) {
        got[i] = 7.0f;
    }
    kernels->matmul(weight, 1, 1, a, ROWS, got, LD);
    int same = 1, untouched = 1;
    for (int row = 0; row < ROWS; row++) {
        same &= memcmp(got + row * LD, want + row * ld + 16, 16 * sizeof *got) == 0;
        for (int i = 16; i < LD; i++) {
            untouched &= got[row * LD + i] == 7.0f;
        }
    }
    check(same, "one panel", kernels->name, type, ROWS);
    check(untouched, "writes 16 columns", kernels->name, type, ROWS);
}

static void check_padding(const es_weight *weight, const char *type, const float *want) {
    const int64_t ld = weight->n_panels * 16;
    int zero = 1, some = 0;
    for (int64_t i = 0; i < ld; i++) {
        zero &= i < weight->n_rows || want[i] == 0.0f;
        some |= want[i] != 0.0f;
    }
    check(zero, "missing rows give 0", "ref", type, weight->n_rows);
    check(some, "rows give something", "ref", type, weight->n_rows);
}

// Of SOME_ROWS rows: FNV-1a, the same on every platform.
static void print_checksum(const es_kernels *kernels, const es_weight *weight, const char *type,
                           const es_activation *a) {
    const int64_t ld = weight->n_panels * 16;
    const size_t bytes = (size_t)(SOME_ROWS * ld) * sizeof(float);
    float *got = allocate(bytes);
    kernels->matmul(weight, 0, weight->n_panels, a, SOME_ROWS, got, ld);
    uint64_t sum = 0xcbf29ce484222325u;
    for (size_t i = 0; i < bytes; i++) {
        sum = (sum ^ ((const uint8_t *)got)[i]) * 0x100000001b3u;
    }
    printf("%s %s %016llx\n", kernels->name, type, (unsigned long long)sum);
    free(got);
}

static void check_set(const es_kernels *kernels, const es_type_info *info) {
    // 18 blocks of 32 (SmolLM2's width), 35 to cross an expanded stretch, or 5 of 256.
    const int64_t n_cols = info->block_elements == 256 ? 5 * 256 : 35 * 32;
    const int64_t max_rows = is_quick ? SOME_ROWS : MAX_ROWS;
    source = (random_source){(uint64_t)info->type}; // the same for every set, quick or not
    test_weight made = make_weight(info, 37, n_cols, 0);
    test_rows rows = make_rows(MAX_ROWS, n_cols, 0);
    float *want = reference(made.weight, &rows.a, max_rows);
    check_padding(made.weight, info->name, want);
    // Passes of 1, 4 and 3, 2, and 3 rows beside tiles; below the sizes at which panels expand too.
    static const int64_t quick_rows[] = {1, 7, 14, 27};
    const int64_t n_sizes = is_quick ? 4 : SOME_ROWS;
    for (int64_t i = 0; i < n_sizes; i++) {
        check_rows(kernels, made.weight, info->name, &rows.a, is_quick ? quick_rows[i] : i + 1,
                   want);
    }
    check_rows(kernels, made.weight, info->name, &rows.a, max_rows, want);
    print_checksum(kernels, made.weight, info->name, &rows.a);
    check_panel(kernels, made.weight, info->name, &rows.a, want);
    free(want);
    free_rows(&rows);
    free_weight(&made);
}

// Every extreme of the weights with every one of the activations, at the smallest sizes.
static void check_extremes(const es_kernels *kernels, const es_type_info *info) {
    const int64_t n_cols = info->block_elements == 256 ? 256 : 18 * 32;
    for (int weights = 0; weights < N_MODES; weights++) {
        test_weight made = make_weight(info, 70, n_cols, weights);
        for (int mode = 0; mode < N_MODES; mode += is_quick ? 3 : 1) {
            test_rows rows = make_rows(19, n_cols, mode);
            float *want = reference(made.weight, &rows.a, 19);
            check_rows(kernels, made.weight, info->name, &rows.a, 1, want);
            check_rows(kernels, made.weight, info->name, &rows.a, 3, want);
            check_rows(kernels, made.weight, info->name, &rows.a, 19, want);
            free(want);
            free_rows(&rows);
        }
        free_weight(&made);
    }
}

int main(int n_arguments, char **arguments) {
    is_quick = n_arguments > 1 && strcmp(arguments[1], "quick") == 0;
    const es_kernels *sets[] = {es_kernels_ref(),    es_kernels_avx2(), es_kernels_avxvnni(),
                                es_kernels_avx512(), es_kernels_neon(), es_kernels_i8mm()};
    check_refusals();
    for (int32_t i = 0; i < es_type_count(); i++) {
        es_type_info info;
        es_type_at(i, &info);
        check_repack(&info);
        for (size_t set = 0; set < sizeof sets / sizeof *sets; set++) {
            if (sets[set] != NULL) {
                check_set(sets[set], &info);
                check_extremes(sets[set], &info);
            }
        }
    }
    return report();
}
