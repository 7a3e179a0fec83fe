#include "resource/view.h"
#include "base/cleanup.h"

#include <errno.h>

/* A node with its first `count` devices. */
static struct ms_stock_node cut(const struct ms_stock_node *from, uint32_t count)
{
    struct ms_stock_node n = *from;

    if (count == n.device_count)
        return n;
    n.device_count = count;
    n.whole = 0;
    for (uint32_t i = 0; i < count; i++)
        n.whole += ms_device_is_free(&n.devices[i]);
    return n;
}

int ms_view_init(struct ms_view *v,
                 struct ms_stock *s,
                 const struct ms_scope_request *r,
                 struct ms_error *err)
{
    struct ms_view view = {.real = s, .stock = *s};
    int rc = ms_scope_init(&view.scope, s, r, NULL, err);

    if (rc < 0)
        return rc;
    view.stock.count = view.stock.capacity = view.scope.count;
    view.stock.nodes = calloc(view.scope.count + 1, sizeof *view.stock.nodes);
    view.whole = calloc(view.scope.count + 1, sizeof *view.whole);
    if (!view.stock.nodes || !view.whole) {
        free(view.stock.nodes);
        free(view.whole);
        ms_scope_finish(&view.scope);
        return ms_error_set(err, -ENOMEM, "out of memory");
    }
    for (size_t i = 0; i < view.scope.count; i++) {
        view.stock.nodes[i] =
            cut(&s->nodes[view.scope.nodes[i]], ms_scope_devices_of(&view.scope, i));
        view.whole[i] = view.stock.nodes[i].whole;
    }
    *v = view;
    return 0;
}

void ms_view_finish(struct ms_view *v)
{
    for (size_t i = 0; i < v->scope.count; i++) {
        struct ms_stock_node *n = &v->real->nodes[v->scope.nodes[i]];
        const struct ms_stock_node *seen = &v->stock.nodes[i];

        n->cpu_milli_held = seen->cpu_milli_held;
        n->memory_held = seen->memory_held;
        n->whole = n->whole - v->whole[i] + seen->whole;
    }
    free(v->stock.nodes);
    free(v->whole);
    ms_scope_finish(&v->scope);
    *v = (struct ms_view){0};
}
