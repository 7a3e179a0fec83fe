/* replay.c - feed every file of the given folders to a fuzzer's entry
 *
 * The ordinary test run replays the corpora with this main(), so that an input that
 * once broke a decoder is tried by every build. A folder without inputs is an error: a
 * replay that replays nothing must not look like a success.
 */
#include "base/cleanup.h"

#include <dirent.h>
#include <stdint.h>
#include <string.h>
#include <sys/stat.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int replay_file(const char *path, size_t size)
{
    MS_CLEANUP(ms_cleanup_file) FILE *f = fopen(path, "rbe");
    /* exactly `size` bytes, so that the sanitizer sees a read behind the end */
    MS_CLEANUP(ms_cleanup_free) uint8_t *data = malloc(size ? size : 1);

    if (!f || !data || fread(data, 1, size, f) != size)
        return -1;
    LLVMFuzzerTestOneInput(data, size);
    return 0;
}

/* The number of files replayed, or -1. */
static int replay_folder(const char *folder)
{
    DIR *dir = opendir(folder);
    const struct dirent *e;
    int count = 0;

    if (!dir)
        return -1;
    while (count >= 0 && (e = readdir(dir))) {
        MS_CLEANUP(ms_cleanup_free) char *path = NULL;
        struct stat st;

        if (asprintf(&path, "%s/%s", folder, e->d_name) < 0) {
            path = NULL;
            count = -1;
        } else if (stat(path, &st) < 0) {
            count = -1;
        } else if (S_ISREG(st.st_mode)) {
            count = replay_file(path, (size_t)st.st_size) < 0 ? -1 : count + 1;
        }
    }
    closedir(dir);
    return count;
}

int main(int argc, char **argv)
{
    for (int i = 1; i < argc; i++) {
        int count = replay_folder(argv[i]);

        if (count <= 0) {
            fprintf(stderr, "%s: %s\n", argv[i], count ? "cannot be read" : "is empty");
            return 1;
        }
        printf("%s: %d inputs replayed\n", argv[i], count);
    }
    return argc < 2;
}
