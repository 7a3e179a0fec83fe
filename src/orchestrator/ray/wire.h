/* wire.h - one message of a bridge's wire */
#ifndef MS_ORCHESTRATOR_RAY_WIRE_H
#define MS_ORCHESTRATOR_RAY_WIRE_H

#include "orchestrator/ray/relay.h"
#include "proto/muster.pb-c.h"
#include "wire/link/link.h"

/* How long both sides try again after a connection broke, beyond any grace. */
#define MS_BRIDGE_BROKEN_NS (30 * MS_NS_PER_S)
/* A connection from which nothing has come for so long is given up for a new one. */
#define MS_BRIDGE_QUIET_NS (10 * MS_NS_PER_S)
/* From its start until somebody is there. */
#define MS_BRIDGE_FIRST_NS (60 * MS_NS_PER_S)

/* "Here I am": the first of each side. */
int ms_wire_greet(struct ms_link *l, const struct ms_relay *r);
/* A line, and how far we have heard. */
int ms_wire_send(struct ms_link *l,
                 const struct ms_relay *r,
                 const struct ms_relayed *one);
/* How far we have heard, alone. */
int ms_wire_ack(struct ms_link *l, const struct ms_relay *r);
/* Everything that the other side has not acknowledged, again. */
void ms_wire_send_kept(struct ms_link *l, const struct ms_relay *r);

#endif
