// The C core's public interface: all that Python, and any other program, sees of it.
// Kept plain enough for cffi: tools/generate_cdef.py turns this file into the binding at build.
#ifndef EDGESERVE_H
#define EDGESERVE_H

#include <stddef.h>
#include <stdint.h>

#if defined(_WIN32)
#define ES_API __declspec(dllexport)
#else
#define ES_API __attribute__((visibility("default")))
#endif

// Goes up whenever a function, a struct or a value below changes its meaning.
#define ES_ABI_VERSION 1

typedef enum es_status {
    ES_OK = 0,
    ES_ERR_NULL = 1,      // a pointer that must not be null is
    ES_ERR_TYPE = 2,      // the quant type is unknown, or has no dequantiser
    ES_ERR_LENGTH = 3,    // a count is negative, or no whole number of blocks
    ES_ERR_SIZE = 4,      // the source is not exactly as long as its blocks
    ES_ERR_ALIGNMENT = 5, // the destination is not aligned for its element type
    ES_ERR_MEMORY = 6,    // the system has no memory left to give
    ES_ERR_RANGE = 7,     // an index or id lies outside what it points into
    ES_ERR_ABORTED = 8,   // the abort flag was raised; the step's results are void
    ES_ERR_SYSTEM = 9,    // the operating system refused (threads, files)
    ES_ERR_KERNELS = 10,  // no such kernel set, or this processor cannot run it
} es_status;

// GGUF's numbers. A type that is not here is not supported.
typedef enum es_type {
    ES_TYPE_F32 = 0,
    ES_TYPE_F16 = 1,
    ES_TYPE_Q4_0 = 2,
    ES_TYPE_Q4_1 = 3,
    ES_TYPE_Q5_0 = 6,
    ES_TYPE_Q5_1 = 7,
    ES_TYPE_Q8_0 = 8,
    ES_TYPE_Q2_K = 10,
    ES_TYPE_Q3_K = 11,
    ES_TYPE_Q4_K = 12,
    ES_TYPE_Q5_K = 13,
    ES_TYPE_Q6_K = 14,
    ES_TYPE_IQ4_NL = 20,
    ES_TYPE_IQ4_XS = 23,
    ES_TYPE_BF16 = 30,
    ES_TYPE_MXFP4 = 39,
} es_type;

// One quant type: `name` is GGML's, a static string. Plain floats are blocks of one element.
typedef struct es_type_info {
    const char *name;
    int32_t type;
    int32_t block_elements;
    int32_t block_bytes;
} es_type_info;

ES_API int32_t es_abi_version(void);

// The size of a struct above ("es_type_info"), or the offset of a field ("es_type_info.name"),
// as this library was compiled; -1 when it knows no such struct or field.
ES_API int64_t es_layout(const char *name);

// A static, never null, one-line text.
ES_API const char *es_status_text(es_status status);

// How many quant types there are, and number `index` of them; ES_ERR_LENGTH when out of range.
ES_API int32_t es_type_count(void);
ES_API es_status es_type_at(int32_t index, es_type_info *out);

// Widens n_elements values to float32, exactly as the format defines them. `src` holds exactly
// src_bytes and needs no alignment; `dst` has room for n_elements. Neither may overlap the other.
ES_API es_status es_dequantize(es_type type, const void *src, size_t src_bytes, int64_t n_elements,
                               float *dst);

// --- weights -----------------------------------------------------------------------------------

// A weight matrix of the model, in the core's own layout (native/kernels/weight.h).
typedef struct es_weight es_weight;

// Room for n_rows x n_cols of `type`; n_cols is a whole number of its blocks. The contents are
// undefined until every row is filled.
ES_API es_status es_weight_create(es_type type, int64_t n_rows, int64_t n_cols, es_weight **out);

// Repacks n_rows rows, as a GGUF file holds them, to rows first_row, ... of the weight. first_row
// is a multiple of 16, and so is n_rows unless the last row is among them. Calls for different
// rows may run at the same time.
ES_API es_status es_weight_fill(es_weight *weight, int64_t first_row, int64_t n_rows,
                                const void *src, size_t src_bytes);

ES_API int64_t es_weight_bytes(const es_weight *weight);
ES_API void es_weight_free(es_weight *weight);

#endif
