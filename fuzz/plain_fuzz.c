/* Plain data: what decodes is encoded to something that decodes the same. The first byte
 * says whether it is a value or arguments. */
#include "base/cleanup.h"
#include "plain/value.h"

#include <assert.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct encoded {
    uint8_t *data;
    size_t len;
};

static struct muster_value *decode(bool arguments, const uint8_t *data, size_t len)
{
    struct ms_error err = {0};
    uint8_t *copy = ms_bytes_copy(data, len);

    assert(copy);
    return arguments ? ms_value_decode_arguments(copy, copy, len, &err)
                     : ms_value_decode(copy, copy, len, &err);
}

static struct encoded encode(bool arguments, const struct muster_value *v)
{
    struct iovec iov[MS_PLAIN_IOV_MAX];
    struct encoded out = {0};
    struct ms_plain_writer w;
    int count;

    ms_plain_writer_init(&w);
    if (arguments)
        ms_value_encode_arguments(&w, muster_list_at(v, 0), muster_list_at(v, 1));
    else
        ms_value_encode(&w, MS_PLAIN_ROOT, v);
    count = ms_plain_iov(&w, iov);
    assert(count >= 0);
    out.data = malloc(ms_plain_size(&w) + 1);
    assert(out.data);
    for (int i = 0; i < count; i++) {
        memcpy(out.data + out.len, iov[i].iov_base, iov[i].iov_len);
        out.len += iov[i].iov_len;
    }
    ms_plain_writer_finish(&w);
    return out;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct muster_value *v, *again, *copy;
    struct encoded first, second, third;
    bool arguments;

    if (size == 0)
        return 0;
    arguments = data[0] & 1;
    v = decode(arguments, data + 1, size - 1);
    if (!v)
        return 0;
    first = encode(arguments, v);
    again = decode(arguments, first.data, first.len);
    assert(again);
    second = encode(arguments, again);
    assert(first.len == second.len && memcmp(first.data, second.data, first.len) == 0);
    copy = muster_value_copy(v);
    assert(copy);
    third = encode(arguments, copy); /* a key that comes twice is once in it */
    assert(third.len <= first.len);
    muster_value_destroy(copy);
    muster_value_destroy(again);
    muster_value_destroy(v);
    free(first.data);
    free(second.data);
    free(third.data);
    return 0;
}
