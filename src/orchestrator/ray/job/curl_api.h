/* curl_api.h - libcurl, loaded when it is first needed
 *
 * Only controllers of far engines speak HTTP as clients. libcurl brings some thirty other
 * libraries with it, which every worker and every command would load at its start, and
 * which would go into the package for the cluster: so it is not linked.
 */
#ifndef MS_ORCHESTRATOR_RAY_JOB_CURL_API_H
#define MS_ORCHESTRATOR_RAY_JOB_CURL_API_H

#include "base/error.h"

#include <curl/curl.h>

struct ms_curl_api {
    CURL *(*easy_init)(void);
    CURLcode (*easy_set)(CURL *easy, CURLoption option, ...);
    CURLcode (*easy_get)(CURL *easy, CURLINFO info, ...);
    void (*easy_reset)(CURL *easy);
    void (*easy_cleanup)(CURL *easy);
    const char *(*easy_strerror)(CURLcode code);
    struct curl_slist *(*slist_append)(struct curl_slist *list, const char *text);
    void (*slist_free)(struct curl_slist *list);
    CURLM *(*multi_init)(void);
    CURLMcode (*multi_add)(CURLM *multi, CURL *easy);
    CURLMcode (*multi_remove)(CURLM *multi, CURL *easy);
    CURLMcode (*multi_perform)(CURLM *multi, int *running);
    CURLMcode (*multi_poll)(CURLM *multi,
                            struct curl_waitfd *extra,
                            unsigned extra_count,
                            int timeout_ms,
                            int *ready);
    CURLMcode (*multi_wakeup)(CURLM *multi);
    CURLMsg *(*multi_read)(CURLM *multi, int *left);
    CURLMcode (*multi_cleanup)(CURLM *multi);
};

/* Stays loaded. NULL: with the reason, and what to install. Any thread. */
const struct ms_curl_api *ms_curl_api(struct ms_error *err);

#endif
