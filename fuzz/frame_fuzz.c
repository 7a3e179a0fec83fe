/* Frames: whatever decodes is encoded to the same bytes (but for flags of a newer version,
 * which are passed over), and within its limits. */
#include "base/limits.h"
#include "wire/frame.h"

#include <assert.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    for (; size >= MS_FRAME_SIZE; data += MS_FRAME_SIZE, size -= MS_FRAME_SIZE) {
        uint8_t again[MS_FRAME_SIZE], known[MS_FRAME_SIZE];
        struct ms_error err = {0};
        struct ms_frame f;

        if (ms_frame_decode(data, &f, &err) < 0) {
            assert(err.code < 0 && err.text[0]);
            continue;
        }
        assert(f.length <= MS_CHUNK_MAX);
        assert(f.total <= ms_frame_total_max(f.kind));
        ms_frame_encode(&f, again);
        memcpy(known, data, sizeof known);
        known[7] = 0; /* the upper byte of the flags */
        assert(memcmp(again, known, sizeof again) == 0);
    }
    return 0;
}
