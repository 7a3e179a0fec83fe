/* proto.c - copying and packing of control messages, whatever their type */
#include "base/proto.h"
#include "base/cleanup.h"

int ms_proto_pack(const ProtobufCMessage *m, struct ms_buf *out)
{
    int rc = ms_buf_reserve(out, protobuf_c_message_get_packed_size(m) + 1);

    if (rc == 0)
        out->len += protobuf_c_message_pack(m, out->data + out->len);
    return rc;
}

ProtobufCMessage *ms_proto_copy(const ProtobufCMessage *m)
{
    MS_CLEANUP(ms_buf_finish) struct ms_buf packed = {0};

    return ms_proto_pack(m, &packed) < 0
               ? NULL
               : protobuf_c_message_unpack(
                     m->descriptor, NULL, packed.len, packed.data);
}
