/* What a tensor costs on its way to and from storage besides the transfer, if it is packed there.
 *
 * About half of the words are zeros: those of negative numbers, of which there are as many among
 * random ones. */
#include "packing.h"

#include "internal.h"
#include "kernels.h"

enum { RING = 128 }; /* words: a page of 512 bytes, the smallest of a card */

static jw_packing packing_of(const jw_call *call, uint32_t *ring) {
    const jw_packing tensor = {call->writes[0], (uint32_t)call->attributes[0], ring, RING};
    return tensor;
}

void jw_packing_page_out(const jw_call *call) {
    uint32_t ring[RING];
    const jw_packing tensor = packing_of(call, ring);
    const jw_packed *bits = call->reads[0];
    for (uint32_t i = 0; i < tensor.count; i++) { /* as many processors have no floats */
        tensor.words[i] = bits[i] >> 31 ? 0 : bits[i];
    }
    const uint32_t packed = jw_packed_words(tensor.words, tensor.count, RING);
    if (packed < tensor.count) {
        jw_pack(&tensor);
        jw_unpack(&tensor, packed);
    }
}

void jw_packing_page_in(const jw_call *call) {
    const uint32_t every_second = 0x55555555u;
    uint32_t ring[RING];
    const jw_packing tensor = packing_of(call, ring);
    const jw_packed *bits = call->reads[0];
    if (tensor.count < JW_PACKED_TOGETHER) { /* packed, it would not be shorter */
        memmove(tensor.words, bits, tensor.count * sizeof *bits);
        return;
    }
    uint32_t packed = 0;
    for (uint32_t first = 0; first < tensor.count; first += JW_PACKED_TOGETHER) {
        const uint32_t count = jw_packed_block(tensor.count, first);
        const uint32_t bitmap = every_second >> ((JW_PACKED_TOGETHER - count) & ~1u);
        for (uint32_t i = 0; i < (count + 1) / 2; i++) {
            tensor.words[packed++] = bits[first + i];
        }
        tensor.words[packed++] = bitmap;
    }
    jw_unpack(&tensor, packed);
}
