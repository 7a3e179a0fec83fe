#include "orchestrator/ray/wire.h"

static int send(struct ms_link *l, const Muster__BridgeMessage *m)
{
    return ms_link_send(l, &m->base);
}

int ms_wire_greet(struct ms_link *l, const struct ms_relay *r)
{
    Muster__BridgeMessage m = MUSTER__BRIDGE_MESSAGE__INIT;

    m.instance = r->instance;
    m.heard = r->heard;
    return send(l, &m);
}

int ms_wire_send(struct ms_link *l,
                 const struct ms_relay *r,
                 const struct ms_relayed *one)
{
    Muster__BridgeMessage m = MUSTER__BRIDGE_MESSAGE__INIT;

    m.heard = r->heard;
    m.number = one->number;
    m.line.data = (uint8_t *)(uintptr_t)one->line;
    m.line.len = one->len;
    return send(l, &m);
}

int ms_wire_ack(struct ms_link *l, const struct ms_relay *r)
{
    Muster__BridgeMessage m = MUSTER__BRIDGE_MESSAGE__INIT;

    m.heard = r->heard;
    return send(l, &m);
}

void ms_wire_send_kept(struct ms_link *l, const struct ms_relay *r)
{
    ms_list_each (one, &r->kept, struct ms_relayed, link)
        if (ms_wire_send(l, r, one) < 0)
            return; /* it closes, and all begins again */
}
