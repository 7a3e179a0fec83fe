/* message.h - control messages as dicts, and back */
#ifndef MS_PYTHON_MESSAGE_H
#define MS_PYTHON_MESSAGE_H

#include "core.h"

#include <protobuf-c/protobuf-c.h>

/* Of a dict with the fields by their names; freed with protobuf_c_message_free_unpacked. NULL
 * with an exception set. */
ProtobufCMessage *core_message_parse(PyObject *dict,
                                     const ProtobufCMessageDescriptor *d);
/* All its fields; an absent message is None. NULL with an exception set. */
PyObject *core_message_dict(const ProtobufCMessage *m);

/* One field, of which there is one. */
PyObject *core_message_field(const ProtobufCMessage *m, const char *name);

#endif
