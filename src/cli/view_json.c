#include "cli/view.h"

json_t *ms_view_nodes(const Muster__Status *s)
{
    json_t *list = json_array();

    for (size_t i = 0; i < s->n_nodes; i++)
        json_array_append_new(list, ms_view_node(s->nodes[i]));
    return list;
}

json_t *ms_view_clusters(const Muster__Status *s)
{
    json_t *list = json_array();

    for (size_t i = 0; i < s->n_clusters; i++)
        json_array_append_new(list, ms_view_cluster(s->clusters[i]));
    return list;
}

json_t *ms_view_workers(const Muster__Status *s)
{
    json_t *list = json_array();

    for (size_t i = 0; i < s->n_clusters; i++)
        for (size_t k = 0; k < s->clusters[i]->n_workers; k++)
            json_array_append_new(
                list, ms_view_worker(s->clusters[i]->name, s->clusters[i]->workers[k]));
    return list;
}

json_t *ms_view_drivers(const Muster__Status *s)
{
    json_t *list = json_array();

    for (size_t i = 0; i < s->n_drivers; i++)
        json_array_append_new(list, ms_view_driver(s->drivers[i]));
    return list;
}

json_t *ms_view_groups(const Muster__Status *s)
{
    json_t *list = json_array();

    for (size_t i = 0; i < s->n_groups; i++)
        json_array_append_new(list, ms_view_group(s->groups[i]));
    return list;
}
