/* tool.h - asking a head as a command does: it joins the head, and is no driver
 *
 * What is asked travels over a link (head.h): it is carried out and answered once, also if the
 * link breaks meanwhile, or the head is killed and started again. A patient tool waits for a
 * head that is away or not there yet, for MS_TOOL_BACK_NS; another one gives up when nobody
 * listens or the link breaks. One thread at a time.
 */
#ifndef MS_SESSION_TOOL_H
#define MS_SESSION_TOOL_H

#include "base/clock.h"
#include "head/head.h"

/* How long a head that is being started again may take. */
#define MS_TOOL_BACK_NS (30 * MS_NS_PER_S)

struct ms_tool {
    struct ms_head_address at; /* borrowed; with TLS where it wants that */
    bool is_patient;
    struct ms_head *head; /* NULL: it has not joined */
};

/* 0, also if it has joined before; else why not. */
int ms_tool_join(struct ms_tool *t, int64_t timeout_ns, struct ms_error *err);
void ms_tool_leave(struct ms_tool *t);

/* Join, and ask with the body `what` of a DriverToHead. The answer (NULL where that is Done) is
 * freed with protobuf_c_message_free_unpacked. 0; -EREMOTEIO: the head's own words and code;
 * else why it does not answer. */
int ms_tool_ask(struct ms_tool *t,
                Muster__DriverToHead__BodyCase what,
                const ProtobufCMessage *want,
                int64_t timeout_ns,
                ProtobufCMessage **answer,
                struct ms_error *err);

#endif
