// One function per form of block, each turning n_blocks blocks of 16 rows into a panel's, in the
// order that lanes.h states. lanes.c, which takes panels apart again, says it plainly: these are
// the same permutations of bits, done to lines of 16 lanes at once.
#ifndef ES_QUANTS_PACK_H
#define ES_QUANTS_PACK_H

#include "quants/lanes.h"

es_pack_blocks es_pack_f32;
es_pack_blocks es_pack_f16; // and BF16

es_pack_blocks es_pack_q4_0; // and IQ4_NL
es_pack_blocks es_pack_q4_1;
es_pack_blocks es_pack_q5_0;
es_pack_blocks es_pack_q5_1;
es_pack_blocks es_pack_q8_0;
es_pack_blocks es_pack_mxfp4;

es_pack_blocks es_pack_q2_k;
es_pack_blocks es_pack_q3_k;
es_pack_blocks es_pack_q4_k;
es_pack_blocks es_pack_q5_k;
es_pack_blocks es_pack_q6_k;
es_pack_blocks es_pack_iq4_xs;

#endif
