// Storing keys and values in KV blocks. Included after a set's simd.h.
#ifndef ES_KERNELS_GENERIC_KV_STORE_H
#define ES_KERNELS_GENERIC_KV_STORE_H

#include <math.h>
#include <stdint.h>
#include <string.h>

#include "kernels/generic/rows.h"
#include "kernels/kv_block.h"

// --- halfs ---------------------------------------------------------------------------------------

static void store_key_halfs(const float *k, int64_t key_size, uint16_t *block, int64_t slot) {
    for (int64_t i = 0; i < key_size; i += 16) {
        const int64_t left = key_size - i < 16 ? key_size - i : 16;
        uint16_t halfs[16];
        f16_store(halfs, load_at(k, i, key_size));
        for (int64_t j = 0; j < left; j++) {
            block[16 * (i + j) + slot] = halfs[j];
        }
    }
}

static void store_value_halfs(const float *v, int64_t value_size, uint16_t *block, int64_t slot) {
    uint16_t *row = block + slot * value_size;
    for (int64_t i = 0; i < value_size; i += 16) {
        if (value_size - i >= 16) {
            f16_store(row + i, f32_load(v + i));
        } else {
            f16_store_part(row + i, f32_load_part(v + i, value_size - i), value_size - i);
        }
    }
}

// --- integers ------------------------------------------------------------------------------------

// The scale of a group before it is rounded to a half; NaN for one that cannot be scaled.
SIMD_LONG float kv_scale(es_kv_type type, f32x16 low, f32x16 high) {
    const f32x16 parts[2] = {low, high};
    const float amax = largest_magnitude(parts, 2);
    if (!(amax < INFINITY)) {
        return NAN;
    }
    if (type == ES_KV_Q8_0) {
        return amax / 127.0f;
    }
    const float most = f32_reduce_max(f32_max(low, high));
    const float least = -f32_reduce_max(f32_max(f32_neg(low), f32_neg(high)));
    return amax == 0.0f ? 0.0f : (most > -least ? most : least) / -8.0f;
}

// Up to 32 elements: their integers, and the half that is their scale.
static uint16_t quantize_kv(es_kv_type type, const float *x, int64_t n, int8_t *q) {
    const f32x16 low = n >= 16 ? f32_load(x) : f32_load_part(x, n);
    const f32x16 high = n >= 32  ? f32_load(x + 16)
                        : n > 16 ? f32_load_part(x + 16, n - 16)
                                 : f32_zero();
    uint16_t halfs[16];
    float widened[16];
    f16_store(halfs, f32_splat(kv_scale(type, low, high)));
    f32_store(widened, f16_load(halfs));
    const float d = widened[0];
    if (!(fabsf(d) < INFINITY) || d == 0.0f) {
        memset(q, 0, ES_KV_GROUP);
        return d == 0.0f ? halfs[0] : 0x7e00;
    }
    const f32x16 factor = f32_splat(1.0f / d);
    const f32x16 most = f32_splat(type == ES_KV_Q8_0 ? 127.0f : 7.0f);
    const f32x16 least = f32_splat(type == ES_KV_Q8_0 ? -127.0f : -8.0f);
    i32_store_i8(q, f32_to_i32(f32_max(f32_min(f32_mul(low, factor), most), least)));
    i32_store_i8(q + 16, f32_to_i32(f32_max(f32_min(f32_mul(high, factor), most), least)));
    return halfs[0];
}

static void store_key_integers(es_kv_type type, const float *k, int64_t size, uint8_t *block,
                               int64_t slot) {
    uint16_t *scales = (uint16_t *)block;
    uint8_t *into = block + es_kv_scale_bytes(size) + slot;
    for (int64_t g = 0; g < es_kv_groups(size); g++, into += es_kv_group_bytes(type)) {
        int8_t q[ES_KV_GROUP];
        scales[g * ES_KV_BLOCK + slot] =
            quantize_kv(type, k + g * ES_KV_GROUP, size - g * ES_KV_GROUP, q);
        for (int i = 0; type == ES_KV_Q8_0 && i < ES_KV_GROUP; i++) {
            into[i * ES_KV_BLOCK] = (uint8_t)q[i];
        }
        for (int i = 0; type == ES_KV_Q4_0 && i < ES_KV_GROUP / 2; i++) {
            into[i * ES_KV_BLOCK] = (uint8_t)((q[2 * i] + 8) | (q[2 * i + 1] + 8) << 4);
        }
    }
}

static void store_value_integers(es_kv_type type, const float *v, int64_t size, uint8_t *block,
                                 int64_t slot) {
    uint16_t *scales = (uint16_t *)block;
    const int64_t n_bytes = es_kv_group_bytes(type);
    uint8_t *into = block + es_kv_scale_bytes(size) + slot * n_bytes / ES_KV_BLOCK;
    for (int64_t g = 0; g < es_kv_groups(size); g++, into += n_bytes) {
        int8_t q[ES_KV_GROUP];
        scales[g * ES_KV_BLOCK + slot] =
            quantize_kv(type, v + g * ES_KV_GROUP, size - g * ES_KV_GROUP, q);
        if (type == ES_KV_Q8_0) {
            memcpy(into, q, ES_KV_GROUP);
            continue;
        }
        for (int i = 0; i < ES_KV_GROUP / 2; i++) {
            into[i] = (uint8_t)((q[i] + 8) | (q[i + 16] + 8) << 4);
        }
    }
}

// --- the table's functions -----------------------------------------------------------------------

static void store_key(es_kv_type type, const float *k, int64_t key_size, void *block,
                      int64_t slot) {
    if (type == ES_KV_F16) {
        store_key_halfs(k, key_size, block, slot);
    } else {
        store_key_integers(type, k, key_size, block, slot);
    }
}

static void store_value(es_kv_type type, const float *v, int64_t value_size, void *block,
                        int64_t slot) {
    if (type == ES_KV_F16) {
        store_value_halfs(v, value_size, block, slot);
    } else {
        store_value_integers(type, v, value_size, block, slot);
    }
}

#endif
