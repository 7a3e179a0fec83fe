/* copy.h - a control message of one's own */
#ifndef MS_CLUSTER_COPY_H
#define MS_CLUSTER_COPY_H

#include <protobuf-c/protobuf-c.h>

/* A deep copy, freed with protobuf_c_message_free_unpacked(m, NULL). NULL: out of
 * memory. */
ProtobufCMessage *ms_proto_copy(const ProtobufCMessage *m);

#endif
