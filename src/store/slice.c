/* slice.c - the numbers of objects and slices */
#include "store/slice.h"

#define IS_SLICE (UINT64_C(1) << 63)

/* Of 64 bits others, all of them different. */
static uint64_t mix(uint64_t x)
{
    x = (x ^ (x >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
    x = (x ^ (x >> 27)) * UINT64_C(0x94D049BB133111EB);
    return x ^ (x >> 31);
}

uint64_t ms_slice_id(uint64_t of, uint64_t offset, uint64_t len)
{
    uint64_t id = mix(of + UINT64_C(0x9E3779B97F4A7C15));

    id = mix(id + offset + UINT64_C(0x9E3779B97F4A7C15));
    return mix(id + len + UINT64_C(0x9E3779B97F4A7C15)) | IS_SLICE;
}

bool ms_slice_is(uint64_t id)
{
    return id & IS_SLICE;
}

uint64_t ms_object_key(uint64_t node, uint64_t id)
{
    uint64_t key = node ^ (id * UINT64_C(0x9E3779B97F4A7C15));

    return key ? key : 1;
}
