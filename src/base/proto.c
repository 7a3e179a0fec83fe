/* proto.c - copying, packing and filling of messages, whatever their type */
#include "base/proto.h"
#include "base/cleanup.h"

#include <string.h>

int ms_proto_pack(const ProtobufCMessage *m, struct ms_buf *out)
{
    int rc = ms_buf_reserve(out, protobuf_c_message_get_packed_size(m) + 1);

    if (rc == 0)
        out->len += protobuf_c_message_pack(m, out->data + out->len);
    return rc;
}

uint8_t *ms_proto_packed(const ProtobufCMessage *m, size_t *len)
{
    struct ms_buf out = {0};
    int rc = ms_proto_pack(m, &out);

    *len = out.len;
    return rc < 0 ? NULL : out.data;
}

ProtobufCMessage *ms_proto_copy(const ProtobufCMessage *m)
{
    MS_CLEANUP(ms_buf_finish) struct ms_buf packed = {0};

    return ms_proto_pack(m, &packed) < 0
               ? NULL
               : protobuf_c_message_unpack(
                     m->descriptor, NULL, packed.len, packed.data);
}

ProtobufCMessage *ms_proto_create(const ProtobufCMessageDescriptor *d)
{
    ProtobufCMessage *m = calloc(1, d->sizeof_message);

    if (m)
        protobuf_c_message_init(d, m);
    return m;
}

bool ms_proto_set_text(char **field, const char *text)
{
    char *copy;

    if (!text || !text[0])
        return true; /* as the empty text of the descriptor, which is never freed */
    copy = strdup(text);
    if (copy)
        *field = copy;
    return copy;
}

bool ms_proto_append(void *list, size_t *count, void *item)
{
    bool is_full = (*count & (*count - 1)) == 0; /* room for 1, 2, 4, ... */
    void **all = *(void **)list;

    if (item && is_full)
        all = realloc(all, (*count ? 2 * *count : 1) * sizeof *all);
    if (!item || !all) {
        protobuf_c_message_free_unpacked(item, NULL);
        return false;
    }
    *(void **)list = all;
    all[(*count)++] = item;
    return true;
}
