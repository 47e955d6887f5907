// Weights in the core's own layout: the API edge, memory, and repacking panel by panel.
#include <stdlib.h>
#include <string.h>

#include "kernels/weight.h"
#include "quants/lanes.h"
#include "runtime/os.h"

enum { HUGE_PAGE = 2 << 20 };

es_activation_kind es_weight_activation(es_type type) {
    switch (es_lane_layout_of(type)->block_elements) {
    case 32:
        return ES_ACT_Q32;
    case 256:
        return ES_ACT_Q256;
    default:
        return ES_ACT_F32;
    }
}

es_status es_weight_create(es_type type, int64_t n_rows, int64_t n_cols, es_weight **out) {
    if (out == NULL) {
        return ES_ERR_NULL;
    }
    const es_lane_layout *layout = es_lane_layout_of(type);
    if (layout == NULL) {
        return ES_ERR_TYPE;
    }
    if (n_rows < 1 || n_cols < 1 || n_cols % layout->block_elements != 0) {
        return ES_ERR_LENGTH;
    }
    const int64_t block_bytes = (int64_t)layout->block_bytes * ES_PANEL_LANES;
    const int64_t n_blocks = n_cols / layout->block_elements;
    if (n_blocks > INT64_MAX / block_bytes || n_rows > INT64_MAX - (ES_PANEL_LANES - 1)) {
        return ES_ERR_MEMORY;
    }
    const int64_t panel_bytes = n_blocks * block_bytes;
    const int64_t n_panels = (n_rows + ES_PANEL_LANES - 1) / ES_PANEL_LANES;
    if (n_panels > INT64_MAX / panel_bytes ||
        (uint64_t)(n_panels * panel_bytes) > SIZE_MAX - HUGE_PAGE) {
        return ES_ERR_MEMORY;
    }
    es_weight *weight = malloc(sizeof *weight);
    if (weight == NULL) {
        return ES_ERR_MEMORY;
    }
    *weight = (es_weight){type, n_rows, n_cols, n_panels, panel_bytes, NULL};
    const size_t bytes = (size_t)es_weight_bytes(weight);
    // Small weights too: the system joins neighbouring maps, and their huge pages span them.
    weight->data = es_os_pages(bytes, 1);
    if (weight->data == NULL) {
        free(weight);
        return ES_ERR_MEMORY;
    }
    *out = weight;
    return ES_OK;
}

int64_t es_weight_bytes(const es_weight *weight) {
    return weight == NULL ? 0 : weight->n_panels * weight->panel_bytes;
}

void es_weight_free(es_weight *weight) {
    if (weight != NULL) {
        es_os_pages_free(weight->data, (size_t)es_weight_bytes(weight));
        free(weight);
    }
}

// Repacks up to 16 rows; lanes without a row are zero.
static void fill_panel(const es_lane_layout *layout, const uint8_t *src, int64_t n_rows,
                       int64_t n_blocks, uint8_t *panel) {
    static const uint8_t zeros[ES_LANE_MAX];
    const size_t block_bytes = (size_t)layout->block_bytes;
    const size_t row_bytes = (size_t)n_blocks * block_bytes;
    const uint8_t *rows[ES_PANEL_LANES];
    for (int64_t lane = 0; lane < ES_PANEL_LANES; lane++) {
        rows[lane] = lane < n_rows ? src + (size_t)lane * row_bytes : zeros;
    }
    if (n_rows >= ES_PANEL_LANES) {
        layout->pack(rows, n_blocks, panel);
        return;
    }
    for (int64_t block = 0; block < n_blocks; block++) {
        layout->pack(rows, 1, panel + (size_t)block * block_bytes * ES_PANEL_LANES);
        for (int64_t lane = 0; lane < n_rows; lane++) {
            rows[lane] += block_bytes;
        }
    }
}

es_status es_weight_fill(es_weight *weight, int64_t first_row, int64_t n_rows, const void *src,
                         size_t src_bytes) {
    if (weight == NULL || src == NULL) {
        return ES_ERR_NULL;
    }
    if (first_row < 0 || n_rows < 0 || first_row > weight->n_rows ||
        n_rows > weight->n_rows - first_row || first_row % ES_PANEL_LANES != 0 ||
        (n_rows % ES_PANEL_LANES != 0 && first_row + n_rows != weight->n_rows)) {
        return ES_ERR_RANGE;
    }
    const es_lane_layout *layout = es_lane_layout_of(weight->type);
    const int64_t n_blocks = weight->n_cols / layout->block_elements;
    const size_t row_bytes = (size_t)n_blocks * (size_t)layout->block_bytes;
    if (src_bytes % row_bytes != 0 || src_bytes / row_bytes != (size_t)n_rows) {
        return ES_ERR_SIZE;
    }
    for (int64_t row = 0; row < n_rows; row += ES_PANEL_LANES) {
        uint8_t *panel = weight->data + (first_row + row) / ES_PANEL_LANES * weight->panel_bytes;
        fill_panel(layout, (const uint8_t *)src + (size_t)row * row_bytes, n_rows - row, n_blocks,
                   panel);
    }
    return ES_OK;
}

void es_weight_row(const es_weight *weight, int64_t row, float *out) {
    const es_lane_layout *layout = es_lane_layout_of(weight->type);
    const uint8_t *at = weight->data + row / ES_PANEL_LANES * weight->panel_bytes;
    const size_t block_bytes = (size_t)layout->block_bytes;
    uint8_t block[ES_LANE_MAX];
    for (int64_t k = 0; k < weight->n_cols; k += layout->block_elements) {
        es_panel_block_unpack(layout, at, (int)(row % ES_PANEL_LANES), block);
        es_dequantize(weight->type, block, block_bytes, layout->block_elements, out + k);
        at += block_bytes * ES_PANEL_LANES;
    }
}
