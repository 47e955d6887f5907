// Texts as a GGUF file holds them: where each begins, and whether it is UTF-8.
#include <string.h>

#include "edgeserve.h"

enum { LENGTH_BYTES = 8 };

static const uint64_t TOP_BITS = 0x8080808080808080u;

static uint64_t load8(const uint8_t *bytes) {
    uint64_t value;
    memcpy(&value, bytes, sizeof value);
    return value;
}

// The bytes that follow a first byte of a character; -1 where no character begins so.
static int n_following(uint8_t first) {
    if (first < 0xC2 || first > 0xF4) {
        return -1;
    }
    return first < 0xE0 ? 1 : first < 0xF0 ? 2 : 3;
}

// Unicode 15, table 3-7: neither overlong forms, nor surrogates, nor beyond U+10FFFF.
static int second_is_right(uint8_t first, uint8_t second) {
    const uint8_t low = first == 0xE0 ? 0xA0 : first == 0xF0 ? 0x90 : 0x80;
    const uint8_t high = first == 0xED ? 0x9F : first == 0xF4 ? 0x8F : 0xBF;
    return low <= second && second <= high;
}

static int is_utf8(const uint8_t *text, size_t n_bytes) {
    size_t at = 0;
    while (at < n_bytes) {
        if (n_bytes - at >= 8 && (load8(text + at) & TOP_BITS) == 0) {
            at += 8;
            continue;
        }
        const uint8_t first = text[at++];
        if (first < 0x80) {
            continue;
        }
        const int n = n_following(first);
        if (n < 0 || n_bytes - at < (size_t)n || !second_is_right(first, text[at])) {
            return 0;
        }
        for (int i = 1; i < n; i++) {
            if ((text[at + (size_t)i] & 0xC0) != 0x80) {
                return 0;
            }
        }
        at += (size_t)n;
    }
    return 1;
}

es_status es_strings_find(const uint8_t *bytes, size_t n_bytes, int32_t n, size_t *position,
                          uint32_t *starts, int32_t *n_found) {
    if (bytes == NULL || position == NULL || starts == NULL || n_found == NULL) {
        return ES_ERR_NULL;
    }
    if (n < 0 || n_bytes > UINT32_MAX || *position > n_bytes) {
        return ES_ERR_LENGTH;
    }
    size_t at = *position;
    int32_t found = 0;
    while (found < n && n_bytes - at >= LENGTH_BYTES) {
        const uint64_t length = load8(bytes + at);
        const size_t start = at + LENGTH_BYTES;
        if (length > n_bytes - start || !is_utf8(bytes + start, (size_t)length)) {
            break;
        }
        starts[found++] = (uint32_t)start;
        at = start + (size_t)length;
    }
    *position = at;
    *n_found = found;
    return ES_OK;
}
