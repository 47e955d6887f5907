// The quant types as one table, and the API edge of dequantising: every argument is checked here,
// and nowhere below.
#include "quants/dequantize.h"

#include "quants/blocks.h"

typedef struct {
    es_type_info info;
    dequantize_blocks *dequantize;
} quant_type;

static const quant_type types[] = {
    {{"F32", ES_TYPE_F32, 1, 4}, es_dequantize_f32},
    {{"F16", ES_TYPE_F16, 1, 2}, es_dequantize_f16},
    {{"BF16", ES_TYPE_BF16, 1, 2}, es_dequantize_bf16},
    {{"Q4_0", ES_TYPE_Q4_0, ES_BLOCK, sizeof(es_block_q4_0)}, es_dequantize_q4_0},
    {{"Q4_1", ES_TYPE_Q4_1, ES_BLOCK, sizeof(es_block_q4_1)}, es_dequantize_q4_1},
    {{"Q5_0", ES_TYPE_Q5_0, ES_BLOCK, sizeof(es_block_q5_0)}, es_dequantize_q5_0},
    {{"Q5_1", ES_TYPE_Q5_1, ES_BLOCK, sizeof(es_block_q5_1)}, es_dequantize_q5_1},
    {{"Q8_0", ES_TYPE_Q8_0, ES_BLOCK, sizeof(es_block_q8_0)}, es_dequantize_q8_0},
    {{"Q2_K", ES_TYPE_Q2_K, ES_SUPERBLOCK, sizeof(es_block_q2_k)}, es_dequantize_q2_k},
    {{"Q3_K", ES_TYPE_Q3_K, ES_SUPERBLOCK, sizeof(es_block_q3_k)}, es_dequantize_q3_k},
    {{"Q4_K", ES_TYPE_Q4_K, ES_SUPERBLOCK, sizeof(es_block_q4_k)}, es_dequantize_q4_k},
    {{"Q5_K", ES_TYPE_Q5_K, ES_SUPERBLOCK, sizeof(es_block_q5_k)}, es_dequantize_q5_k},
    {{"Q6_K", ES_TYPE_Q6_K, ES_SUPERBLOCK, sizeof(es_block_q6_k)}, es_dequantize_q6_k},
    {{"IQ4_NL", ES_TYPE_IQ4_NL, ES_BLOCK, sizeof(es_block_iq4_nl)}, es_dequantize_iq4_nl},
    {{"IQ4_XS", ES_TYPE_IQ4_XS, ES_SUPERBLOCK, sizeof(es_block_iq4_xs)}, es_dequantize_iq4_xs},
    {{"MXFP4", ES_TYPE_MXFP4, ES_BLOCK, sizeof(es_block_mxfp4)}, es_dequantize_mxfp4},
};

enum { N_TYPES = sizeof types / sizeof *types };

int32_t es_type_count(void) { return N_TYPES; }

es_status es_type_at(int32_t index, es_type_info *out) {
    if (out == NULL) {
        return ES_ERR_NULL;
    }
    if (index < 0 || index >= N_TYPES) {
        return ES_ERR_LENGTH;
    }
    *out = types[index].info;
    return ES_OK;
}

static const quant_type *find_type(es_type type) {
    for (int32_t i = 0; i < N_TYPES; i++) {
        if (types[i].info.type == (int32_t)type) {
            return &types[i];
        }
    }
    return NULL;
}

es_status es_dequantize(es_type type, const void *src, size_t src_bytes, int64_t n_elements,
                        float *dst) {
    const quant_type *found = find_type(type);
    if (found == NULL) {
        return ES_ERR_TYPE;
    }
    if (n_elements < 0 || n_elements % found->info.block_elements != 0) {
        return ES_ERR_LENGTH;
    }
    const uint64_t n_blocks = (uint64_t)n_elements / (uint64_t)found->info.block_elements;
    const uint64_t block_bytes = (uint64_t)found->info.block_bytes;
    // Compared by division: n_blocks * block_bytes could wrap.
    if (src_bytes % block_bytes != 0 || src_bytes / block_bytes != n_blocks) {
        return ES_ERR_SIZE;
    }
    if (n_blocks == 0) {
        return ES_OK;
    }
    if (src == NULL || dst == NULL) {
        return ES_ERR_NULL;
    }
    if ((uintptr_t)dst % _Alignof(float) != 0) {
        return ES_ERR_ALIGNMENT;
    }
    found->dequantize(src, (size_t)n_blocks, dst);
    return ES_OK;
}
