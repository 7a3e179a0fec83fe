/* proto.h - control messages of any type: copied and packed */
#ifndef MS_BASE_PROTO_H
#define MS_BASE_PROTO_H

#include "base/buf.h"

#include <protobuf-c/protobuf-c.h>

/* A deep copy, freed with protobuf_c_message_free_unpacked(m, NULL). NULL: out of
 * memory. */
ProtobufCMessage *ms_proto_copy(const ProtobufCMessage *m);

/* Append the packed message. 0 or -ENOMEM. */
int ms_proto_pack(const ProtobufCMessage *m, struct ms_buf *out);

#endif
