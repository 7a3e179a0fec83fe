/* roles_entry.c - the key from which a job's driver learns what its file says of the roles */
#include "head/jobs/roles_entry.h"
#include "base/cleanup.h"
#include "head/head_impl.h"
#include "head/jobs/hosted.h"
#include "head/kv/kv_ask.h"

#include <errno.h>
#include <string.h>

enum { KEY_ROOM = sizeof MS_KV_JOB + MS_NAME_MAX + 2 };

static void roles_key(const struct ms_hosted *job, char out[KEY_ROOM])
{
    snprintf(out, KEY_ROOM, MS_KV_JOB "/%s", job->name);
}

int ms_roles_entry_put(const struct ms_hosted *job, struct ms_error *err)
{
    struct ms_head *h = job->jobs->head;
    json_t *roles = ms_job_roles_json(
        &job->file, job->submit->file[0] ? job->submit->file : "job.yaml");
    MS_CLEANUP(ms_cleanup_free)
    char *text = roles ? json_dumps(roles, JSON_COMPACT) : NULL;
    char key[KEY_ROOM];
    int rc;

    json_decref(roles);
    if (!text)
        return ms_error_set(err, -ENOMEM, "out of memory");
    roles_key(job, key);
    rc = ms_kv_put(&h->kv.store,
                   &(struct ms_kv_put){.key = key,
                                       .value = (const uint8_t *)text,
                                       .len = strlen(text),
                                       .owner = {MS_KV_NONE, 0}},
                   err);
    if (rc < 0)
        return rc;
    ms_head_kv_changed(h);
    return 0;
}

void ms_roles_entry_delete(const struct ms_hosted *job)
{
    struct ms_head *h = job->jobs->head;
    char key[KEY_ROOM];

    roles_key(job, key);
    if (ms_kv_delete(&h->kv.store, key))
        ms_head_kv_changed(h);
}
