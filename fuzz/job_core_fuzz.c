/* Records and snapshots of a job's journal: any bytes are refused or read, and what was read
 * is written again as it was. Also with the right check behind the bytes, or nothing beyond
 * it would be reached. */
#include "job/core/core_impl.h"

#include <assert.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void read_event(const uint8_t *data, size_t size)
{
    struct ms_job_event_read r;
    struct ms_buf again = {0};

    if (ms_job_event_decode(&r, data, size, NULL) < 0)
        return;
    if (ms_job_event_encode(&r.event, &again) == 0 && data[1] == again.data[1])
        assert(again.len == size && memcmp(again.data, data, size) == 0);
    ms_buf_finish(&again);
    ms_job_event_read_finish(&r);
}

static void read_snapshot(const uint8_t *data, size_t size)
{
    struct ms_job_core *c = ms_job_core_decode(data, size, NULL);
    struct ms_buf again = {0};

    if (!c)
        return;
    if (ms_job_core_encode(c, &again) == 0 && data[1] == again.data[1])
        assert(again.len == size && memcmp(again.data, data, size) == 0);
    ms_buf_finish(&again);
    ms_job_core_destroy(c);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct ms_buf sealed = {0};
    struct ms_core_codec k = {.out = &sealed};

    read_event(data, size);
    read_snapshot(data, size);
    if (ms_buf_append(&sealed, data, size) == 0 && ms_core_codec_seal(&k, 0) == 0) {
        read_event(sealed.data, sealed.len);
        read_snapshot(sealed.data, sealed.len);
    }
    ms_buf_finish(&sealed);
    return 0;
}
