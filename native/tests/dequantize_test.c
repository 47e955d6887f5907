// Dequantising under the sanitizers: every type on random bytes, in buffers that are exactly as
// large as the interface says and lie at odd addresses, and every refusal of the API edge.
// Values are tests/test_dequantize.py's business. Prints the first failure and exits with 1.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "edgeserve.h"

enum { N_BLOCKS = 257 };

#define REQUIRE(condition, what)                                                                   \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "%s:%d: %s: %s\n", __FILE__, __LINE__, what, #condition);              \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

static uint32_t random_state = 1;

// xorshift32: the bytes need variety, not quality.
static uint8_t random_byte(void) {
    random_state ^= random_state << 13;
    random_state ^= random_state >> 17;
    random_state ^= random_state << 5;
    return (uint8_t)(random_state >> 24);
}

static void check_random_bytes(const es_type_info *info, size_t shift) {
    const size_t src_bytes = (size_t)info->block_bytes * N_BLOCKS;
    const int64_t n_elements = (int64_t)info->block_elements * N_BLOCKS;
    uint8_t *buffer = malloc(shift + src_bytes);
    float *first = malloc((size_t)n_elements * sizeof *first);
    float *second = malloc((size_t)n_elements * sizeof *second);
    REQUIRE(buffer != NULL && first != NULL && second != NULL, "out of memory");
    for (size_t i = 0; i < src_bytes; i++) {
        buffer[shift + i] = random_byte();
    }
    const es_type type = (es_type)info->type;
    const uint8_t *src = buffer + shift;
    REQUIRE(es_dequantize(type, src, src_bytes, n_elements, first) == ES_OK, info->name);
    REQUIRE(es_dequantize(type, src, src_bytes, n_elements, second) == ES_OK, info->name);
    REQUIRE(memcmp(first, second, (size_t)n_elements * sizeof *first) == 0, info->name);
    free(second);
    free(first);
    free(buffer);
}

static void check_refusals(const es_type_info *info) {
    const es_type type = (es_type)info->type;
    const size_t bytes = (size_t)info->block_bytes;
    const int64_t elements = info->block_elements;
    uint8_t *src = calloc(1, bytes);
    float *dst = malloc((size_t)elements * sizeof *dst);
    REQUIRE(src != NULL && dst != NULL, "out of memory");
    float *odd_dst = (float *)((uint8_t *)dst + 1);
    const char *name = info->name;
    REQUIRE(es_dequantize(type, NULL, bytes, elements, dst) == ES_ERR_NULL, name);
    REQUIRE(es_dequantize(type, src, bytes, elements, NULL) == ES_ERR_NULL, name);
    REQUIRE(es_dequantize(type, src, bytes, elements, odd_dst) == ES_ERR_ALIGNMENT, name);
    REQUIRE(es_dequantize(type, src, bytes, -elements, dst) == ES_ERR_LENGTH, name);
    REQUIRE(es_dequantize(type, src, bytes + 1, elements, dst) == ES_ERR_SIZE, name);
    REQUIRE(es_dequantize(type, src, bytes - 1, elements, dst) == ES_ERR_SIZE, name);
    REQUIRE(es_dequantize(type, src, 0, elements, dst) == ES_ERR_SIZE, name);
    REQUIRE(es_dequantize(type, src, SIZE_MAX, elements, dst) == ES_ERR_SIZE, name);
    REQUIRE(es_dequantize(type, NULL, 0, 0, NULL) == ES_OK, name);
    if (elements > 1) {
        REQUIRE(es_dequantize(type, src, bytes, elements - 1, dst) == ES_ERR_LENGTH, name);
    }
    free(dst);
    free(src);
}

int main(void) {
    es_type_info info;
    const int32_t n_types = es_type_count();
    for (int32_t i = 0; i < n_types; i++) {
        REQUIRE(es_type_at(i, &info) == ES_OK, "es_type_at");
        check_random_bytes(&info, 0);
        check_random_bytes(&info, 1);
        check_refusals(&info);
    }
    REQUIRE(es_type_at(-1, &info) == ES_ERR_LENGTH, "es_type_at");
    REQUIRE(es_type_at(n_types, &info) == ES_ERR_LENGTH, "es_type_at");
    REQUIRE(es_type_at(0, NULL) == ES_ERR_NULL, "es_type_at");
    float value;
    REQUIRE(es_dequantize((es_type)1000, &value, 4, 1, &value) == ES_ERR_TYPE, "unknown type");
    REQUIRE(es_layout(NULL) == -1 && es_layout("es_nothing") == -1, "es_layout");
    printf("%d types\n", (int)n_types);
    return 0;
}
