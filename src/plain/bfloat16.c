/* bfloat16.c - bfloat16 as float32 and back: numpy and JSON have only the latter */
#include "plain/plain.h"

#include <endian.h>
#include <string.h>

static uint16_t brain_of(uint32_t bits)
{
    if ((bits & 0x7fffffffu) > 0x7f800000u)
        return (uint16_t)(bits >> 16 | 0x40); /* not a number, and stays none */
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

void ms_bfloat16_narrow(const uint8_t *data, size_t count, uint8_t *out)
{
    for (size_t i = 0; i < count; i++) {
        uint32_t wide;
        uint16_t brain;

        memcpy(&wide, data + i * sizeof wide, sizeof wide);
        brain = htole16(brain_of(le32toh(wide)));
        memcpy(out + i * sizeof brain, &brain, sizeof brain);
    }
}

void ms_bfloat16_widen(const uint8_t *data, size_t count, uint8_t *out)
{
    for (size_t i = 0; i < count; i++) {
        uint16_t brain;
        uint32_t wide;

        memcpy(&brain, data + i * sizeof brain, sizeof brain);
        wide = htole32((uint32_t)le16toh(brain) << 16);
        memcpy(out + i * sizeof wide, &wide, sizeof wide);
    }
}
