// The inputs of products: rows brought into the forms that weights of each type read.
#include "plan/executor.h"

int es_forms_of(const es_executor *executor, const es_linear *linear) {
    int forms = 1 << es_weight_activation(executor->plan.weights[linear->weight]->type);
    if (linear->up_weight >= 0) {
        forms |= 1 << es_weight_activation(executor->plan.weights[linear->up_weight]->type);
    }
    return forms;
}

void es_prepare(const es_kernels *kernels, const float *x, int64_t n_cols, int forms,
                const es_prepared *into, int64_t row) {
    const int64_t at = row * into->stride;
    if ((forms & 1 << ES_ACT_F32) && x != into->x + at) {
        kernels->scale(x, 1.0f, n_cols, into->x + at);
    }
    if (forms & 1 << ES_ACT_Q32) {
        kernels->quantize_32(x, n_cols, into->q32 + at, into->d32 + at / 32, into->s32 + at / 32);
    }
    if (forms & 1 << ES_ACT_Q256) {
        kernels->quantize_256(x, n_cols, into->q256 + at, into->d256 + at / 256,
                              into->sums256 + at / 16);
    }
}

es_activation es_prepared_rows(const es_prepared *input, es_type type, int64_t row) {
    const int64_t stride = input->stride, at = row * stride;
    if (es_weight_activation(type) == ES_ACT_Q256) {
        return (es_activation){.q = input->q256 + at,
                               .d = input->d256 + at / 256,
                               .sums = input->sums256 + at / 16,
                               .stride_q = stride,
                               .stride_d = stride / 256};
    }
    return (es_activation){.x = input->x + at,
                           .q = input->q32 + at,
                           .d = input->d32 + at / 32,
                           .s = input->s32 + at / 32,
                           .stride_x = stride,
                           .stride_q = stride,
                           .stride_d = stride / 32};
}
