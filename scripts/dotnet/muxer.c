/* Minimal `dotnet` muxer: finds the newest host/fxr/<version>/libhostfxr.so
 * beside this executable and hands the command line to hostfxr.
 * Build: gcc -O2 -o $DOTNET_ROOT/dotnet muxer.c -ldl
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef int (*startup_fn)(int argc, const char **argv, const char *host_path,
                          const char *dotnet_root, const char *app_path);

int main(int argc, char **argv)
{
    char self[PATH_MAX], root[PATH_MAX], fxr[PATH_MAX], best[256] = "";
    ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
    if (n <= 0) { perror("dotnet: /proc/self/exe"); return 130; }
    self[n] = 0;
    strcpy(root, self);
    char *slash = strrchr(root, '/');
    if (slash) *slash = 0;

    /* Highest version number wins, compared the natural way (10.0.2 > 9.0.5). */
    if (snprintf(fxr, sizeof fxr, "%s/host/fxr", root) >= (int)sizeof fxr) return 130;
    DIR *d = opendir(fxr);
    if (!d) { perror(fxr); return 131; }
    for (struct dirent *e; (e = readdir(d)); )
        if (e->d_name[0] != '.' && strlen(e->d_name) < sizeof best &&
            strverscmp(e->d_name, best) > 0)
            strcpy(best, e->d_name);
    closedir(d);
    if (!best[0]) { fprintf(stderr, "dotnet: nothing under %s\n", fxr); return 131; }
    if (snprintf(fxr, sizeof fxr, "%s/host/fxr/%s/libhostfxr.so", root, best) >= (int)sizeof fxr)
        return 130;

    void *h = dlopen(fxr, RTLD_LAZY | RTLD_LOCAL);
    if (!h) { fprintf(stderr, "dotnet: %s\n", dlerror()); return 130; }
    startup_fn run = (startup_fn)dlsym(h, "hostfxr_main_startupinfo");
    if (!run) { fprintf(stderr, "dotnet: %s\n", dlerror()); return 130; }

    /* app_path must name a file that does not exist: that is how hostfxr tells
     * the muxer (`dotnet app.dll`) from an apphost (`./app`). */
    char app[PATH_MAX + 8];
    snprintf(app, sizeof app, "%s.dll", self);
    return run(argc, (const char **)argv, self, root, app);
}
