/* curl_api.c - loads libcurl, once */
#include "orchestrator/ray/job/curl_api.h"

#include "base/cleanup.h"

#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stddef.h>
#include <string.h>

/* A wheel brings its own, with another name than that of the system's. */
static const char *const libraries[] = {"libmuster-curl.so", "libcurl.so.4"};

static struct ms_curl_api api;
static struct ms_error problem;
static pthread_once_t once = PTHREAD_ONCE_INIT;

/* Where each function goes. */
static const struct {
    const char *name;
    size_t offset;
} functions[] = {
    {"curl_easy_init", offsetof(struct ms_curl_api, easy_init)},
    {"curl_easy_setopt", offsetof(struct ms_curl_api, easy_set)},
    {"curl_easy_getinfo", offsetof(struct ms_curl_api, easy_get)},
    {"curl_easy_reset", offsetof(struct ms_curl_api, easy_reset)},
    {"curl_easy_cleanup", offsetof(struct ms_curl_api, easy_cleanup)},
    {"curl_easy_strerror", offsetof(struct ms_curl_api, easy_strerror)},
    {"curl_slist_append", offsetof(struct ms_curl_api, slist_append)},
    {"curl_slist_free_all", offsetof(struct ms_curl_api, slist_free)},
    {"curl_multi_init", offsetof(struct ms_curl_api, multi_init)},
    {"curl_multi_add_handle", offsetof(struct ms_curl_api, multi_add)},
    {"curl_multi_remove_handle", offsetof(struct ms_curl_api, multi_remove)},
    {"curl_multi_perform", offsetof(struct ms_curl_api, multi_perform)},
    {"curl_multi_poll", offsetof(struct ms_curl_api, multi_poll)},
    {"curl_multi_wakeup", offsetof(struct ms_curl_api, multi_wakeup)},
    {"curl_multi_info_read", offsetof(struct ms_curl_api, multi_read)},
    {"curl_multi_cleanup", offsetof(struct ms_curl_api, multi_cleanup)},
};

static void load(void)
{
    CURLcode (*global_init)(long flags);
    void *library = NULL;

    for (size_t i = 0; i < MS_COUNT(libraries) && !library; i++)
        library = dlopen(libraries[i], RTLD_NOW | RTLD_LOCAL);
    if (!library) {
        ms_error_set(&problem,
                     -ENOPKG,
                     "HTTP needs libcurl on this machine, and it cannot be loaded "
                     "(%s): install the package libcurl4",
                     dlerror());
        return;
    }
    for (size_t i = 0; i < MS_COUNT(functions); i++) {
        void *at = dlsym(library, functions[i].name);

        if (!at) {
            ms_error_set(&problem,
                         -ENOPKG,
                         "the libcurl of this machine has no %s",
                         functions[i].name);
            return;
        }
        memcpy((char *)&api + functions[i].offset, &at, sizeof at);
    }
    *(void **)&global_init = dlsym(library, "curl_global_init");
    if (!global_init || global_init(CURL_GLOBAL_DEFAULT) != CURLE_OK)
        ms_error_set(&problem, -ENOPKG, "the libcurl of this machine does not start");
}

const struct ms_curl_api *ms_curl_api(struct ms_error *err)
{
    pthread_once(&once, load);
    if (problem.code == 0)
        return &api;
    ms_error_set(err, problem.code, "%s", problem.text);
    return NULL;
}
