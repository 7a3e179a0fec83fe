/* file_workers.c - what a role of a job says of its workers */
#include "base/cleanup.h"
#include "dispatch/mesh.h"
#include "job/file_impl.h"

#include <stddef.h>
#include <string.h>

/* Muster's own drivers take these from the role's JSON (ms_job_roles_json); here they are, but for the class,
 * only checked, where line and column are known. */

int ms_job_read_class(struct ms_yaml_at at, void *out, struct ms_error *err)
{
    const char *text = ms_yaml_text(at);

    if (text && strpbrk(text, ".:"))
        return ms_yaml_to_text(at, out, err);
    return ms_yaml_fail(at,
                        err,
                        "'worker_cls' must be a text such as package.module.Class or "
                        "library.so:symbol");
}

int ms_job_read_list(struct ms_yaml_at at, void *out, struct ms_error *err)
{
    (void)out;
    return ms_yaml_is_list(at) ? 0 : ms_yaml_fail(at, err, "a list is wanted here");
}

/* One text, or a list of them. */
int ms_job_read_words(struct ms_yaml_at at, void *out, struct ms_error *err)
{
    (void)out;
    if (!ms_yaml_is_list(at))
        return ms_yaml_text(at) ? 0
                                : ms_yaml_fail(at, err, "a text or a list of texts");
    for (size_t i = 0; i < ms_yaml_count(at); i++)
        if (!ms_yaml_text(ms_yaml_item(at, i)))
            return ms_yaml_fail(ms_yaml_item(at, i), err, "a text is wanted here");
    return 0;
}

int ms_job_read_named(struct ms_yaml_at at, void *out, struct ms_error *err)
{
    (void)out;
    return ms_yaml_is_map(at)
               ? 0
               : ms_yaml_fail(at, err, "a map of names and values is wanted here");
}

int ms_job_read_variables(struct ms_yaml_at at, void *out, struct ms_error *err)
{
    int rc = ms_job_read_named(at, out, err);

    for (size_t i = 0; i < ms_yaml_count(at) && rc == 0; i++) {
        const char *name = ms_yaml_text(ms_yaml_key(at, i));

        if (!name || !*name || strchr(name, '='))
            rc = ms_yaml_fail(ms_yaml_key(at, i), err, "no name of a variable");
        else if (!ms_yaml_text(ms_yaml_value(at, i)) ||
                 ms_yaml_is_null(ms_yaml_value(at, i)))
            rc = ms_yaml_fail(
                ms_yaml_value(at, i), err, "the value of %s must be a text", name);
    }
    return rc;
}

int ms_job_read_start(struct ms_yaml_at at, void *out, struct ms_error *err)
{
    const char *text = ms_yaml_is_list(at) ? NULL : ms_yaml_text(at);

    if (text ? !strcmp(text, "fork") || !strcmp(text, "exec") : ms_yaml_count(at) > 0)
        return ms_job_read_words(at, out, err);
    return ms_yaml_fail(at, err, "'start' must be fork, exec or a command (a list)");
}

int ms_job_read_visible(struct ms_yaml_at at, void *out, struct ms_error *err)
{
    const char *text = ms_yaml_text(at);

    (void)out;
    if (text && (!strcmp(text, "own") || !strcmp(text, "node")))
        return 0;
    return ms_yaml_fail(at, err, "'visible' must be own or node");
}

int ms_job_read_some(struct ms_yaml_at at, void *out, struct ms_error *err)
{
    uint64_t milli = 0;
    int rc = ms_yaml_to_milli(at, &milli, err);

    (void)out;
    return rc < 0 || milli ? rc : ms_yaml_fail(at, err, "more than 0 is wanted here");
}

int ms_job_read_flag(struct ms_yaml_at at, void *out, struct ms_error *err)
{
    bool flag;

    (void)out;
    return ms_yaml_to_bool(at, &flag, err);
}

static const struct ms_yaml_field mesh_fields[] = {
    {"tp", ms_yaml_to_count, offsetof(struct ms_mesh, tp), false},
    {"cp", ms_yaml_to_count, offsetof(struct ms_mesh, cp), false},
    {"dp", ms_yaml_to_count, offsetof(struct ms_mesh, dp), false},
    {"pp", ms_yaml_to_count, offsetof(struct ms_mesh, pp), false},
    {"ep", ms_yaml_to_count, offsetof(struct ms_mesh, ep), false},
    {0},
};

int ms_job_check_mesh(struct ms_yaml_at at, uint32_t world_size, struct ms_error *err)
{
    struct ms_mesh mesh = {0};
    int rc = ms_yaml_map(at, "a mesh", mesh_fields, &mesh, err);

    return rc < 0 ? rc : ms_yaml_blame(at, ms_mesh_fit(&mesh, world_size, err), err);
}
